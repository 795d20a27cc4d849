package agent

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/parley-chat/parley/client"
)

// The responses that were paid for are kept, without API keys and TANs. So a crash or a full context window loses nothing, and what is
// there need not be paid again.

// responses returns the stored responses that a condition names, the oldest first.
func (l *Ledger) responses(ctx context.Context, where string, arguments ...any) ([]*Result, error) {
	return collect(ctx, l.db, func(row *sql.Rows, into **Result) error {
		var r Result
		var body string
		err := row.Scan(&r.id, &r.Operation, &r.Charged, &body)
		r.Body, *into = json.RawMessage(body), &r
		return err
	}, "SELECT call, operation, charged, body FROM responses WHERE "+where, arguments...)
}

// shown returns the objects with a value in a field that lists of a name have shown, the newest first. A server that lies sends anything.
func (l *Ledger) shown(ctx context.Context, list, field, is string) ([]object, error) {
	return collect(ctx, l.db, scanJSON[object], `SELECT one.value FROM responses, json_each(body, '$.' || ?) one
		WHERE CASE one.type WHEN 'object' THEN one.value ->> ? END = ? ORDER BY number DESC`, list, field, is)
}

// Own returns the account as it was seen last, or nil if it was never seen. It costs nothing.
func (a *Agent) Own(ctx context.Context) (*client.OwnAgent, error) {
	found, err := a.ledger.responses(ctx, "operation = ? ORDER BY number DESC LIMIT 1", operationGetOwnAgent)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	var own client.OwnAgent
	if json.Unmarshal(found[0].Body, &own) != nil {
		return nil, nil //nolint:nilnil,nilerr // of another version: not known
	}
	return &own, nil
}

// elsewhere returns a response to a request that need not be paid again, or nil: one that never reached its caller, of the last day (what
// shows a state: of the last minute), or one that another command got after a time.
func (l *Ledger) elsewhere(ctx context.Context, of intent) (*Result, error) {
	command, kept := commandOf(ctx), day
	if strings.HasPrefix(of.Operation, "get") {
		kept = lookupTime
	}
	found, err := l.responses(ctx, `request = ? AND (NOT seen AND at >= ? OR at >= ? AND call NOT IN (SELECT value FROM json_each(?)))
		ORDER BY number DESC LIMIT 1`, of.Request, micros(time.Now().Add(-kept)), micros(of.Since), command.had())
	if err != nil || len(found) == 0 {
		return nil, err
	}
	found[0].Earlier = true
	command.made(found[0].id)
	return found[0], nil
}

// Decode reads a response. If it is not as the contract says, such as a page of a proxy, that is a failure, and the response counts as
// seen: otherwise the same call would return it again for a day.
func (a *Agent) Decode(ctx context.Context, result *Result, into any) error {
	if json.Unmarshal(result.Body, into) == nil {
		return nil
	}
	if err := a.Seen(context.WithoutCancel(ctx), result); err != nil {
		return err
	}
	f := failf(ExitError, "bad_response", "", "the server's response is not as the contract says; it counts as paid (%s USD), and the same "+
		"call made again is a new call", USD(result.Charged))
	f.Charged = new(result.Charged > 0)
	return f
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
			delete(object, secret)
			delete(object, "message") // it says to keep the secret
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("store the response: %w", err)
	}
	return text, nil
}
