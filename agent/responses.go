package agent

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/parley-chat/parley/client"
)

// The responses that were paid for are kept, without API keys and TANs. So a crash or a full context window loses nothing, and what is
// there need not be paid again.

// PaidResponse is a successful response that was paid for, without API keys and TANs.
type PaidResponse struct {
	Time      time.Time
	Operation string
	// Peer comes from the call's [CallOptions].
	Peer string
	Body json.RawMessage

	id      string
	charged uint64
}

// responses returns the stored responses that a condition names, the oldest first.
func (l *Ledger) responses(ctx context.Context, where string, arguments ...any) ([]PaidResponse, error) {
	return collect(ctx, l.db, func(row *sql.Rows, r *PaidResponse) error {
		var at int64
		var body string
		err := row.Scan(&at, &r.id, &r.Operation, &r.Peer, &r.charged, &body)
		r.Time, r.Body = fromMicros(at), json.RawMessage(body)
		return err
	}, "SELECT at, call, operation, peer, charged, body FROM responses WHERE "+where, arguments...)
}

// Responses returns the successful responses to operations that are stored, the oldest first. They cost nothing.
func (a *Agent) Responses(ctx context.Context, operations ...string) ([]PaidResponse, error) {
	names, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	return a.ledger.responses(ctx, "operation IN (SELECT value FROM json_each(?)) ORDER BY number", string(names))
}

// Stored returns the latest responses to an operation that are stored, at most limit, the oldest first. They cost nothing.
func (a *Agent) Stored(ctx context.Context, operation string, limit int) (bodies []json.RawMessage, err error) {
	latest, err := a.ledger.responses(ctx, "operation = ? ORDER BY number DESC LIMIT ?", operation, limit)
	for _, response := range slices.Backward(latest) {
		bodies = append(bodies, response.Body)
	}
	return bodies, err
}

// Had returns the latest response to an operation that the command of ctx has, or nil: the look-up of a name may be the answer already.
func (a *Agent) Had(ctx context.Context, operation string) (*Result, error) {
	found, err := a.ledger.responses(ctx, "operation = ? AND call IN (SELECT value FROM json_each(?)) ORDER BY number DESC LIMIT 1",
		operation, commandOf(ctx).had())
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0].result(), nil
}

// Own returns the account as it was seen last, or nil if it was never seen. It costs nothing.
func (a *Agent) Own(ctx context.Context) (*client.OwnAgent, error) {
	bodies, err := a.Stored(ctx, operationGetOwnAgent, 1)
	if err != nil || len(bodies) == 0 {
		return nil, err
	}
	var own client.OwnAgent
	if json.Unmarshal(bodies[0], &own) != nil {
		return nil, nil //nolint:nilnil,nilerr // of another version: not known
	}
	return &own, nil
}

// elsewhere returns a response to a request that need not be paid again, or nil: one that never reached its caller, of the last day, or one
// that another command got after a time.
func (l *Ledger) elsewhere(ctx context.Context, request string, since time.Time) (*Result, error) {
	command := commandOf(ctx)
	found, err := l.responses(ctx, `request = ? AND (NOT seen AND at >= ? OR at >= ? AND call NOT IN (SELECT value FROM json_each(?)))
		ORDER BY number DESC LIMIT 1`, request, micros(time.Now().Add(-day)), micros(since), command.had())
	if err != nil || len(found) == 0 {
		return nil, err
	}
	charged, err := value[uint64](ctx, l.db, "UPDATE calls SET untold = 0 WHERE id = ? AND untold RETURNING charged", found[0].id)
	if err != nil {
		return nil, err
	}
	command.charged.Add(charged)
	command.made(found[0].id)
	result := found[0].result()
	result.Earlier = true
	return result, nil
}

func (r PaidResponse) result() *Result {
	return &Result{Operation: r.Operation, Status: http.StatusOK, Body: r.Body, Charged: r.charged, id: r.id}
}

// The fields of responses that are not kept with them.
const (
	apiKeyField = "api_key"
	tanField    = "tan"
)

var secretFields = []string{apiKeyField, tanField}

// withoutSecrets returns a response without its secrets. What is not an object becomes a JSON string.
func withoutSecrets(body []byte) (json.RawMessage, error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return json.Marshal(string(body))
	}
	for _, secret := range secretFields {
		if _, there := object[secret]; there {
			object[secret] = json.RawMessage(`"stored elsewhere"`)
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("store the response: %w", err)
	}
	return text, nil
}
