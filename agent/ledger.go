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
	stepBalance  = "balance"  // what the blockchain shows in a payment channel; of no call
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
	// Deposit is what the payment locks in the payment channel.
	Deposit uint64 `json:"deposit,omitempty"`
	Channel string `json:"channel,omitempty"` // the id of the payment channel
	// Balance is what the blockchain shows in the channel, and ChainTime when (Unix seconds).
	Balance   uint64 `json:"balance,omitempty"`
	ChainTime int64  `json:"chain_time,omitempty"`
	// Charged is what the server says that it charged.
	Charged     uint64 `json:"charged,omitempty"`
	Scheme      string `json:"scheme,omitempty"`
	Network     string `json:"network,omitempty"`
	Asset       string `json:"asset,omitempty"`
	Payee       string `json:"payee,omitempty"`
	Nonce       string `json:"nonce,omitempty"`        // of an exact payment
	ValidBefore int64  `json:"valid_before,omitempty"` // Unix seconds, of an exact payment or of the deposit
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
	entries []entry // of the last day and of clockMargin before it

	chain   Chain         // may be nil
	network func() string // that the wallet pays on

	spool *spool
	// keep stores the secrets of the response to a call elsewhere, before the response is stored without them.
	keep func(id string, body []byte) error
}

// OpenLedger returns the ledger in a folder, which it creates if it does not exist.
func OpenLedger(folder string) (*Ledger, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	return &Ledger{
		folder: folder, now: time.Now, lines: lines{path: filepath.Join(folder, "ledger.jsonl")}, spool: newSpool(folder),
		keep: func(string, []byte) error { return nil },
	}, nil
}

// locked runs a function while no other process changes the ledger or its limits. The entries are up to date.
func (l *Ledger) locked(ctx context.Context, run func(add func(entry) error) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.locked(ctx, func(file *os.File) error {
		since := l.now().Add(-day - clockMargin)
		if !l.opened {
			if err := l.lines.skip(file, func(line []byte) bool { return older(line, since) }); err != nil {
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
			e.Time = l.time()
			if err := l.lines.add(file, e); err != nil {
				return fmt.Errorf("write the ledger: %w", err)
			}
			l.entries = append(l.entries, e)
			return nil
		})
	})
}

// clockMargin is how far the clock may be wrong for a while without payments being forgotten.
const clockMargin = 7 * day

// time returns the time of a new entry. It is not before that of the last one: a clock that went back counts payments longer.
func (l *Ledger) time() time.Time {
	now := l.now().UTC()
	if len(l.entries) == 0 {
		return now
	}
	if last := l.entries[len(l.entries)-1].Time; last.After(now) && last.Before(now.Add(clockMargin)) {
		return last
	}
	return now
}

// older reports whether a line of the ledger is from before a time. A line that is not readable is not.
func older(line []byte, than time.Time) bool {
	var e entry
	return json.Unmarshal(line, &e) == nil && e.Time.Before(than)
}

// exposure is a reservation and what became of it.
type exposure struct {
	entry

	nonce    string // of a signed exact payment
	released bool   // nothing can be taken any more
	later    bool   // another payment of the same call came after it
}

// exposures returns the reservations of the entries, in their order. The caller has locked the ledger.
func (l *Ledger) exposures() (all []*exposure) {
	last, signed := map[string]*exposure{}, map[string]*exposure{} // by call, by nonce
	for _, e := range l.entries {
		x := last[e.ID]
		switch {
		case e.Step == stepReserved:
			if x != nil {
				x.later = true
			}
			x = &exposure{entry: e}
			last[e.ID], all = x, append(all, x)
		case e.Step == stepSigned && e.Nonce == "" && x != nil && x.Deposit > 0:
			x.ValidBefore = e.ValidBefore
		case e.Step == stepSigned && e.Nonce != "" && x != nil:
			x.nonce, x.ValidBefore, signed[e.Nonce] = e.Nonce, e.ValidBefore, x
		case e.Step == stepReleased && e.Nonce != "":
			if x := signed[e.Nonce]; x != nil { // else it is not counted any more
				x.released = true
			}
		case e.Step == stepReleased && x != nil && x.nonce == "": // it was not signed
			x.released = true
		}
	}
	return all
}

// usage is what counts against the limits of the last day.
type usage struct{ all, polls, deposits uint64 }

// counted returns what counts against the limits. What a person approved is paid in addition to the limits.
func (l *Ledger) counted() (u usage) {
	since := l.now().Add(-day)
	for _, x := range l.exposures() {
		if x.released || x.Time.Before(since) || x.Approval != "" {
			continue
		}
		u.all += x.Amount
		if isPoll(x.Operation) {
			u.polls += x.Amount
		}
	}
	u.deposits = l.countedDeposits(since)
	return u
}

// approvedAmount returns what can be taken with an approval, and whether a payment has used it.
func (l *Ledger) approvedAmount(id string) (amount uint64, used bool) {
	for _, x := range l.exposures() {
		if x.Approval == id && !x.released {
			amount, used = amount+x.Amount, true
		}
	}
	return amount, used
}
