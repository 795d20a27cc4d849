package agent

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/x402"
)

// The operations that create an account and show it.
const (
	operationRequestAccount = "requestAccount"
	operationCreateAccount  = "createAccount"
	operationGetOwnAgent    = "getOwnAgent"
	operationRotateKey      = "rotateKey"
)

func isRegistration(operation string) bool {
	return operation == operationRequestAccount || operation == operationCreateAccount
}

var addressForm = regexp.MustCompile(`^0x[0-9a-fA-F]{40}$`)

// Terms asks a server for its terms. It pays nothing. network, if not "", is the one that must be among them.
func (a *Agent) Terms(ctx context.Context, server, network string) (*Agreement, error) {
	if err := checkServer(server); err != nil {
		return nil, err
	}
	request, err := a.contract[operationGetOwnAgent].request(ctx, server, nil)
	if err != nil {
		return nil, err
	}
	response, err := a.unpaid.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its terms: %w", server, withoutURL(err))
	}
	defer response.Body.Close() //nolint:errcheck // it is not read
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	required, err := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	if err != nil {
		return nil, fmt.Errorf("%s did not ask for a payment (status %d); is it a Parley server?", server, response.StatusCode)
	}
	found := &Agreement{}
	for _, offer := range required.Accepts {
		known, ok := client.KnownNetwork(a.payer.Networks, offer)
		if ok && offer.MaxTimeoutSeconds > maxValidity {
			return nil, fmt.Errorf("the server wants payments that are valid for %d seconds, this wallet signs for %d at most",
				offer.MaxTimeoutSeconds, maxValidity)
		}
		if !ok || !addressForm.MatchString(offer.PayTo) || network != "" && network != offer.Network ||
			found.Network != "" && (offer.Network != found.Network || !strings.EqualFold(offer.PayTo, found.Payee)) {
			continue
		}
		found.Server, found.Network, found.Asset, found.Payee = strings.TrimSuffix(server, "/"), offer.Network, known.Asset, offer.PayTo
		found.Accepts = append(found.Accepts, offer)
	}
	if found.Network == "" {
		return nil, errors.New("the server takes no payment on a network that this wallet pays on")
	}
	return found, nil
}

// ErrOtherTerms means that a wallet has agreed to other terms before.
var ErrOtherTerms = errors.New("this wallet has agreed to other terms")

// Agree lets the agent pay these terms and prices, and no other. If the wallet has agreed to others before, the error is [ErrOtherTerms],
// unless again is true.
func (a *Agent) Agree(agreement *Agreement, prices map[string]uint64, again bool) error {
	present, err := a.terms.read()
	if err != nil {
		return err
	}
	agreed := *agreement
	same := agreed.Server == present.Server && agreed.Network == present.Network && strings.EqualFold(agreed.Asset, present.Asset) &&
		strings.EqualFold(agreed.Payee, present.Payee)
	if present.Server != "" && !same && !again {
		return fmt.Errorf("%w, those of %s", ErrOtherTerms, present.Server)
	}
	agreed.Prices = present.Prices
	if again {
		agreed.Prices = map[string]uint64{}
		for id, price := range prices {
			if o := a.contract[id]; o != nil && o.Price != price {
				agreed.Prices[id] = price
			}
		}
	}
	return a.terms.agree(agreed)
}

// OwnedError means that the wallet was used for an account of this server in another folder.
type OwnedError struct {
	Username string // or ""
	Sent     uint64 // from this folder for an account before, in atomic units, or 0
}

func (e *OwnedError) Error() string {
	if e.Sent > 0 {
		return fmt.Sprintf("%s USD were sent for an account before, and the server may have taken them. If it did not, and the blockchain shows "+
			"that after some minutes (--rpc-url), the same command goes on. To pay again run it with --new-account", USD(e.Sent))
	}
	what := "has paid this server from another folder, so it may own an account here"
	if e.Username != "" {
		what = "owns " + VisibleName(e.Username) + " on this server"
	}
	return "this wallet " + what + "; the account's API key is in the folder with which it was made. Copy that folder and name it with " +
		"PARLEY_HOME. If it is lost, so is the account: make another one with another wallet, or with --new-account"
}

