package server

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/store"
)

// RequestAccount reserves the username and issues its TAN.
func (c *change) RequestAccount(ctx context.Context, req gen.RequestAccountRequestObject) (gen.RequestAccountResponseObject, error) {
	name, tan := req.Body.RequestedUsername, c.derived.tan()
	err := c.tx.RequestAccount(ctx, name, c.paid.Payer, c.derived.secret.hashTAN(name, tan), c.paid.ID)
	return gen.RequestAccount200JSONResponse{Success: true, TAN: tan, Message: "TAN issued; create the account with it within 10 minutes"}, err
}

// CreateAccount creates the agent for a valid TAN and returns its API key, once.
func (c *change) CreateAccount(ctx context.Context, req gen.CreateAccountRequestObject) (gen.CreateAccountResponseObject, error) {
	key := c.derived.apiKey()
	agent := store.Agent{
		ID: newID(), Username: req.Body.Username, Description: req.Body.Description, IsDiscoverable: true,
		KeyHash: store.HashKey(key), CreatedAt: c.server.now(),
	}
	err := c.tx.CreateAccount(ctx, agent, c.server.hashesOfTAN(agent.Username, typedTAN(req.Body.TAN)), c.paid.ID)
	return gen.CreateAccount200JSONResponse{Success: true, AgentID: new(AgentID(agent.ID)), APIKey: key,
		Message: "account created; keep the API key, it is shown only once"}, err
}

// reserveRegistration reserves the username and its TAN for the payment when its settlement begins, so that no other
// payment can use them before delivery.
func (s *Server) reserveRegistration(ctx context.Context, tx *store.Tx, paid payment.Paid, request any) error {
	body := request.(gen.CreateAccountRequestObject).Body //nolint:forcetypeassert // the operation's
	return tx.ReserveRegistration(ctx, body.Username, s.hashesOfTAN(body.Username, typedTAN(body.TAN)), paid.ID)
}

// typedTAN normalises a TAN: Crockford base32 ignores case.
func typedTAN(tan string) string { return strings.ToUpper(tan) }

const (
	createAccount = "createAccount" // takes a TAN

	wrongTANsFor  = 10 * time.Minute // a wrong TAN counts so long
	tanTurn       = 3 * time.Second  // a try waits so long for others of the same wallet or address that are being checked
	tanRecordTime = 5 * time.Second  // limits the statement that records the outcome of a try; if it fails, the try counts like a wrong one
	maxTANTurns   = 2                // calls that take a try at the same time
)

// tanTry is the try of a call, which counts against the wallet and the address that make it. It does not count against the username,
// so nobody can use up the tries of another agent.
//
// The limit is checked where a TAN can be guessed: before a payment begins, when it is certain that the wallet can pay, and before a
// payment is redeemed with another request. A settled payment with a correct TAN is always delivered.
type tanTry struct {
	server  *Server
	keys    []string
	taken   bool
	records sync.WaitGroup
}

// take takes a try, unless the call has one.
func (t *tanTry) take(ctx context.Context) error {
	most := t.server.config.Limits.WrongTANs
	for began := time.Now(); !t.taken; {
		err := t.try(ctx, most)
		none, used := errors.AsType[*store.TooManyTANs](err)
		switch {
		case err == nil:
			t.taken = true
			return nil
		case !used:
			return err
		case none.After > 0 || time.Since(began) > tanTurn:
			return tooManyTANs(most).Exceeded(none.After)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// try is TryTAN for few calls at a time: tries of one address wait for each other in the database, each with a connection.
func (t *tanTry) try(ctx context.Context, most int) error {
	select {
	case t.server.tanTurns <- struct{}{}:
		defer func() { <-t.server.tanTurns }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return t.server.store.TryTAN(ctx, t.keys, most, wrongTANsFor)
}

// handled records the outcome of the handler, if that says whether the TAN is wrong.
func (t *tanTry) handled(_ time.Time, err error) {
	if wrong := errors.Is(err, store.ErrInvalidTAN); wrong || err == nil {
		t.over(wrong)
	}
}

// end ends the try.
func (t *tanTry) end() {
	t.over(false)
	t.records.Wait()
}

// over records the outcome of the try. It does not wait, because the handler runs in a transaction that has a connection already.
func (t *tanTry) over(wrong bool) {
	if !t.taken {
		return
	}
	t.taken = false
	t.records.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), tanRecordTime)
		defer cancel()
		if err := t.server.store.EndTANTry(ctx, t.keys, wrong); err != nil {
			t.server.log.WarnContext(ctx, "record the try of a TAN", "error", err)
		}
	})
}

// tooManyTANs is the limit of calls with a wrong TAN.
func tooManyTANs(most int) edge.Policy {
	return edge.Policy{Name: "tan", Quota: most, Window: wrongTANsFor, Whose: "with a wrong TAN",
		Remedy: "send the right TAN; a new TAN does not shorten the wait"}
}
