package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

func openLedger(t *testing.T, folder string) *Ledger {
	t.Helper()
	l, err := OpenLedger(folder)
	testkit.NoError(t, err)
	return l
}

// reserve reserves an amount for a new call.
func reserve(t *testing.T, l *Ledger, amount uint64, of intent) error {
	t.Helper()
	of.ID = client.NewIdentifier()
	return l.Reserve(withIntent(t.Context(), of), client.Reservation{ID: of.ID, Price: amount, Amount: amount})
}

// isLimit reports whether an error is the daily limit.
func isLimit(err error) bool { return CodeOf(err) == codeLimit }

// noon is a time in the middle of a UTC day.
var noon = time.Now().UTC().Truncate(day).Add(day / 2)

// TestLimits: the daily limit refuses, a restart forgets nothing, and the next UTC day begins anew. With a limit of 0 nothing is paid but a
// new API key, and one account is paid in addition to the limit.
func TestLimits(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLedger(t, folder)
	for range 33 {
		testkit.NoError(t, reserve(t, l, 30_000, intent{}))
	}
	if err := reserve(t, openLedger(t, folder), 10_001, intent{}); !isLimit(err) {
		t.Errorf("above the limit: %v", err)
	}
	account := intent{Operation: operationCreateAccount, ID: client.NewIdentifier()}
	ctx := withIntent(t.Context(), account)
	testkit.NoError(t, l.Reserve(ctx, client.Reservation{ID: account.ID, Price: 990_000, Amount: 990_000}))
	sign(t, l, account, nonce(1), time.Now().Unix()+60)
	if err := reserve(t, l, 990_000, account); CodeOf(err) != codeAccount {
		t.Errorf("a second account: %v", err)
	}
	testkit.NoError(t, reserve(t, l, 10_000, intent{}))
	testkit.NoError(t, l.SetLimit(t.Context(), 0))
	testkit.NoError(t, reserve(t, l, 2_000, intent{Operation: operationRotateKey}))
	if err := reserve(t, l, 990_000, intent{Operation: operationRequestAccount}); !isLimit(err) {
		t.Errorf("an account with a limit of 0: %v", err)
	}
	testkit.NoError(t, l.SetLimit(t.Context(), DefaultLimit))
	l.now = func() time.Time { return time.Now().Add(day) }
	if err := reserve(t, l, 30_000, intent{}); err != nil {
		t.Errorf("a day later: %v", err)
	}
}

// TestKeys: a key names one request. A lock that cannot be made is not one that another process has.
func TestKeys(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	testkit.NoError(t, errors.Join(l.useKey(t.Context(), "k", "a"), l.useKey(t.Context(), "k", "a"), l.useKey(t.Context(), "j", "b")))
	if err := l.useKey(t.Context(), "k", "b"); CodeOf(err) != "key_used" {
		t.Errorf("another request with a used key: %v", err)
	}
	var nobody *Agent
	f := nobody.Explain(t.Context(), l.busy(t.Context(), "a", fs.ErrPermission))
	if f.Retryable || !strings.Contains(f.Message, "to write its folder") {
		t.Errorf("a folder that cannot be written: %+v", f)
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
				} else if !isLimit(err) {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if reserved.Load() != 33 {
		t.Errorf("%d calls of 0.03 were allowed, want 33 for the limit of 1.00", reserved.Load())
	}
}

// TestReplacedFile: SQLite does not write a file that another program replaced while it is open: nobody would find what it records.
func TestReplacedFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLedger(t, folder)
	testkit.NoError(t, reserve(t, l, 30_000, intent{}))
	path := filepath.Join(folder, stateFile)
	content, err := os.ReadFile(path)
	testkit.NoError(t, errors.Join(err, os.WriteFile(path+".copy", content, 0o600), os.Rename(path+".copy", path)))
	if err := reserve(t, l, 30_000, intent{}); err == nil {
		t.Error("a payment was recorded in a file that was replaced")
	}
	if left, err := openLedger(t, folder).Left(t.Context()); err != nil || left != 970_000 {
		t.Errorf("the day has %d left, %v, want 970000", left, err)
	}
}

// TestDamagedFilePaysNothing: what is not readable could be a payment. Others cannot read the file.
func TestDamagedFilePaysNothing(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, stateFile)
	l := openLedger(t, folder)
	info, err := os.Stat(path)
	if err := errors.Join(err, l.db.Close()); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, want a file for its owner only; %v", info.Mode(), err)
	}
	testkit.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("x"), 8192), 0o600))
	if _, err := OpenLedger(folder); err == nil || !strings.Contains(err.Error(), stateFile) {
		t.Errorf("the error is %v, want one with the file", err)
	}
}

