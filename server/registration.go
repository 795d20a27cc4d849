package server

import (
	"context"
	"strings"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/store"
)

// RequestAccount reserves the username and issues its TAN.
func (c *change) RequestAccount(ctx context.Context, req gen.RequestAccountRequestObject) (gen.RequestAccountResponseObject, error) {
	tan := newTAN()
	name := req.Body.RequestedUsername
	err := c.tx.RequestAccount(ctx, name, c.paid.Payer, c.server.payments.HashTAN(name, tan)[0], c.paid.ID)
	return gen.RequestAccount200JSONResponse{Success: true, TAN: tan, Message: "TAN issued; create the account with it within 10 minutes"}, err
}

// CreateAccount creates the agent for a valid TAN and returns its API key, once.
func (c *change) CreateAccount(ctx context.Context, req gen.CreateAccountRequestObject) (gen.CreateAccountResponseObject, error) {
	key := newKey()
	agent := store.Agent{
		ID: newID(), Username: req.Body.Username, Description: req.Body.Description, IsDiscoverable: true,
		KeyHash: store.HashKey(key), CreatedAt: c.server.now(),
	}
	err := c.tx.CreateAccount(ctx, agent, c.server.payments.HashTAN(agent.Username, typedTAN(req.Body.TAN)), c.paid.ID)
	return gen.CreateAccount200JSONResponse{Success: true, APIKey: key, Message: "account created; keep the API key, it is shown only once"}, err
}

// reserveRegistration reserves the username and its TAN for the payment when its settlement begins, so that no other
// payment can use them before delivery.
func (s *Server) reserveRegistration(ctx context.Context, tx *store.Tx, paid payment.Paid, request any) error {
	body := request.(gen.CreateAccountRequestObject).Body //nolint:forcetypeassert // the operation's
	return tx.ReserveRegistration(ctx, body.Username, s.payments.HashTAN(body.Username, typedTAN(body.TAN)), paid.ID)
}

// typedTAN normalises a TAN: Crockford base32 ignores case.
func typedTAN(tan string) string { return strings.ToUpper(tan) }
