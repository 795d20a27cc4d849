package agent

import (
	"cmp"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/x402"
)

func runStatus(r *Run) (*Value, error) {
	account, err := r.HasAccount()
	own, failed := r.Own(r.Context)
	today, unknown := r.today()
	if err = cmp.Or(err, failed, unknown); err != nil {
		return nil, err
	}
	data := today.fields()
	maps.Copy(data, object{"username": nil, "server": r.Server(), "secrets": r.secrets.Place()})
	if account && own != nil {
		data["username"], data["agent_id"] = PlainWord(own.Username), PlainWord(own.AgentID)
	}
	if err := r.balances(data); CodeOf(err) == ErrNoChain.Code {
		data["problem"] = err.Error()
	} else if err != nil {
		return nil, err
	}
	v := Shown(data)
	return v, r.addOpen(v)
}

func (r *Run) balances(data object) error {
	data["address"], data["network"] = r.Address(), r.terms.agreed().Network
	deposited, err := r.Deposited()
	if err != nil {
		return err
	}
	data["deposited_usd"] = USD(deposited)
	balance, err := r.Balance(r.Context)
	if err == nil {
		data["balance_usd"] = USD(balance)
	}
	return err
}

// today returns the daily limit. What is reserved for payments that ended unused is released before.
func (r *Run) today() (Day, error) {
	today, err := r.ledger.Today(r.Context)
	if err == nil && today.Reserved > 0 && r.settle(r.Context) {
		today, err = r.ledger.Today(r.Context)
	}
	return today, err
}

func (d Day) fields() object {
	return object{"limit_usd": USD(d.Limit), "today_usd": USD(d.Spent - d.Reserved), "reserved_usd": USD(d.Reserved),
		"left_usd": USD(d.Left())}
}

func (r *Run) addOpen(v *Value) error {
	contacts, err := r.Contacts()
	calls, failed := r.ledger.Open()
	if err = cmp.Or(err, failed); err != nil {
		return err
	}
	list := []any{}
	for _, call := range calls {
		if call.Intent.Operation == pollOperation { // finished by the same fetch only, and nothing is lost without it
			continue
		}
		to, since := contacts.NameOf(call.Intent.Peer), call.Since.Format(time.RFC3339)
		list = append(list, object{"operation": call.Intent.Operation, "to": to, "price_usd": USD(call.Signed.Price), "since": since})
		v.line("open: %s, %s USD, since %s; the next call that pays finishes it", strings.TrimSpace(r.nameOf(call.Intent.Operation)+" "+to),
			USD(call.Signed.Price), since)
	}
	v.Data["open"] = list
	return nil
}

func runProfile(r *Run) (*Value, error) {
	body, err := r.call(operationGetOwnAgent, "", nil)
	return Shown(body), err
}

func runBalance(r *Run) (*Value, error) {
	data := object{}
	err := r.balances(data)
	return Shown(data), err
}

func runLimit(r *Run) (*Value, error) {
	if text := r.text("usd"); text != "" {
		limit, err := ParseUSD(text)
		if err != nil {
			return nil, err
		}
		if err := r.ledger.SetLimit(r.Context, limit); err != nil {
			return nil, err
		}
	}
	today, err := r.today()
	return Shown(today.fields()), err
}

// ParseUSD converts dollars with at most six decimals to atomic units.
func ParseUSD(text string) (uint64, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	amount, err := x402.AtomicAmount(whole + "." + fraction + strings.Repeat("0", max(0, 6-len(fraction))))
	if err != nil || strings.HasPrefix(text, "-") {
		return 0, Usagef("%s is no amount in USD, such as 0.05", VisibleName(text))
	}
	return amount, nil
}

// runReport sums what calls cost since a time, by day and operation. A call without an outcome may have cost what was signed for it and not
// released. Calls that cost nothing, such as refused ones, are left out.
func runReport(r *Run) (*Value, error) {
	since := time.Now().UTC().AddDate(0, 0, -30).Truncate(day)
	if text := r.text("since"); text != "" {
		var err error
		if since, err = time.Parse(time.DateOnly, text); err != nil {
			return nil, Usagef("%s is no day, such as 2026-12-01", VisibleName(text))
		}
	}
	v, total := newValue(object{}), uint64(0)
	costs, err := collect(r.Context, r.ledger.db, func(row *sql.Rows, cost *any) error {
		var on, operation string
		var calls int
		var charged, open uint64 // what the server charged, and may have charged
		if err := row.Scan(&on, &operation, &calls, &charged, &open); err != nil {
			return err
		}
		*cost = object{"day": on, "operation": operation, "calls": calls, "charged_usd": USD(charged), "open_usd": USD(open)}
		line := fmt.Sprintf("%s  %-24s %s USD, calls: %d", on, operation, USD(charged), calls)
		if open > 0 {
			line += ", open " + USD(open)
		}
		v.line("%s", line)
		total += charged
		return nil
	}, `SELECT date(at / 1000000, 'unixepoch'), operation, count(*), sum(cost), sum(open)
		FROM (SELECT *, iif(status IS NULL, (SELECT coalesce(sum(amount), 0) FROM payments
				WHERE call = id AND payments.signed AND NOT released), 0) AS open
			FROM calls WHERE at >= ?1)
		WHERE cost > 0 OR open > 0 GROUP BY 1, 2 ORDER BY 1, 2`, micros(since))
	v.Data = object{"since": since.Format(time.DateOnly), "costs": append([]any{}, costs...), "charged_usd": USD(total)}
	return v.line("charged %s USD since %s", USD(total), since.Format(time.DateOnly)), err
}

