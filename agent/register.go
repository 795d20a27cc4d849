package agent

import (
	"cmp"
	"context"
	"database/sql"
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
		return nil, fmt.Errorf("ask %s for its terms: %w", server, errors.Unwrap(err))
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

// Agree lets the agent pay these terms, and no other. If the wallet has agreed to others before, that is a failure unless again is true.
func (a *Agent) Agree(agreed *Agreement, again bool) error {
	present, err := a.terms.read()
	if err != nil {
		return err
	}
	same := agreed.Server == present.Server && agreed.Network == present.Network && strings.EqualFold(agreed.Asset, present.Asset) &&
		strings.EqualFold(agreed.Payee, present.Payee)
	if present.Server != "" && !same && !again {
		return termsChanged("this wallet has agreed to other terms, those of %s", present.Server)
	}
	ctx := context.Background()
	return a.ledger.transact(ctx, func(tx *sql.Tx) error { return saveSetting(ctx, tx, termsSetting, agreed) })
}

const codeAccount = "account_elsewhere"

// owned is the failure of a wallet that was used for an account of this server in another folder. The username is "" if it is not known.
func owned(username string) error {
	what := "has paid this server from another folder, so it may own an account here"
	if username != "" {
		what = "owns " + VisibleName(username) + " on this server"
	}
	return failf(ExitNoKey, codeAccount, "", "this wallet %s; the account's API key is in the folder with which it was made, and lost with "+
		"it. Name that folder or a copy of it with PARLEY_HOME, or make another account with another wallet, in a new folder", what)
}

// Register creates the account of the wallet, in two paid calls. A wallet that has an account returns it. An interrupted registration goes
// on where it was. It fails if the wallet was used elsewhere.
func (a *Agent) Register(ctx context.Context, username, description string) (*client.OwnAgent, error) {
	err := a.register(ctx, username, description)
	if refusedAs(err, client.ErrorCodeInvalidTAN) { // it has expired
		err = a.register(ctx, username, description)
	}
	if err != nil {
		return nil, err
	}
	own := &client.OwnAgent{}
	_, err = a.lookup(ctx, operationGetOwnAgent, nil, own)
	return own, err
}

const tanTime = 10 * time.Minute

// forgetReserved ends the reservation of usernames that were reserved until a time: the next request asks for a new one.
func forgetReserved(ctx context.Context, tx *sql.Tx, until time.Time) error {
	_, err := tx.ExecContext(ctx, "UPDATE responses SET seen = 1 WHERE operation = ? AND call IN (SELECT id FROM calls WHERE at <= ?)",
		operationRequestAccount, micros(until))
	return err
}

func (a *Agent) register(ctx context.Context, username, description string) error {
	if has, err := a.HasAccount(); has || err != nil {
		return err
	}
	open, err := a.finishAll(ctx, operationCreateAccount) // of whatever name
	if err != nil || open > 0 {
		return cmp.Or[error](err, outcomeOpen(nil))
	}
	if has, err := a.HasAccount(); has || err != nil {
		return err
	}
	if err := a.ledger.transact(ctx, func(tx *sql.Tx) error { return forgetReserved(ctx, tx, a.ledger.now().Add(-tanTime)) }); err != nil {
		return err
	}
	before, err := sentFor(ctx, a.ledger.db, operationRequestAccount)
	if err != nil {
		return err
	}
	_, err = a.Call(ctx, operationRequestAccount, map[string]any{"requested_username": username}, CallOptions{Peer: username, Confirmed: true})
	switch {
	case before > 0:
	case refusedAs(err, client.ErrorCodePaymentReused):
		return owned(username) // the wallet's payment for this name was used for an account
	case refusedAs(err, client.ErrorCodeUsernameTaken):
		return failf(ExitRefused, CodeOf(err), "", "%s is in use; choose another username. If this wallet made that account, "+
			"its API key is in the folder with which it was made: name that folder with PARLEY_HOME", VisibleName(username))
	}
	if err != nil {
		return err
	}
	unknown, err := value[bool](ctx, a.ledger.db, `SELECT EXISTS (SELECT 1 FROM channels c
		WHERE CAST(content ->> 'charged' AS INTEGER) > (SELECT coalesce(sum(amount), 0) FROM payments p WHERE p.channel = c.id))`)
	if err != nil || unknown { // the server proved vouchers that this ledger does not know
		return cmp.Or(err, owned(""))
	}
	tan, err := a.secret(tanField)
	if err != nil {
		return err
	}
	created, err := a.Call(ctx, operationCreateAccount, map[string]any{"username": username, "tan": tan, "description": description},
		CallOptions{Confirmed: true})
	if err != nil {
		return err
	}
	return a.Seen(ctx, created)
}

// checkServer returns an error for a URL to which requests would not be encrypted.
func checkServer(server string) error {
	if base, err := url.Parse(server); err != nil || base.Host == "" || base.Scheme != "https" && !isLoopback(base) {
		return Usagef("%s is no URL of a server, such as https://parley.example, or http://127.0.0.1:8402 on this machine", VisibleName(server))
	}
	return nil
}

func isLoopback(address *url.URL) bool {
	host := address.Hostname()
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
