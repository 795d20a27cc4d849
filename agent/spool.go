package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/parley-chat/parley/client"
)

// spool keeps the responses that were paid for, without API keys and TANs. So a crash or a full context window loses nothing, and
// what is there need not be paid again. Several processes may use it at the same time.
type spool struct {
	mu    sync.Mutex
	lines lines
}

// paidResponse is a line of the spool.
type paidResponse struct {
	Time      time.Time       `json:"time"`
	ID        string          `json:"id"`
	Operation string          `json:"operation"`
	Peer      string          `json:"peer,omitempty"`
	Request   string          `json:"request"` // the hash of the request
	Status    int             `json:"status"`
	Body      json.RawMessage `json:"body"`
}

func newSpool(folder string) *spool {
	return &spool{lines: lines{path: filepath.Join(folder, "spool.jsonl")}}
}

// store appends a response.
func (s *spool) store(ctx context.Context, of intent, outcome client.Outcome) error {
	body, err := withoutSecrets(outcome.Body)
	if err != nil {
		return err
	}
	line := paidResponse{time.Now().UTC(), of.ID, of.Operation, of.Peer, of.Request, outcome.Status, body}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.locked(ctx, func(file *os.File) error {
		if err := s.lines.toEnd(file); err != nil {
			return err
		}
		return s.lines.add(file, line)
	})
}

// secretFields are the fields of responses that the spool does not keep.
var secretFields = []string{"api_key", "tan"}

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
