package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// The steps of a payment in the ledger. A call can have several payments, one after another.
const (
	stepReserved = "reserved" // counted against the limits; nothing is signed yet
	stepSigned   = "signed"   // signed and stored; from here on the server may have it
	stepAnswered = "answered" // the server's response is stored
	stepRefused  = "refused"  // the server says that it charged nothing; counted until it is certain
	stepReleased = "released" // nothing can be taken any more; not counted
)

// day is the period of the daily limits.
const day = 24 * time.Hour

// entry is a line of the ledger.
type entry struct {
	Time time.Time `json:"time"`
	Step string    `json:"step"`
	// ID is the payment identifier of the call.
	ID        string `json:"id"`
	Operation string `json:"operation,omitempty"`
	// Request is the hash of a request that was refused.
	Request string `json:"request,omitempty"`
	Peer    string `json:"peer,omitempty"`
	// Price is what the call costs; Amount is by how much the payment raises what the payee can take. Both are in atomic units.
	Price  uint64 `json:"price,omitempty"`
	Amount uint64 `json:"amount,omitempty"`
	// Charged is what the server says that it charged.
	Charged     uint64 `json:"charged,omitempty"`
	Scheme      string `json:"scheme,omitempty"`
	Network     string `json:"network,omitempty"`
	Asset       string `json:"asset,omitempty"`
	Payee       string `json:"payee,omitempty"`
	Nonce       string `json:"nonce,omitempty"`        // of an exact payment
	ValidBefore int64  `json:"valid_before,omitempty"` // Unix seconds, of an exact payment
	Status      int    `json:"status,omitempty"`
	Code        string `json:"code,omitempty"`
	Transaction string `json:"transaction,omitempty"`
	// Approval is the approval that a payment above the limits used.
	Approval string `json:"approval,omitempty"`
}

// Ledger records every payment of a wallet before it is signed, and limits what they may cost together. Several processes may use
// it at the same time; a restart forgets nothing.
//
// It counts a payment from before it is signed until the payee cannot take it any more, whatever the server says. So a server that
// lies cannot take more than the limits.
type Ledger struct {
	folder string
	now    func() time.Time

	mu      sync.Mutex // of this process; the lock of the file is that of all
	lines   lines
	opened  bool
	entries []entry // of the last day

	spool *spool
	// keep stores the secrets of a response elsewhere, before the response is stored without them.
	keep func(body []byte) error
}

// OpenLedger returns the ledger in a folder, which it creates if it does not exist.
func OpenLedger(folder string) (*Ledger, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	return &Ledger{
		folder: folder, now: time.Now, lines: lines{path: filepath.Join(folder, "ledger.jsonl")}, spool: newSpool(folder),
		keep: func([]byte) error { return nil },
	}, nil
}

// locked runs a function while no other process changes the ledger or its limits. The entries of the last day are up to date.
func (l *Ledger) locked(ctx context.Context, run func(add func(entry) error) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.locked(ctx, func(file *os.File) error {
		since := l.now().Add(-day)
		if !l.opened {
			if err := l.lines.skip(file, func(line []byte) bool { return older(line, since.Add(-clockMargin)) }); err != nil {
				return err
			}
		}
		if err := l.lines.next(file, func(line []byte) error {
			var e entry
			if err := json.Unmarshal(line, &e); err != nil {
				return err
			}
			l.entries = append(l.entries, e)
			return nil
		}); err != nil {
			return err
		}
		l.opened = true
		l.entries = slices.DeleteFunc(l.entries, func(e entry) bool { return e.Time.Before(since) })
		return run(func(e entry) error {
			e.Time = l.now().UTC()
			if err := l.lines.add(file, e); err != nil {
				return fmt.Errorf("write the ledger: %w", err)
			}
			l.entries = append(l.entries, e)
			return nil
		})
	})
}

// clockMargin is how far the clock may go back between two entries.
const clockMargin = time.Hour

// older tells whether a line of the ledger is from before a time. A line that is not readable is not.
func older(line []byte, than time.Time) bool {
	var e entry
	return json.Unmarshal(line, &e) == nil && e.Time.Before(than)
}

// counted returns what counts against the limits of the last day: all payments, and of those the polls. What a person approved is
// paid in addition to the limits, once: a second payment with the same approval counts.
func (l *Ledger) counted() (all, polls uint64) {
	approved := map[string]uint64{}
	released := map[string]uint64{}
	for _, e := range l.entries {
		if e.Step == stepReleased {
			released[e.ID] += e.Amount
		}
	}
	for _, e := range l.entries {
		if e.Step != stepReserved {
			continue
		}
		free := min(e.Amount, released[e.ID])
		released[e.ID] -= free
		amount := e.Amount - free
		if e.Approval != "" {
			if _, known := approved[e.Approval]; !known {
				approved[e.Approval] = e.Price
			}
			covered := min(amount, approved[e.Approval])
			approved[e.Approval] -= covered
			amount -= covered
		}
		all += amount
		if isPoll(e.Operation) {
			polls += amount
		}
	}
	return all, polls
}
