package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

type walletCommand struct {
	Flags    agentFlags       `embed:""`
	Balance  walletBalance    `cmd:"" help:"Show what the wallet has. Free."`
	Limits   walletLimits     `cmd:"" help:"Show or change the limits. Anyone may lower them; only a person may raise them."`
	Approve  walletApprove    `cmd:"" help:"Allow one call above the limits, once, for ten minutes. For a person."`
	Freeze   walletFreeze     `cmd:"" help:"Stop all payments."`
	Unfreeze walletUnfreeze   `cmd:"" help:"Allow payments again. For a person."`
	Phrase   walletPassphrase `cmd:"" name:"passphrase" help:"Set, change or remove a passphrase that guards what only a person may do."`
	Check    walletCheck      `cmd:"" help:"Check that the wallet's file is complete, and the newest. Free."`
	Pending  walletPending    `cmd:"" help:"Finish calls whose outcome is not known, and list those that stay open."`
	Refund   walletRefund     `cmd:"" help:"Take the unspent deposits in the payment channel back. Free."`
	Report   walletReport     `cmd:"" help:"Show what calls cost, by day, operation and peer."`
	Export   walletExport     `cmd:"" help:"Write the wallet's private key to a new file. For a person."`
}

type walletBalance struct{}

func (walletBalance) Run(ctx context.Context, s *session) error {
	balance, err := s.balance(ctx)
	if err != nil {
		return err
	}
	deposited, err := s.agent.Deposited()
	if err != nil {
		return err
	}
	value := object{"address": s.agent.Address(), "network": s.config.Network, "balance_usd": agent.USD(balance),
		"deposited_usd": agent.USD(deposited)}
	return s.print(ctx, value, func(w io.Writer) {
		fmt.Fprintf(w, "%s USDC on %s, address %s; on top of that %s in payment channels\n", agent.USD(balance), s.config.Network,
			s.agent.Address(), agent.USD(deposited))
	})
}

type walletLimits struct {
	PerCall string `placeholder:"USD" help:"The highest price without an approval."`
	PerDay  string `placeholder:"USD" help:"What calls of 24 hours may cost together, without those that a person approved."`
	Polls   string `placeholder:"USD" help:"The part of it for getting unread messages."`
}

func (c *walletLimits) Run(ctx context.Context, s *session) error {
	ledger := s.agent.Ledger()
	limits, _, _, err := ledger.Limits(ctx)
	if err != nil {
		return err
	}
	again, changed := []string{"parley wallet limits"}, false
	for _, limit := range []struct {
		flag, text string
		into       *uint64
	}{{"--per-call", c.PerCall, &limits.PerCall}, {"--per-day", c.PerDay, &limits.PerDay}, {"--polls", c.Polls, &limits.Polls}} {
		if limit.text == "" {
			continue
		}
		if *limit.into, err = console.ParseUSD(limit.text); err != nil {
			return console.Usagef("%s: %w", limit.flag, err)
		}
		again, changed = append(again, limit.flag, agent.USD(*limit.into)), true
	}
	if changed {
		err := ledger.SetLimits(ctx, limits, false)
		if errors.Is(err, agent.ErrRaise) {
			question := fmt.Sprintf("Raise the limits to %s USD per call, %s per day, %s of it for polls?", agent.USD(limits.PerCall),
				agent.USD(limits.PerDay), agent.USD(limits.Polls))
			if err = s.decide(question, "raise limits", strings.Join(again, " ")); err == nil {
				err = ledger.SetLimits(ctx, limits, true)
			}
		}
		if err != nil {
			return err
		}
	}
	limits, left, frozen, err := ledger.Limits(ctx)
	if err != nil {
		return err
	}
	value := object{
		"per_call_usd": agent.USD(limits.PerCall), "per_day_usd": agent.USD(limits.PerDay), "polls_usd": agent.USD(limits.Polls),
		"today_left_usd": agent.USD(left.PerDay), "polls_left_usd": agent.USD(left.Polls), "frozen": frozen}
	s.addReserved(ctx, value)
	return s.print(ctx, value, func(w io.Writer) {
		fmt.Fprintf(w, "per call %s USD\nper day  %s USD, left %s\npolls    %s USD, left %s\n",
			agent.USD(limits.PerCall), agent.USD(limits.PerDay), agent.USD(left.PerDay), agent.USD(limits.Polls), agent.USD(left.Polls))
		if reserved := value["reserved_usd"]; reserved != nil {
			fmt.Fprintf(w, "%s USD of the day are reserved for refused calls: the next calls use them\n", reserved)
		}
		if frozen {
			fmt.Fprintln(w, "frozen: nothing is paid")
		}
	})
}

type walletApprove struct {
	ID string `arg:"" help:"The id in the error of the call."`
}

