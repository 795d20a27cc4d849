package payment

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// TestWaitingResponsesHaveABudget: the response of a read is kept until it is settled, unless too many wait; when they end there is room.
func TestWaitingResponsesHaveABudget(t *testing.T) {
	t.Parallel()
	s := newAdmission()
	long, short := store.Response{Body: make([]byte, maxWaiting)}, store.Response{Body: []byte("x")}
	if !s.keep(long) {
		t.Fatalf("%d bytes are not kept", len(long.Body))
	}
	if s.keep(short) {
		t.Error("a further response is kept")
	}
	s.forget(long)
	if !s.keep(short) {
		t.Error("when the first has ended, there is no room for another")
	}
}

// TestStrangersShareLittleRoom: dry runs for wallets that have not paid lately use up their own room, and not the room of payers.
func TestStrangersShareLittleRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newAdmission()
		admitted := func(stranger bool) (n int) {
			for ; n < 100; n++ {
				by := Checked{Checked: x402.Checked{Payer: fmt.Sprint("wallet ", n)}}
				if _, err := s.enter(t.Context(), &Attempt{Operation: &Operation{}, Checked: by}, stranger); err != nil {
					break
				}
			}
			return n
		}
		if n := admitted(true); n != strangerRoom {
			t.Errorf("%d dry runs of strangers are admitted, want %d", n, strangerRoom)
		}
		if n := admitted(false); n != 100 {
			t.Errorf("then %d of payers, want all", n)
		}
	})
}

// TestCallsOfAnAccountAreBounded: an account has calls of a bounded weight at work, however many wallets and payment channels pay for
// them. Other accounts do not wait for them.
func TestCallsOfAnAccountAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, account := newAdmission(), &Caller{Account: uuid.New()}
		call := func(n, bytes int) *Attempt {
			return &Attempt{Operation: &Operation{}, Caller: account, request: make([]byte, bytes),
				Checked: Checked{Checked: x402.Checked{Payer: fmt.Sprint("wallet ", n)}}}
		}
		search := call(0, 0)
		search.Operation = &Operation{Search: true}
		leave, err := s.enter(t.Context(), search, false)
		testkit.NoError(t, err)
		if _, err := s.enter(t.Context(), call(0, 0), false); err == nil {
			t.Error("another call is at work beside a search")
		}
		leave()
		for _, test := range []struct{ bytes, want int }{{80 << 10, 1}, {1 << 20, 1}, {0, ownRoom}} {
			var all []func()
			for {
				leave, err := s.enter(t.Context(), call(len(all), test.bytes), false)
				if err != nil {
					break
				}
				all = append(all, leave)
			}
			if len(all) != test.want {
				t.Errorf("%d calls with %d bytes are at work, want %d", len(all), test.bytes, test.want)
			}
			for _, leave := range all {
				if test.bytes > 0 { // the short ones stay
					leave()
				}
			}
		}
		other := &Attempt{Operation: &Operation{}, Caller: &Caller{Account: uuid.New()}}
		if _, err := s.enter(t.Context(), other, false); err != nil {
			t.Errorf("another account: %v", err)
		}
	})
}

// TestTransactionsTakeTurns: of the transactions that lock one conversation, whoever needs them, one is at work, and of those of an account
// two.
func TestTransactionsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, busy := newAdmission(), uuid.New()
		begin := func(account uuid.UUID, conversation string) (end func(), err error) {
			call := &Call{Attempt: &Attempt{Operation: &Operation{Transacted: true}, Caller: &Caller{Account: account}},
				Locks: func([]byte) string { return conversation }}
			return s.transaction(t.Context(), call)
		}
		end, err := begin(uuid.New(), "channel_1")
		testkit.NoError(t, err)
		if _, err := begin(uuid.New(), "channel_1"); err == nil {
			t.Error("two transactions of one conversation are at work")
		}
		end()
		for _, test := range []struct {
			account      uuid.UUID
			conversation string
			ok           bool
		}{{uuid.New(), "channel_1", true}, {busy, "", true}, {busy, "", true}, {busy, "", false}, {uuid.New(), "", true}} {
			if _, err := begin(test.account, test.conversation); (err == nil) != test.ok {
				t.Errorf("a transaction of %v on %q: %v", test.account, test.conversation, err)
			}
		}
	})
}

// TestLongPagesTakeTurns: a page is read as a short one first. Long pages wait for their turn: few are at work, one of an account, and
// short pages wait for none.
func TestLongPagesTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, end, running, most := newAdmission(), make(chan struct{}), 0, 0
		read := func(account uuid.UUID, work func(page int64) error) error {
			call := &Call{Attempt: &Attempt{Operation: &Operation{Paged: true}, Caller: &Caller{Account: account}},
				Work: func(paid Paid) store.Work {
					return store.Work{Batched: func(context.Context, *store.Reader, store.Actions) (store.Response, error) {
						return store.Response{}, work(paid.Page)
					}}
				}}
			return s.run(t.Context(), call, func(work store.Work) error {
				_, err := work.Batched(t.Context(), nil, nil)
				return err
			})
		}
		long := func(account uuid.UUID) {
			_ = read(account, func(page int64) error {
				if page == store.ShortPage {
					return store.ErrLongPage
				}
				running++
				most = max(most, running)
				<-end
				running--
				return nil
			})
		}
		same := uuid.New()
		for range 8 {
			go long(same)
		}
		synctest.Wait()
		if most != 1 {
			t.Errorf("%d long pages of one account were at work, want 1", most)
		}
		for range 8 {
			go long(uuid.New())
		}
		synctest.Wait()
		if want := max(1, runtime.NumCPU()/2); most != want {
			t.Errorf("%d long pages were at work, want %d", most, want)
		}
		if err := read(same, func(int64) error { return nil }); err != nil {
			t.Errorf("a short page of the same account: %v", err)
		}
		close(end)
	})
}

// TestWaitForOwnCallsEnds: whoever waits too long for its own calls is told to come back, and nothing was done.
func TestWaitForOwnCallsEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, a := newAdmission(), &Attempt{Operation: &Operation{}, request: make([]byte, 1<<20)}
		if _, err := s.enter(t.Context(), a, false); err != nil {
			t.Fatal(err)
		}
		_, err := s.enter(context.WithoutCancel(t.Context()), a, false)
		refused, ok := err.(*Error) //nolint:errorlint // the engine returns it as it is
		if !ok || refused.Code != CodeBusy || refused.RetryAfter == 0 || refused.Charged {
			t.Errorf("got %v, want a free 503 with Retry-After", err)
		}
	})
}
