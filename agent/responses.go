package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"time"
)

// PaidResponse is a response of the spool, without API keys and TANs.
type PaidResponse struct {
	Time      time.Time
	Operation string
	// Peer is that of the call's [CallOptions].
	Peer string
	Body json.RawMessage
}

// Responses returns the successful responses to operations that are in the spool, the oldest first. They cost nothing.
func (a *Agent) Responses(ctx context.Context, operations ...string) (responses []PaidResponse, err error) {
	all := lines{path: a.ledger.spool.lines.path}
	err = all.locked(ctx, func(file *os.File) error {
		return all.next(file, func(line []byte) error {
			var r paidResponse
			if err := json.Unmarshal(line, &r); err != nil {
				return err
			}
			if r.Status == http.StatusOK && slices.Contains(operations, r.Operation) {
				responses = append(responses, PaidResponse{r.Time, r.Operation, r.Peer, r.Body})
			}
			return nil
		})
	})
	return responses, err
}
