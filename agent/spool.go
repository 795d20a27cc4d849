package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/parley-chat/parley/client"
)

// spool keeps the responses that were paid for, without API keys and TANs. So a crash or a full context window loses nothing, and
// what is there need not be paid again. Several processes may use it at the same time.
type spool struct {
	mu      sync.Mutex
	lines   lines
	opened  bool
	waiting map[string]paidResponse // the responses of the last day that did not reach the caller
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
	Charged   uint64          `json:"charged,omitempty"` // atomic units
	// Seen is true in a line that says only that the response with the ID reached the caller.
	Seen bool `json:"seen,omitempty"`
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
	return s.add(ctx, paidResponse{
		Time: time.Now().UTC(), ID: of.ID, Operation: of.Operation, Peer: of.Peer, Request: of.Request, Status: outcome.Status,
		Body: body, Charged: outcome.Charged,
	})
}

func (s *spool) add(ctx context.Context, line paidResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines.locked(ctx, func(file *os.File) error {
		if err := s.read(file); err != nil {
			return err
		}
		if err := s.lines.add(file, line); err != nil {
			return err
		}
		s.note(line)
		return nil
	})
}

// read notes the lines that other processes have added, at first those of the last day.
func (s *spool) read(file *os.File) error {
	if !s.opened {
		since := time.Now().Add(-day)
		if err := s.lines.skip(file, func(line []byte) bool {
			var response paidResponse
			return json.Unmarshal(line, &response) == nil && response.Time.Before(since)
		}); err != nil {
			return err
		}
		s.opened, s.waiting = true, map[string]paidResponse{}
	}
	return s.lines.next(file, func(line []byte) error {
		var response paidResponse
		if err := json.Unmarshal(line, &response); err != nil {
			return err
		}
		s.note(response)
		return nil
	})
}

func (s *spool) note(response paidResponse) {
	switch {
	case response.Seen:
		delete(s.waiting, response.ID)
	case response.Status == http.StatusOK: // a refusal is not worth repeating
		s.waiting[response.ID] = response
	}
}

// seen notes that a response reached the caller, so that the same call made again is a new one.
func (s *spool) seen(ctx context.Context, id string) error {
	return s.add(ctx, paidResponse{Time: time.Now().UTC(), ID: id, Seen: true})
}

// unseen returns the response to a request that never reached the caller, or nil.
func (s *spool) unseen(ctx context.Context, request string) (found *Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.lines.locked(ctx, func(file *os.File) error {
		if err := s.read(file); err != nil {
			return err
		}
		for _, response := range s.waiting {
			if response.Request == request {
				found = &Result{
					Operation: response.Operation, Status: response.Status, Body: response.Body, Charged: response.Charged, Earlier: true, id: response.ID,
				}
			}
		}
		return nil
	})
	return found, err
}

// stored returns the latest responses to an operation, the oldest first.
func (s *spool) stored(ctx context.Context, operation string, limit int) (bodies []json.RawMessage, err error) {
	all := lines{path: s.lines.path}
	err = all.locked(ctx, func(file *os.File) error {
		return all.next(file, func(line []byte) error {
			var response paidResponse
			if err := json.Unmarshal(line, &response); err != nil {
				return err
			}
			if response.Operation == operation && response.Status == http.StatusOK {
				bodies = append(bodies, response.Body)
			}
			return nil
		})
	})
	return bodies[max(0, len(bodies)-limit):], err
}

// The fields of responses that the spool does not keep.
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
