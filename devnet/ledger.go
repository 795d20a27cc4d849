package devnet

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"time"
)

var (
	// ErrAuthorizationUsed says that an authorization has moved its money before, or was cancelled.
	ErrAuthorizationUsed = errors.New("the authorization is used or cancelled")
	// ErrInsufficientBalance says that an account has less than it should pay.
	ErrInsufficientBalance = errors.New("the balance is too small")
)

// Ledger holds the balances of the play token and which authorizations are used or cancelled, as the token contract
// does. Addresses and nonces may be given in any case. It is safe for concurrent use: one lock covers the check, the
// journal and the move, so that of any number of transfers by one authorization one succeeds.
type Ledger struct {
	mu       sync.Mutex
	balances map[string]uint64     // by lower-case address, in atomic units
	closed   map[authorization]int // the block that used or cancelled it
	records  []record              // all that happened since the start: number n is block n + 1 (see rpc.go)
	supply   uint64                // bounds every balance, so that no sum overflows
	journal  *os.File              // nil if the ledger lives in memory only
	failed   error                 // why nothing can be written any more
}

// authorization identifies an EIP-3009 authorization; both in lower case.
type authorization struct{ payer, nonce string }

// OpenLedger opens the ledger in the folder dir and makes both if they are not there; "" keeps it in memory only. A
// new ledger gives each of [Accounts] its [GenesisBalance]. What the ledger has answered is in the folder's file
// dev-ledger.jsonl and survives a killed process (not a power failure: nothing is synced to disk). A last line that
// was torn by that is dropped; any other damage is an error naming file and line. One process at a time may have a
// folder open.
func OpenLedger(dir string) (*Ledger, error) {
	l := &Ledger{balances: map[string]uint64{}, closed: map[authorization]int{}}
	for _, account := range Accounts() {
		l.supply += GenesisBalance
		l.balances[strings.ToLower(account.Address)] = GenesisBalance
	}
	if dir == "" {
		return l, nil
	}
	if err := l.openJournal(dir); err != nil {
		return nil, fmt.Errorf("open the dev network's ledger: %w", err)
	}
	return l, nil
}

// Close ends the ledger: balances can still be read, nothing can be moved.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = errors.New("the ledger is closed")
	if l.journal == nil {
		return nil
	}
	file := l.journal
	l.journal = nil
	return file.Close()
}

// Balance returns what an address has, in atomic units; 0 for one that was never heard of.
func (l *Ledger) Balance(address string) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.balances[strings.ToLower(address)]
}

// Used reports whether an authorization is used or cancelled (EIP-3009 authorizationState).
func (l *Ledger) Used(payer, nonce string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, closed := l.closed[authorization{strings.ToLower(payer), strings.ToLower(nonce)}]
	return closed
}

// Mint gives an address new money, in atomic units. It fails if all money together would exceed 2^64-1 units.
func (l *Ledger) Mint(address string, amount uint64) error {
	return l.post(record{Kind: kindMint, To: strings.ToLower(address), Amount: amount})
}

// Transfer moves amount atomic units and uses up the authorization (from, nonce); transaction is recorded with it.
// Signatures and times are not looked at: that is [Facilitator]. It returns [ErrAuthorizationUsed] or
// [ErrInsufficientBalance], in this order, if the token contract would refuse; any other error means that it is unknown
// whether the transfer survives a restart.
func (l *Ledger) Transfer(from, to string, amount uint64, nonce, transaction string) error {
	return l.post(record{
		Kind: kindTransfer, From: strings.ToLower(from), To: strings.ToLower(to), Amount: amount,
		Nonce: strings.ToLower(nonce), Transaction: transaction,
	})
}

// Cancel uses up an authorization without moving anything (EIP-3009 cancelAuthorization). It returns
// [ErrAuthorizationUsed] if that is so already.
func (l *Ledger) Cancel(authorizer, nonce string) error {
	return l.post(record{Kind: kindCancel, From: strings.ToLower(authorizer), Nonce: strings.ToLower(nonce)})
}

// post checks, writes and then applies a record: what was answered is always in the journal.
func (l *Ledger) post(r record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	if err := l.check(r); err != nil {
		return err
	}
	r.Time = time.Now().Unix()
	if err := l.write(r); err != nil {
		// Half a line may be in the file. Anything after it would turn a torn end into damage in the middle.
		l.failed = fmt.Errorf("the dev network's ledger stopped: %w", err)
		return l.failed
	}
	l.move(r)
	return nil
}

// check says whether the token contract would allow the record.
func (l *Ledger) check(r record) error {
	if err := r.checkForm(); err != nil {
		return err
	}
	if r.Kind == kindMint {
		if r.Amount > math.MaxUint64-l.supply {
			return fmt.Errorf("minting %d units would make more money than 2^64-1", r.Amount)
		}
		return nil
	}
	if _, closed := l.closed[authorization{r.From, r.Nonce}]; closed {
		return ErrAuthorizationUsed
	}
	if l.balances[r.From] < r.Amount {
		return ErrInsufficientBalance
	}
	return nil
}

// move applies a record that passed check.
func (l *Ledger) move(r record) {
	// Time never goes back on a chain; a clock may, and a record of an older journal has none.
	if n := len(l.records); n > 0 {
		r.Time = max(r.Time, l.records[n-1].Time)
	}
	l.records = append(l.records, r)
	switch r.Kind {
	case kindMint:
		l.supply += r.Amount
		l.balances[r.To] += r.Amount
	case kindTransfer:
		l.balances[r.From] -= r.Amount
		l.balances[r.To] += r.Amount
		l.closed[authorization{r.From, r.Nonce}] = len(l.records)
	case kindCancel:
		l.closed[authorization{r.From, r.Nonce}] = len(l.records)
	}
}