// Register creates the account of the wallet, in two paid calls. A wallet that has an account returns it. An interrupted registration goes
// on where it was. The error is an [*OwnedError] if the wallet was used elsewhere, unless another is true.
func (a *Agent) Register(ctx context.Context, username, description string, another bool) (json.RawMessage, error) {
	if _, err := a.apiKey(); errors.Is(err, ErrNoAccount) {
		if err := a.register(ctx, username, description, another); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	own, err := a.Call(ctx, operationGetOwnAgent, nil, CallOptions{})
	if err != nil {
		return nil, err
	}
	return own.Body, a.Seen(ctx, own)
}

// tanTime is how long a username is reserved.
const tanTime = 10 * time.Minute

// Reserved is a username that was paid for, without an account yet.
type Reserved struct {
	Username string
	Until    time.Time // at the earliest
	Paid     uint64
}

// Reserved returns the username that was reserved last, or nil if there is none, or an account was made of it.
func (a *Agent) Reserved(ctx context.Context) (*Reserved, error) {
	found, err := collect(ctx, a.ledger.db, func(row *sql.Rows, r *Reserved) error {
		var at int64
		err := row.Scan(&r.Username, &at, &r.Paid)
		r.Until = fromMicros(at).Add(tanTime)
		return err
	}, `SELECT r.peer, c.at, r.charged FROM responses r JOIN calls c ON c.id = r.call
		WHERE r.operation = ? AND NOT r.seen ORDER BY r.number DESC LIMIT 1`, operationRequestAccount)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// forgetReserved ends the reservation of all usernames: the next request asks for a new one.
func (a *Agent) forgetReserved(ctx context.Context) error {
	return a.ledger.exec(ctx, "UPDATE responses SET seen = 1 WHERE operation = ?", operationRequestAccount)
}

func (a *Agent) register(ctx context.Context, username, description string, another bool) error {
	if err := a.finishAccount(ctx); err != nil {
		return err
	}
	if _, err := a.apiKey(); err == nil {
		return a.forgetReserved(ctx)
	} else if !errors.Is(err, ErrNoAccount) {
		return err
	}
	if reserved, err := a.Reserved(ctx); err != nil {
		return err
	} else if reserved != nil && a.ledger.now().After(reserved.Until) {
		if err := a.forgetReserved(ctx); err != nil {
			return err
		}
	}
	before, err := sentFor(ctx, a.ledger.db, operationRequestAccount)
	if err != nil {
		return err
	}
	options := CallOptions{Peer: username, Confirmed: true}
	_, err = a.Call(ctx, operationRequestAccount, map[string]any{"requested_username": username}, options)
	if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Code == client.ErrorCodePaymentReused && before == 0 {
		return &OwnedError{Username: username} // the wallet's payment for this name was used for an account
	}
	if err != nil {
		return err
	}
	if elsewhere, err := a.paidElsewhere(ctx); err != nil || elsewhere && !another {
		return cmp.Or[error](err, &OwnedError{})
	}
	tan, err := a.secret(tanField)
	if err != nil {
		return err
	}
	created, err := a.Call(ctx, operationCreateAccount, map[string]any{"username": username, "tan": tan, "description": description},
		CallOptions{Confirmed: true, another: another})
	if err != nil {
		return a.forgetLost(ctx, err)
	}
	return errors.Join(a.forgetReserved(ctx), a.Seen(ctx, created))
}

// paidElsewhere reports whether the server proved vouchers of this wallet that this ledger does not know.
func (a *Agent) paidElsewhere(ctx context.Context) (bool, error) {
	return value[bool](ctx, a.ledger.db, `SELECT EXISTS (SELECT 1 FROM channels c
		WHERE CAST(content ->> 'charged' AS INTEGER) > (SELECT coalesce(sum(amount), 0) FROM payments p WHERE p.channel = c.id))`)
}

// forgetLost returns the error of a call that creates an account. If its TAN is of no use any more, the next attempt asks for another one.
func (a *Agent) forgetLost(ctx context.Context, err error) error {
	refused, ok := errors.AsType[*RefusedError](err)
	if ok && (refused.Code == client.ErrorCodeInvalidTAN || refused.Code == client.ErrorCodeUsernameTaken) {
		return errors.Join(err, a.forgetReserved(ctx))
	}
	return err
}

// finishAccount finishes the calls that were interrupted while they created an account, of whatever name. The error is one of a call that
// stays open.
func (a *Agent) finishAccount(ctx context.Context) error {
	calls, err := a.ledger.Open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, defaultPatience)
	defer cancel()
	for _, call := range calls {
		if call.Intent.Operation != operationCreateAccount || !strings.HasPrefix(call.Signed.URL, a.Server()+"/") {
			continue
		}
		err := a.ledger.alone(ctx, call.Intent.Request, func() error {
			if !a.ledger.isOpen(ctx, call.Intent.ID) {
				return nil // another process has finished it
			}
			_, err := a.finish(ctx, call)
			return a.forgetLost(ctx, err)
		})
		if err != nil && a.ledger.isOpen(ctx, call.Intent.ID) {
			return err
		}
	}
	return nil
}

// checkServer returns an error for a URL to which requests would not be encrypted.
func checkServer(server string) error {
	if base, err := url.Parse(server); err != nil || base.Host == "" || base.Scheme != "https" && !isLoopback(base) {
		return fmt.Errorf("the server %q is not a URL with https://", server)
	}
	return nil
}

func isLoopback(address *url.URL) bool {
	host := address.Hostname()
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

// noRedirect lets a client return redirects.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