func runDeposits(r *Run) (*Value, error) {
	all, err := channels{r.ledger}.All()
	v, list := newValue(object{}), []any{}
	for _, c := range all {
		list = append(list, object{"network": c.Network, "payee": c.Config.Receiver, "deposited_usd": USD(c.Balance),
			"charged_usd": USD(c.Charged)})
		v.line("%s to %s: deposited %s USD, charged %s", c.Network, c.Config.Receiver, USD(c.Balance), USD(c.Charged))
	}
	v.Data["deposits"] = list
	if len(list) == 0 {
		v.line("none")
	}
	return v, err
}

func runRefund(r *Run) (*Value, error) {
	refunded, err := r.Refund(r.Context)
	if err != nil && !errors.Is(err, client.ErrNothingToRefund) && !errors.Is(err, client.ErrNoPaymentChannel) {
		return nil, err
	}
	data := object{"refunded_usd": USD(refunded)}
	if refunded == 0 {
		return said(data, Contact{}, "there is nothing to take back from the payment channels"), nil
	}
	return said(data, Contact{}, "%s USD came back to the wallet from the payment channels", USD(refunded)), nil
}

// runPrices lists the operations of the contract whose names contain a text, with their prices and the commands that make them. Of one
// operation it lists the arguments.
func runPrices(r *Run) (*Value, error) {
	part, v, list := r.text("operation"), newValue(object{}), []any{}
	for _, o := range r.contract.ByPath() {
		if r.contract[part] != nil && o.ID != part || !strings.Contains(strings.ToLower(o.ID), strings.ToLower(part)) {
			continue
		}
		var commands []string
		for _, a := range Actions {
			if slices.Contains(a.Operations, o.ID) {
				commands = append(commands, r.how(a.Name, nil))
			}
		}
		one := object{"operation": o.ID, "price_usd": USD(o.Price), "commands": commands, "summary": o.Summary}
		list = append(list, one)
		v.line("%-8s %-24s %s (%s)", USD(o.Price), o.ID, o.Summary, strings.Join(commands, ", "))
		if o.ID == part {
			arguments, lines := o.takes()
			one["arguments"] = arguments
			v.line("  %s", cmp.Or(strings.Join(lines, "\n  "), "no arguments"))
		}
	}
	v.Data["prices"] = list
	if len(list) == 0 {
		return nil, Usagef("no operation has %s in its name; all: %s", VisibleName(part), r.how("prices", object{}))
	}
	return v, nil
}

func runCall(r *Run) (*Value, error) {
	operation := r.text("operation")
	if operation == "" {
		return runPrices(r)
	}
	if isRegistration(operation) {
		return nil, Usagef("accounts are created with %s, which stores the TAN and the API key", r.how("init", nil))
	}
	o, err := r.contract.Operation(operation)
	if err != nil {
		return nil, err
	}
	arguments, _ := r.Args["arguments"].(object)
	if len(arguments) == 0 && len(o.Arguments.Required) > 0 {
		_, lines := o.takes()
		return nil, Usagef("%s needs arguments; nothing was paid. It takes: %s", operation, strings.Join(lines, "; "))
	}
	for name, property := range o.Arguments.Properties {
		for _, kind := range property.Value.Type.Slice() {
			p := Param{Name: name, Type: Type(kind), Empty: true}
			if text, isText := arguments[name].(string); isText && p.Type != Text {
				value, wrong := p.take(text)
				if wrong == "" {
					raw, _ := json.Marshal(value)
					_ = json.Unmarshal(raw, &value) // lists and numbers of JSON
					arguments[name] = value
				}
			}
		}
	}
	peer := ""
	for _, field := range []string{"recipient_agent_id", "chat_id", "channel_id", "agent_id"} {
		id, _ := arguments[field].(string)
		peer = cmp.Or(peer, id)
	}
	if err := o.Check(arguments); err != nil {
		return nil, err
	}
	if err := ActionOf(operation).what.confirm(r, Contact{ID: peer, Kind: kindOf(peer)}, arguments); err != nil {
		return nil, err
	}
	body, err := r.call(operation, peer, arguments)
	if err != nil {
		return nil, err
	}
	v := newValue(body)
	if _, there := body["messages"]; there {
		_, err = r.showUnread(v)
		return v, err
	}
	return Shown(body), nil
}
