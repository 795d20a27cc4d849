package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/x402"
)

func openLedger(t *testing.T, folder string) *Ledger {
	t.Helper()
	l, err := OpenLedger(folder)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// reserve reserves an amount for a new call.
func reserve(t *testing.T, l *Ledger, amount uint64, of intent) error {
	t.Helper()
	of.ID = client.NewIdentifier()
	return l.Reserve(withIntent(t.Context(), of), client.Reservation{ID: of.ID, Price: amount, Amount: amount})
}

func wantLimit(t *testing.T, err error, limit string) {
	t.Helper()
	if over, ok := errors.AsType[*LimitError](err); !ok || over.Limit != limit {
		t.Errorf("the error is %v, want the limit %s", err, limit)
	}
}

// TestLimits: each limit refuses, and a restart forgets nothing.
func TestLimits(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLedger(t, folder)
	wantLimit(t, reserve(t, l, 30_001, intent{}), "per call")
	for range 10 {
		if err := reserve(t, l, 10_000, intent{Operation: pollOperation}); err != nil {
			t.Fatal(err)
		}
	}
	wantLimit(t, reserve(t, l, 1000, intent{Operation: pollOperation}), "polls per day")
	l = openLedger(t, folder)
	wantLimit(t, reserve(t, l, 1000, intent{Operation: pollOperation}), "polls per day")
	for range 30 {
		if err := reserve(t, l, 30_000, intent{}); err != nil {
			t.Fatal(err)
		}
	}
	wantLimit(t, reserve(t, openLedger(t, folder), 1, intent{}), "per day")
	l.now = func() time.Time { return time.Now().Add(day + time.Minute) }
	if err := reserve(t, l, 30_000, intent{}); err != nil {
		t.Errorf("a day later: %v", err)
	}
}

// TestLimitsOfManyProcesses: ledgers that share a folder, as processes do, share the limits.
func TestLimitsOfManyProcesses(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var reserved atomic.Int64
	var running sync.WaitGroup
	for range 4 {
		l := openLedger(t, folder)
		running.Go(func() {
			for range 20 {
				if err := reserve(t, l, 30_000, intent{}); err == nil {
					reserved.Add(1)
				}
			}
		})
	}
	running.Wait()
	if reserved.Load() != 33 {
		t.Errorf("%d calls of 0.03 were allowed, want 33 for the limit of 1.00", reserved.Load())
	}
}

// TestLedgerAfterCrash: a part of a line that a crash left is not an entry, and the next entry replaces it.
func TestLedgerAfterCrash(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := reserve(t, openLedger(t, folder), 30_000, intent{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "ledger.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for length := range len(whole) {
		if err := os.WriteFile(path, append(whole[:len(whole):len(whole)], whole[:length]...), 0o600); err != nil {
			t.Fatal(err)
		}
		l := openLedger(t, folder)
		if err := reserve(t, l, 30_000, intent{}); err != nil {
			t.Fatalf("after %d bytes of a line: %v", length, err)
		}
		if left, err := l.Left(t.Context()); err != nil || left != 940_000 {
			t.Fatalf("after %d bytes of a line: %d left, %v, want 940000", length, left, err)
		}
	}
}

// TestDamagedLedgerPaysNothing: a line that is not readable could be a payment.
func TestDamagedLedgerPaysNothing(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "ledger.jsonl"), []byte("{}\n{\"time\":5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := reserve(t, openLedger(t, folder), 1, intent{}); err == nil || !strings.Contains(err.Error(), "ledger.jsonl at byte 3") {
		t.Errorf("the error is %v, want one with the file and the byte", err)
	}
}

// TestLongLedger: the young entries are found at the end of a long ledger.
func TestLongLedger(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLedger(t, folder)
	l.now = func() time.Time { return time.Now().Add(-clockMargin - 2*day) }
	if err := l.locked(t.Context(), func(add func(entry) error) error {
		return add(entry{Step: stepReserved, Amount: 1, Peer: strings.Repeat("x", 300)})
	}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "ledger.jsonl")
	line, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat(string(line), 5000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := reserve(t, openLedger(t, folder), 30_000, intent{}); err != nil {
			t.Fatal(err)
		}
	}
	l = openLedger(t, folder)
	if left, err := l.Left(t.Context()); err != nil || left != 910_000 {
		t.Errorf("%d left, %v, want 910000", left, err)
	}
	if l.lines.read-3*600 < int64(4000*len(line)) || len(l.entries) != 3 {
		t.Errorf("%d entries are in memory, want the 3 young ones", len(l.entries))
	}
}

// TestFreeze: a frozen wallet pays nothing, whatever was approved.
func TestFreeze(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLedger(t, folder)
	if err := l.Freeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := reserve(t, openLedger(t, folder), 1, intent{}); !errors.Is(err, ErrFrozen) {
		t.Errorf("the error is %v, want ErrFrozen", err)
	}
	if err := l.Unfreeze(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := reserve(t, l, 1, intent{}); err != nil {
		t.Error(err)
	}
}

// TestApproval: an approval lets the call for which it was asked be paid once, and no other.
func TestApproval(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	create := intent{Operation: "createChannel", Request: "a"}
	wantLimit(t, reserve(t, l, 500_000, create), "per call")
	asked, err := l.Ask(t.Context(), "createChannel", "", "a", 500_000)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := l.Ask(t.Context(), "createChannel", "", "a", 500_000); err != nil || again.ID != asked.ID {
		t.Errorf("asked twice, the approvals are %v and %v: %v", asked, again, err)
	}
	create.Approval = asked.ID
	wantLimit(t, reserve(t, l, 500_000, create), "per call")
	if _, err := l.Approve(t.Context(), asked.ID); err != nil {
		t.Fatal(err)
	}
	wantLimit(t, reserve(t, l, 500_001, create), "per call")
	wantLimit(t, reserve(t, l, 500_000, intent{Operation: "createChannel", Request: "b", Approval: asked.ID}), "per call")
	if err := reserve(t, l, 500_000, create); err != nil {
		t.Error(err)
	}
	wantLimit(t, reserve(t, l, 500_000, create), "per call")
	if _, err := l.Approve(t.Context(), asked.ID); !errors.Is(err, ErrNoApproval) {
		t.Errorf("approved twice: %v", err)
	}
	l.now = func() time.Time { return time.Now().Add(approvalTime + time.Second) }
	late, err := l.Ask(t.Context(), "createChannel", "", "c", 500_000)
	if err != nil {
		t.Fatal(err)
	}
	l.now = func() time.Time { return time.Now().Add(2*approvalTime + 2*time.Second) }
	if _, err := l.Approve(t.Context(), late.ID); !errors.Is(err, ErrNoApproval) {
		t.Errorf("approved too late: %v", err)
	}
}

// chain is what the blockchain knows of authorizations, by nonce.
type chain map[string]x402.AuthorizationState

func (c chain) Authorization(_ context.Context, _, _, nonce string, _ time.Time) (x402.AuthorizationState, error) {
	return c[nonce], nil
}

// TestRefusedPaymentsCount: what the server says that it did not charge is counted until the chain proves it.
func TestRefusedPaymentsCount(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	known := chain{}
	for nonce, state := range map[string]x402.AuthorizationState{
		"0x01": {Used: true, ChainTime: time.Now()},
		"0x02": {ChainTime: time.Now()},
		"0x03": {ChainTime: time.Now().Add(-time.Hour)}, // a chain that is behind
		"0x04": {Cancelled: true, ChainTime: time.Now()},
	} {
		known[nonce] = state
		id := client.NewIdentifier()
		if err := l.Reserve(t.Context(), client.Reservation{ID: id, Price: 10_000, Amount: 10_000}); err != nil {
			t.Fatal(err)
		}
		if err := l.locked(t.Context(), func(add func(entry) error) error {
			return errors.Join(add(entry{Step: stepSigned, ID: id, Amount: 10_000, Nonce: nonce, ValidBefore: time.Now().Unix() - 60}),
				add(entry{Step: stepRefused, ID: id, Status: 402}))
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := l.Settle(t.Context(), known, "0x"); err != nil {
			t.Fatal(err)
		}
		if left, err := l.Left(t.Context()); err != nil || left != 980_000 {
			t.Errorf("%d left, %v, want 980000: two of four payments were not taken", left, err)
		}
	}
}

// TestReleaseIsOfItsOwnPayment: a call that was refused, looked up and made again is counted with its second payment for a whole day.
func TestReleaseIsOfItsOwnPayment(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	at := time.Now()
	l.now = func() time.Time { return at }
	of := intent{ID: client.NewIdentifier(), Operation: "x", Request: client.NewIdentifier()}
	pay := func(nonce string, last entry) {
		t.Helper()
		if err := l.Reserve(withIntent(t.Context(), of), client.Reservation{ID: of.ID, Price: 30_000, Amount: 30_000}); err != nil {
			t.Fatal(err)
		}
		if err := l.locked(t.Context(), func(add func(entry) error) error {
			return errors.Join(add(entry{Step: stepSigned, ID: of.ID, Amount: 30_000, Nonce: nonce, ValidBefore: at.Unix() + 60}), add(last))
		}); err != nil {
			t.Fatal(err)
		}
	}
	pay("0x01", entry{Step: stepRefused, ID: of.ID, Request: of.Request})
	at = at.Add(day / 2)
	if settled, err := l.Settle(t.Context(), chain{"0x01": {ChainTime: at}}, "0x"); err != nil || settled != 1 {
		t.Fatalf("%d payments are known not to be taken, %v; want one", settled, err)
	}
	pay("0x02", entry{Step: stepAnswered, ID: of.ID, Charged: 30_000})
	at = at.Add(day/2 + time.Second)
	if left, err := l.Left(t.Context()); err != nil || left != DefaultLimits.PerDay-30_000 {
		t.Errorf("%d left, %v; the second payment is half a day old", left, err)
	}
}

// TestClockGoesBack: payments stay counted when the clock goes back, and after it was wrong for a moment.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLedger(t, folder)
	spend := func() (n int) {
		for reserve(t, l, 30_000, intent{}) == nil {
			n++
		}
		return n
	}
	shift := func(by time.Duration) { l.now = func() time.Time { return time.Now().Add(by) } }
	for range 20 {
		if err := reserve(t, l, 30_000, intent{}); err != nil {
			t.Fatal(err)
		}
	}
	shift(2 * day)
	if _, err := l.Left(t.Context()); err != nil {
		t.Fatal(err)
	}
	shift(-3 * day)
	if n := spend(); n != 13 {
		t.Errorf("%d payments with a clock that went back, want 13", n)
	}
	shift(0)
	if n := spend(); n != 0 {
		t.Errorf("%d payments after the clock was wrong, want none", n)
	}
}

// TestStoredResponseEndsACall: after a refusal the same call keeps its payment identifier, so it cannot be charged twice. The response that
// the server had stored for it, which it does not charge again, ends the call: the same call is a new one then.
func TestStoredResponseEndsACall(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	of := intent{ID: client.NewIdentifier(), Operation: pollOperation, Request: "hash"}
	ctx := withIntent(t.Context(), of)
	for _, test := range []struct {
		status int
		body   string
		next   string
	}{{402, "{}", of.ID}, {200, "{}", ""}, {402, "{}", of.ID}, {409, `{"code":"payment_reused"}`, ""}} {
		if err := l.close(ctx, of, of.ID, client.Outcome{Status: test.status, Body: []byte(test.body)}); err != nil {
			t.Fatal(err)
		}
		if id, err := l.refusedCall(ctx, of.Request); err != nil || id != test.next {
			t.Errorf("after the status %d the next call has the identifier %q, %v, want %q", test.status, id, err, test.next)
		}
	}
}