// chain is what the blockchain knows of authorizations, by nonce.
type chain map[string]x402.AuthorizationState

func (chain) Balance(context.Context, string, string) (uint64, error) { return DefaultLimit, nil }

func (c chain) Authorization(_ context.Context, _, _, nonce string, _ time.Time) (x402.AuthorizationState, error) {
	return c[nonce], nil
}

// nonce returns a nonce.
func nonce(n int) string { return fmt.Sprintf("0x%064x", n) }

// sign notes that the last payment of a call is signed.
func sign(t *testing.T, l *Ledger, of intent, number string, validBefore int64) {
	t.Helper()
	signer, err := x402.ParseKeySigner(strings.Repeat("1", 64))
	testkit.NoError(t, err)
	network, _ := x402.LookupNetwork(x402.NetworkBase)
	offer := network.Requirements(1, "0x00000000000000000000000000000000000000aa", 60)
	payload, err := x402.Sign(t.Context(), signer, offer, &x402.ResourceInfo{URL: "http://127.0.0.1"}, nil, time.Now())
	testkit.NoError(t, err)
	payload.Payload.Authorization.Nonce, payload.Payload.Authorization.ValidBefore = number, strconv.FormatInt(validBefore, 10)
	payment, err := x402.EncodePaymentPayload(payload)
	if err == nil {
		err = l.Signed(withIntent(t.Context(), of), client.SignedPayment{Reservation: client.Reservation{ID: of.ID}, Payment: payment})
	}
	testkit.NoError(t, err)
}

// TestRefusedPaymentsCount: what the server says that it did not charge is counted until the chain proves it.
func TestRefusedPaymentsCount(t *testing.T) {
	t.Parallel()
	l := openLedger(t, t.TempDir())
	known := chain{}
	l.chain = known
	for of, state := range map[string]x402.AuthorizationState{
		nonce(1): {Used: true, ChainTime: time.Now()},
		nonce(2): {ChainTime: time.Now()},
		nonce(3): {ChainTime: time.Now().Add(-time.Hour)}, // a chain that is behind
		nonce(4): {Cancelled: true, ChainTime: time.Now()},
	} {
		known[of] = state
		id := client.NewIdentifier()
		testkit.NoError(t, l.Reserve(t.Context(), client.Reservation{ID: id, Price: 10_000, Amount: 10_000}))
		sign(t, l, intent{ID: id}, of, time.Now().Unix()-60)
		testkit.NoError(t, l.close(t.Context(), intent{ID: id}, id, client.Outcome{Status: 402}))
	}
	for range 2 {
		if _, err := l.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := l.Left(t.Context()); err != nil || left != 980_000 {
			t.Errorf("%d left, %v, want 980000: two of four payments were not taken", left, err)
		}
	}
}

// TestPaidAgain: what was signed first for a call that was then paid with another payment is reserved, not spent.
func TestPaidAgain(t *testing.T) {
	t.Parallel()
	l, of := openLedger(t, t.TempDir()), intent{ID: client.NewIdentifier()}
	for i := range 2 {
		testkit.NoError(t, l.Reserve(withIntent(t.Context(), of), client.Reservation{ID: of.ID, Price: 5000, Amount: 5000}))
		sign(t, l, of, nonce(i), 1)
		testkit.NoError(t, l.close(t.Context(), of, of.ID, client.Outcome{Status: 402 - 202*i, Charged: uint64(5000 * i), Body: []byte("{}")}))
	}
	if today, err := l.Today(t.Context()); err != nil || today.Spent != 10_000 || today.Reserved != 5000 {
		t.Errorf("the day is %+v, %v", today, err)
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
	shift := func(by time.Duration) { l.now = func() time.Time { return noon.Add(by) } }
	shift(0)
	for range 20 {
		testkit.NoError(t, reserve(t, l, 30_000, intent{}))
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
		sign(t, l, of, nonce(1), 1)
		testkit.NoError(t, l.close(ctx, of, of.ID, client.Outcome{Status: test.status, Body: []byte(test.body)}))
		if id, err := l.refusedCall(ctx, of.Request); err != nil || id != test.next {
			t.Errorf("after the status %d the next call has the identifier %q, %v, want %q", test.status, id, err, test.next)
		}
	}
}
