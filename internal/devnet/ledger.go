package devnet

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-chat/parley/x402/evm"
)

var (
	// errAuthorizationUsed means that an authorization was used or cancelled before.
	errAuthorizationUsed = errors.New("the authorization is used or cancelled")
	// errInsufficientBalance means that an account's balance is less than the amount.
	errInsufficientBalance = errors.New("the balance is too small")
)

// Ledger stores the balances of the play token and the used and cancelled authorizations, like the token contract.
// Addresses and nonces are accepted in any case. It is safe for concurrent use. One lock covers the check, the journal
// and the move, so that at most one of several transfers with the same authorization succeeds.
type Ledger struct {
	mu       sync.Mutex
	balances map[string]uint64     // by lower-case address, in atomic units
	closed   map[authorization]int // the block that used or cancelled it
	records  []record              // all records and empty blocks: index n is block n + 1 (see rpc.go)
	blocks   map[evm.Hash][]int    // of a transaction
	supply   uint64                // all money; limits every balance, so that no sum overflows
	journal  *os.File              // nil if the ledger is in memory only
	failed   error                 // why the ledger accepts no more records
	channels channels
	skew     time.Duration // see Advance
}

// authorization identifies an EIP-3009 authorization. Both fields are in lower case.
type authorization struct{ payer, nonce string }

// OpenLedger opens the ledger in the folder dir. It creates the folder and the ledger if they do not exist. If dir is
// "", the ledger is in memory only. A new ledger gives each of [Accounts] the balance genesisBalance.
//
// Every acknowledged change is in the file dev-ledger.jsonl in the folder. It survives a killed process, but not a
// power failure, because nothing is synced to disk. OpenLedger drops an incomplete last line. Any other damage is an
// error that names the file and the line. Only one process at a time may open a folder.
func OpenLedger(dir string) (*Ledger, error) {
	l := &Ledger{balances: map[string]uint64{}, closed: map[authorization]int{}, blocks: map[evm.Hash][]int{}, channels: newChannels()}
	for _, account := range Accounts() {
		l.supply += genesisBalance
		l.balances[strings.ToLower(account.Address)] = genesisBalance
	}
	if dir == "" {
		return l, nil
	}
	if err := l.openJournal(dir); err != nil {
		return nil, fmt.Errorf("open the dev network's ledger: %w", err)
	}
	return l, nil
}

// Close closes the ledger. Balances can still be read. Changes return an error.
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

// Balance returns the balance of an address in atomic units. It is 0 for an unknown address.
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

// Mint adds new money to an address, in atomic units. It returns an error if all money together would exceed 2^64-1
// units.
func (l *Ledger) Mint(address string, amount uint64) error {
	return l.post(record{Kind: kindMint, To: strings.ToLower(address), Amount: amount})
}

// Transfer moves amount atomic units and marks the authorization (from, nonce) as used. It records transaction with the
// transfer. It does not check signatures and times: see [Facilitator]. It returns errAuthorizationUsed or
// errInsufficientBalance, checked in this order, if the token contract would reject the transfer, and an error if the
// ledger is closed. After an error in writing the journal it is not known whether the
// transfer survives a restart.
func (l *Ledger) Transfer(from, to string, amount uint64, nonce, transaction string) error {
	return l.post(record{
		Kind: kindTransfer, From: strings.ToLower(from), To: strings.ToLower(to), Amount: amount,
		Nonce: strings.ToLower(nonce), Transaction: transaction,
	})
}

// Cancel marks an authorization as cancelled without moving money (EIP-3009 cancelAuthorization). It returns
// errAuthorizationUsed if the authorization is used or cancelled.
func (l *Ledger) Cancel(authorizer, nonce string) error {
	return l.post(record{Kind: kindCancel, From: strings.ToLower(authorizer), Nonce: strings.ToLower(nonce)})
}

// post checks a record, writes it to the journal and applies it. Every acknowledged record is in the journal.
func (l *Ledger) post(r record) error {
	return l.transact(func() (record, error) { return r, nil })
}

// transact is post for a record that depends on the ledger. build runs with the ledger's lock.
func (l *Ledger) transact(build func() (record, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	r, err := build()
	if err != nil {
		return err
	}
	r.Time = l.clock().Unix()
	if err := l.check(r); err != nil {
		return err
	}
	if err := l.write(r); err != nil {
		// The file may contain an incomplete line. A further record after it would make the journal unreadable, so the
		// ledger accepts no more records.
		l.failed = fmt.Errorf("the dev network's ledger stopped: %w", err)
		return l.failed
	}
	l.move(r)
	return nil
}

// Advance moves the clock of the chain and of the facilitator forward, like evm_increaseTime of development nodes. The
// time of blocks that exist stays. A restart ends the advance, but the clock never goes behind the newest block.
func (l *Ledger) Advance(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skew += max(d, 0)
}

// Now returns the time of the chain's clock.
func (l *Ledger) Now() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.clock()
}

// clock is Now. It never goes back, as that of a chain. The caller holds the ledger's lock.
func (l *Ledger) clock() time.Time {
	now := time.Now().Add(l.skew)
	if n := len(l.records); n > 0 && now.Unix() < l.records[n-1].Time {
		return time.Unix(l.records[n-1].Time, 0)
	}
	return now
}

// check returns an error if the token contract would not allow the record.
func (l *Ledger) check(r record) error {
	if !slices.Contains(kinds, r.Kind) {
		return fmt.Errorf("there is no kind of record %q", r.Kind)
	}
	if r.Kind == kindMint {
		if r.Amount > math.MaxUint64-l.supply {
			return fmt.Errorf("minting %d units would make more money than 2^64-1", r.Amount)
		}
		return nil
	}
	if _, closed := l.closed[authorization{r.From, r.Nonce}]; closed {
		return errAuthorizationUsed
	}
	if r.Kind == kindWithdraw { // moves no money
		return nil
	}
	if l.balances[r.From] < r.Amount {
		return errInsufficientBalance
	}
	return nil
}

// move applies a record that passed check.
func (l *Ledger) move(r record) {
	l.mine(r)
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
	case kindDeposit, kindSettle, kindRefund, kindWithdrawn:
		l.balances[r.From] -= r.Amount
		l.balances[r.To] += r.Amount
		if r.Nonce != "" {
			l.closed[authorization{r.From, r.Nonce}] = len(l.records)
		}
	}
	l.channels.apply(r, len(l.records))
}

// mine appends a record as the next block.
func (l *Ledger) mine(r record) {
	l.records = append(l.records, r)
	transaction := r.hash(len(l.records))
	l.blocks[transaction] = append(l.blocks[transaction], len(l.records))
}
