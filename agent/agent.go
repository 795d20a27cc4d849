// Package agent is the agent's side of Parley: an account and a wallet whose spending is limited over restarts and processes, and
// calls that are paid once, whatever crashes. The command line and the MCP server are built on it.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/lockfile"
	"github.com/parley-chat/parley/x402"
)

// Agent makes calls of one account. It is safe for concurrent use, also by several processes.
type Agent struct {
	contract Contract
	ledger   *Ledger
	terms    *terms
	payer    *client.Payer
	http     *http.Client // pays
	unpaid   *http.Client
	secrets  Secrets
	address  string // of the wallet
}

type Result struct {
	Operation string
	// Body is the response without API keys and TANs, which are stored.
	Body json.RawMessage
	// Charged is what the call cost, in atomic units.
	Charged uint64
	// Earlier is true if this is the response to the same call of another command, which ran at the same time or was interrupted before its
	// response was seen. Nothing was paid for it now.
	Earlier bool

	id     string
	cursor string         // of a page of unread messages: [Agent.Seen] confirms it to the next fetch
	lock   *lockfile.Lock // for a page of unread messages, or nil
}

type CallOptions struct {
	// Peer is the agent or conversation that the call is about, for reports.
	Peer string
	// Key is an idempotency key: calls with one key are one call, which is paid once. With other arguments it is refused. Without a
	// key equal calls are one until their response was seen.
	Key string
	// Confirmed lets a call cost more than [DearPrice].
	Confirmed bool

	recent time.Duration // a response to the same call that is not older is enough
	// Patience limits how long the call waits for an outcome. Zero means 45 seconds.
	Patience time.Duration
}

// defaultPatience is below the time after which MCP clients give up.
const defaultPatience = 45 * time.Second

// Call makes a call. It first finishes the same call if an earlier process was interrupted in it. Most errors are a [*Failure].
func (a *Agent) Call(ctx context.Context, operation string, arguments map[string]any, options CallOptions) (*Result, error) {
	o, err := a.contract.Operation(operation)
	if err != nil {
		return nil, err
	}
	if err := o.Check(arguments); err != nil {
		return nil, err
	}
	if _, err := a.terms.read(); err != nil {
		return nil, err
	}
	if o.Account {
		if _, err := a.apiKey(); err != nil {
			return nil, err // before a payment is signed that could not be sent
		}
	}
	command := commandOf(ctx)
	ctx, cancel := context.WithTimeout(command.Continue(ctx), cmp.Or(options.Patience, defaultPatience))
	defer cancel()
	of := intent{Operation: o.ID, Peer: options.Peer, Request: o.hash(arguments, options.Key), Since: command.began}
	if options.Key != "" {
		of.Since = time.Time{} // whenever it was made
		if err := a.ledger.useKey(ctx, options.Key, of.Request); err != nil {
			return nil, err
		}
	} else if o.ReadOnly || o.ID == pollOperation {
		of.Since = time.Now().Add(-options.recent) // a command that repeats it wants the present state
	}
	result, err := a.callAlone(ctx, o, arguments, of, options)
	became := map[bool]string{true: "deleteChannel"}[CodeOf(err) == string(client.ErrorCodeDeleted)]
	if refusedAs(err, client.ErrorCodeNotMember, client.ErrorCodeBanned) {
		became = "unsubscribeChannel"
	}
	if change := effect(became, arguments, nil); change != nil {
		_ = a.changeContacts(context.WithoutCancel(ctx), change) // the next call is refused too if this fails
	}
	if err != nil {
		if CodeOf(err) != codeOpen && options.Key != "" {
			_ = a.ledger.exec(context.WithoutCancel(ctx), "DELETE FROM keys WHERE key = ?", options.Key) // else it stays used
		}
		return nil, a.orNoMoney(ctx, err, o.Price)
	}
	return result, a.learn(context.WithoutCancel(ctx), o.ID, arguments, result.Body)
}

// callAlone makes a call while no other process makes the same one. So the second of them finds the response of the first one.
func (a *Agent) callAlone(
	ctx context.Context, o *Operation, arguments map[string]any, of intent, options CallOptions,
) (result *Result, err error) {
	err = a.ledger.alone(ctx, of.Request, func() error {
		if result, err = a.earlier(ctx, of); result != nil || err != nil {
			return err
		}
		if result, err = a.redeem(ctx, o, arguments, of); result != nil || err != nil {
			return err
		}
		price := o.Price
		if price > DearPrice && !options.Confirmed {
			return cmp.Or(a.affords(ctx, price), ConfirmDear(o.ID, price))
		}
		of.ID, err = a.ledger.refusedCall(ctx, of.Request)
		if err = cmp.Or(err, a.ledger.forgetUnsigned(ctx, of.Request)); err != nil {
			return err
		}
		of.ID = cmp.Or(of.ID, client.NewIdentifier())
		result, err = a.pay(ctx, o, arguments, of)
		if (CodeOf(err) == codeLimit || CodeOf(err) == codeAccount) && a.settle(ctx) {
			result, err = a.pay(ctx, o, arguments, of)
		}
		return err
	})
	return result, err
}

// settle stops to count refused payments that can never be taken, and reports whether there were any.
func (a *Agent) settle(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, chainTime)
	defer cancel()
	settled, _ := a.ledger.Settle(ctx) // without the chain they stay counted
	return settled > 0
}

// pay makes a call with the payment identifier of its intent.
func (a *Agent) pay(ctx context.Context, o *Operation, arguments map[string]any, of intent) (*Result, error) {
	ctx = withIntent(ctx, of)
	request, err := o.request(ctx, a.Server(), arguments)
	if err != nil {
		return nil, err
	}
	response, err := a.http.Do(request)
	if refused, ok := errors.AsType[*Failure](err); ok && refused.Code != codeTerms {
		return nil, refused // by the ledger, before it was signed
	}
	return a.read(ctx, of, response, err)
}

func (a *Agent) read(ctx context.Context, of intent, response *http.Response, err error) (*Result, error) {
	if err != nil {
		if a.ledger.isOpen(ctx, of.ID) {
			return nil, outcomeOpen(err)
		}
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(response.Body)
	var said client.ParleyError
	_ = json.Unmarshal(body, &said) // of a proxy it is not JSON
	refused := refusalOf(response.StatusCode, x402.RetryAfter(response.Header.Get("Retry-After"), 0), said)
	if err != nil || a.ledger.isOpen(ctx, of.ID) {
		if err == nil && response.StatusCode == http.StatusOK {
			err = errors.New("the response is not Parley's, as that of a proxy")
		}
		return nil, outcomeOpen(cmp.Or[error](err, errors.New(refused.Message))) // not the refusal itself: it is not the outcome
	}
	command, charged := commandOf(ctx), a.ledger.charged(ctx, of.ID)
	command.charged.Add(charged)
	if response.StatusCode != http.StatusOK {
		return nil, refused
	}
	command.made(of.ID)
	text, err := withoutSecrets(body)
	if err != nil {
		return nil, err
	}
	return &Result{Operation: of.Operation, Body: text, Charged: charged, id: of.ID}, nil
}