func (c *walletApprove) Run(ctx context.Context, s *session) error {
	const what = "approve a payment"
	command := "parley wallet approve " + agent.VisibleName(c.ID)
	if err := s.personOnly(what, command); err != nil { // before the program learns what waits
		return err
	}
	asked, err := s.agent.Ledger().Approval(ctx, c.ID)
	if err == nil {
		err = s.showAsked(asked)
	}
	if err == nil {
		err = s.decide("Allow "+asked.String()+", once?", what, command)
	}
	if err != nil {
		return err
	}
	given, err := s.agent.Ledger().Approve(ctx, c.ID)
	if err != nil {
		return err
	}
	return s.print(ctx, object{"approved": given.ID, "operation": given.Operation, "price_usd": agent.USD(given.Price)}, func(w io.Writer) {
		fmt.Fprintf(w, "approved %s for ten minutes; run the command again\n", given)
	})
}

// shownArguments is the number of characters that are shown of the arguments of a call.
const shownArguments = 1000

// showAsked shows a person what is to be approved: the command and the arguments of the call, with the names of contacts.
func (s *session) showAsked(asked *agent.Approval) error {
	contacts, err := s.agent.Contacts()
	if err != nil {
		return err
	}
	asked.Peer = nameOfPeer(contacts, asked.Peer)
	named := mapTexts(asked.Arguments, func(text string) string { return nameOfPeer(contacts, text) })
	text, err := json.MarshalIndent(named, "", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "parley %s\n%.*s\n", cmp.Or(agent.CallerOf(asked.Operation).Command, "call"), shownArguments, text)
	return nil
}

type walletFreeze struct{}

func (walletFreeze) Run(ctx context.Context, s *session) error {
	if err := s.agent.Ledger().Freeze(ctx); err != nil {
		return err
	}
	return s.print(ctx, object{"frozen": true}, func(w io.Writer) { fmt.Fprintln(w, "frozen: nothing is paid any more") })
}

type walletUnfreeze struct{}

func (walletUnfreeze) Run(ctx context.Context, s *session) error {
	if err := s.decide("Allow payments again?", "unfreeze the wallet", "parley wallet unfreeze"); err != nil {
		return err
	}
	if err := s.agent.Ledger().Unfreeze(ctx); err != nil {
		return err
	}
	return s.print(ctx, object{"frozen": false}, func(w io.Writer) { fmt.Fprintln(w, "calls are paid again") })
}

type walletPending struct{}

func (walletPending) Run(ctx context.Context, s *session) error {
	if _, err := s.agent.Resume(ctx); err != nil {
		return err
	}
	open, err := s.agent.Ledger().Open()
	if err != nil {
		return err
	}
	calls := []object{}
	for _, call := range open {
		calls = append(calls, object{
			"operation": call.Intent.Operation, "to": call.Intent.Peer, "price_usd": agent.USD(call.Signed.Price), "since": call.Since})
	}
	credits, err := s.agent.Ledger().Credits()
	if err != nil {
		return err
	}
	paid := []object{}
	for _, credit := range credits {
		paid = append(paid, object{"operation": credit.Intent.Operation, "price_usd": agent.USD(credit.Signed.Price), "since": credit.Since})
	}
	value := object{"pending": calls, "credits": paid}
	reserved, err := s.agent.Reserved(ctx)
	if err != nil {
		return err
	}
	if reserved != nil {
		value["reserved"] = object{"username": agent.PlainWord(reserved.Username), "until": reserved.Until.Format(time.RFC3339),
			"price_usd": agent.USD(reserved.Paid), "next": s.runnable("parley init") + flag("username", reserved.Username)}
	}
	return s.print(ctx, value, func(w io.Writer) {
		if reserved != nil {
			fmt.Fprintf(w, "the username %s is reserved until %s, without an account; go on with: %s\n",
				agent.PlainWord(reserved.Username), reserved.Until.Format(time.RFC3339), s.runnable("parley init"))
		}
		for _, call := range calls {
			fmt.Fprintf(w, "%s  %s  %s USD  %s\n", call["since"], call["operation"], call["price_usd"], call["to"])
		}
		if len(calls) == 0 {
			fmt.Fprintln(w, "nothing is open")
		}
		for _, credit := range paid {
			fmt.Fprintf(w, "%s  a %s was charged (%s USD) and rejected; the next one is paid with it\n", credit["since"], credit["operation"],
				credit["price_usd"])
		}
	})
}

type walletExport struct {
	File string `arg:"" help:"A file that does not exist."`
}

func (c *walletExport) Run(ctx context.Context, s *session) error {
	if _, err := os.Lstat(c.File); err == nil {
		return console.Usagef("the file %s exists", agent.VisibleName(c.File))
	}
	question := "Write the private key of the wallet to the file " + agent.VisibleName(c.File) + "?"
	if err := s.decide(question, "export the wallet's key", "parley wallet export "+quoted(c.File)); err != nil {
		return err
	}
	digits, err := s.secrets.Load(walletKeyName)
	if errors.Is(err, agent.ErrNoSecret) {
		return fmt.Errorf("the key of this wallet is not stored here; it comes from: %s", s.keyPlace)
	}
	if err != nil {
		return err
	}
	file, err := os.OpenFile(c.File, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, digits)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return s.print(ctx, object{"file": c.File}, func(w io.Writer) {
		fmt.Fprintf(w, "the private key is in %s, readable by you only; who has it has the money\n", c.File)
	})
}
