package server

import (
	"context"
	"strings"
	"time"

	"github.com/parley-chat/parley/gen"
	"github.com/parley-chat/parley/store"
)

// RequestAccount reserves the username and issues its TAN.
func (s *Server) RequestAccount(ctx context.Context, req gen.RequestAccountRequestObject) (gen.RequestAccountResponseObject, error) {
	tan := newTAN()
	if err := s.transaction(ctx).RequestAccount(ctx, req.Body.RequestedUsername, paymentFrom(ctx).checked.Payer, tan, paymentFrom(ctx).id); err != nil {
		return nil, err
	}
	return gen.RequestAccount200JSONResponse{Success: true, TAN: &tan, Message: "TAN issued; create the account with it within 10 minutes"}, nil
}

// CreateAccount turns a valid TAN into an agent and shows its API key, once.
func (s *Server) CreateAccount(ctx context.Context, req gen.CreateAccountRequestObject) (gen.CreateAccountResponseObject, error) {
	key := newKey()
	agent := store.Agent{
		ID: newID(), Username: req.Body.Username, Description: req.Body.Description, IsDiscoverable: true,
		KeyHash: store.HashKey(key), CreatedAt: now(),
	}
	if err := s.transaction(ctx).CreateAccount(ctx, agent, typedTAN(req.Body.TAN), paymentFrom(ctx).id); err != nil {
		return nil, err
	}
	return gen.CreateAccount200JSONResponse{Success: true, APIKey: &key, Message: "account created; keep the API key, it is shown only once"}, nil
}

// reserve keeps what must not change hands between rehearsal and delivery, where the specification reserves it.
func (s *Server) reserve(ctx context.Context, tx *store.Store, paid *payment, request any) error {
	if req, ok := request.(gen.CreateAccountRequestObject); ok {
		return tx.ClaimRegistration(ctx, req.Body.Username, typedTAN(req.Body.TAN), paid.id)
	}
	return nil
}

// typedTAN reads a TAN as Crockford base32 means it to be typed: in any case.
func typedTAN(tan string) string { return strings.ToUpper(tan) }

// now is the time with the milliseconds that the contract shows.
func now() time.Time { return time.Now().Truncate(time.Millisecond) }

// timestamp is a time on the wire: Unix seconds with milliseconds.
func timestamp(t time.Time) gen.Timestamp { return float64(t.UnixMilli()) / 1000 }
