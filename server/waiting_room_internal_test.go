package server

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/parley-chat/parley/store"
)

// inboxes are agents for whom something is unread, as the database would tell.
type inboxes struct {
	mu     sync.Mutex
	unread map[uuid.UUID]bool
	fails  error
	asked  int // statements
	agents int // that they asked for, in all
}

func (i *inboxes) check(_ context.Context, waiting []store.Waiting) ([]bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked++
	i.agents += len(waiting)
	have := make([]bool, len(waiting))
	for n, one := range waiting {
		have[n] = i.unread[one.Agent]
	}
	return have, i.fails
}

func (i *inboxes) put(agent uuid.UUID, fails error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.unread[agent], i.fails = true, fails
}

// counts returns how often the database was asked, and for how many agents.
func (i *inboxes) counts() (asked, agents int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked, i.agents
}

// inRoom runs a test of a waiting room, whose calls have all ended when it returns.
func inRoom(t *testing.T, most int, test func(t *testing.T, r *waitingRoom, i *inboxes)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i := &inboxes{unread: map[uuid.UUID]bool{}}
		r := newWaitingRoom(most, i.check)
		test(t, r, i)
		r.close()
		time.Sleep(checkRetry) // its longest pause after the last call
		synctest.Wait()
		if len(r.byKey)+len(r.bySource)+r.checked.Len() > 0 {
			t.Errorf("the room keeps %d keys, %d sources and %d calls", len(r.byKey), len(r.bySource), r.checked.Len())
		}
	})
}

// newWait is a call of an agent with a payment of its own.
func newWait(sources ...uuid.UUID) *wait {
	w := &wait{Channel: uuid.NewString(), Sources: sources}
	w.Agent, w.Call = uuid.New(), w.Channel
	return w
}

// stays returns how long a call stayed, and how it ended.
func (r *waitingRoom) stays(w *wait, limit time.Duration) (time.Duration, error) {
	began := time.Now()
	err := r.stay(context.Background(), w, limit)
	return time.Since(began), err
}

func TestWaitingRoom(t *testing.T) {
	t.Run("the time is over", func(t *testing.T) {
		inRoom(t, 10, func(t *testing.T, r *waitingRoom, i *inboxes) {
			if took, err := r.stays(newWait(), 20*time.Second); err != nil || took != 20*time.Second {
				t.Errorf("a call stays %s (%v), want 20 s", took, err)
			}
			if asked, _ := i.counts(); asked > 15 {
				t.Errorf("the database was asked %d times in 20 s", asked)
			}
		})
	})
	t.Run("unread before", func(t *testing.T) {
		inRoom(t, 10, func(t *testing.T, r *waitingRoom, i *inboxes) {
			w := newWait()
			i.put(w.Agent, nil)
			if took, err := r.stays(w, time.Minute); err != nil || took > 0 {
				t.Errorf("a call stays %s (%v), want it to go on at once", took, err)
			}
		})
	})
	for name, announced := range map[string]func(w *wait) uuid.UUID{
		"in its own name":            func(w *wait) uuid.UUID { return w.Agent },
		"in the name of its channel": func(w *wait) uuid.UUID { return w.Sources[1] },
	} {
		t.Run("announced "+name, func(t *testing.T) {
			inRoom(t, 10, func(t *testing.T, r *waitingRoom, i *inboxes) {
				w := newWait(uuid.New(), uuid.New())
				go func() {
					time.Sleep(10*time.Second + time.Millisecond)
					i.put(w.Agent, nil)
					r.hear([]uuid.UUID{uuid.New(), announced(w)})
				}()
				if took, err := r.stays(w, time.Minute); err != nil || took > 10*time.Second+20*time.Millisecond || took < 10*time.Second {
					t.Errorf("a call stays %s (%v), want 10 s", took, err)
				}
			})
		})
	}
	t.Run("announced, but read by another", func(t *testing.T) {
		inRoom(t, 10, func(t *testing.T, r *waitingRoom, _ *inboxes) {
			w := newWait()
			go func() { time.Sleep(time.Second); r.hear([]uuid.UUID{w.Agent}) }()
			if took, err := r.stays(w, 5*time.Second); err != nil || took != 5*time.Second {
				t.Errorf("a call stays %s (%v), want 5 s", took, err)
			}
		})
	})
	t.Run("the announcement is lost", func(t *testing.T) {
		inRoom(t, 10, func(t *testing.T, r *waitingRoom, i *inboxes) {
			w := newWait()
			go func() { time.Sleep(10 * time.Second); i.put(w.Agent, nil) }()
			if took, err := r.stays(w, time.Minute); err != nil || took > 12*time.Second {
				t.Errorf("a call stays %s (%v), want two seconds more than 10", took, err)
			}
		})
	})
	t.Run("the database is unavailable for a time", func(t *testing.T) {
		inRoom(t, 10, func(t *testing.T, r *waitingRoom, i *inboxes) {
			w := newWait()
			i.put(w.Agent, errors.New("away"))
			go func() { time.Sleep(10 * time.Second); i.put(w.Agent, nil) }()
			if took, err := r.stays(w, time.Minute); err != nil || took < 10*time.Second || took > 11*time.Second {
				t.Errorf("a call stays %s (%v), want 10 s", took, err)
			}
			if asked, _ := i.counts(); asked > 25 {
				t.Errorf("the database was asked %d times while it was away", asked)
			}
		})
	})
	t.Run("the caller hangs up", func(t *testing.T) {
		inRoom(t, 10, func(t *testing.T, r *waitingRoom, _ *inboxes) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			if err := r.stay(ctx, newWait(), time.Minute); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call ends with %v", err)
			}
		})
	})
	t.Run("the server stops", func(t *testing.T) {
		inRoom(t, 10, func(t *testing.T, r *waitingRoom, _ *inboxes) {
			go func() { time.Sleep(3 * time.Second); r.close() }()
			if took, err := r.stays(newWait(), time.Minute); err != nil || took != 3*time.Second {
				t.Errorf("a call stays %s (%v), want 3s", took, err)
			}
			if took, err := r.stays(newWait(), time.Minute); !errors.Is(err, errRoomClosed) || took != 0 {
				t.Errorf("a later call stays %s and ends with %v, want errRoomClosed at once", took, err)
			}
		})
	})
}

// entered lets a call wait, and returns its end.
func (r *waitingRoom) entered(t *testing.T, w *wait) chan error {
	ended := make(chan error, 1)
	go func() { ended <- r.stay(t.Context(), w, time.Minute) }()
	synctest.Wait()
	return ended
}

// TestOneWaitEach: the newest call of an account, and of a payment channel, waits; the older one ends. A full room refuses others.
func TestOneWaitEach(t *testing.T) {
	inRoom(t, 2, func(t *testing.T, r *waitingRoom, _ *inboxes) {
		enter := func(w *wait) chan error { return r.entered(t, w) }
		first, other := newWait(), newWait()
		firstEnds, otherEnds := enter(first), enter(other)
		if err := r.stay(t.Context(), newWait(), time.Minute); !errors.Is(err, errRoomFull) {
			t.Errorf("a third call ends with %v, want the room full", err)
		}
		copied := newWait()
		copied.Agent, copied.Channel, copied.Call = first.Agent, first.Channel, first.Call
		copyEnds := enter(copied)
		if err := <-firstEnds; !errors.Is(err, errWaitRepeated) {
			t.Errorf("the first copy of a call ends with %v", err)
		}
		next := newWait()
		next.Agent = first.Agent
		nextEnds := enter(next)
		if err := <-copyEnds; !errors.Is(err, errWaitReplaced) {
			t.Errorf("the older call of an account ends with %v", err)
		}
		sharing := newWait()
		sharing.Channel = other.Channel
		sharingEnds := enter(sharing)
		if err := <-otherEnds; !errors.Is(err, errWaitReplaced) {
			t.Errorf("the older call of a payment channel ends with %v", err)
		}
		both := newWait()
		both.Agent, both.Channel = next.Agent, sharing.Channel
		bothEnds := enter(both)
		if first, second := <-nextEnds, <-sharingEnds; !errors.Is(first, errWaitReplaced) || !errors.Is(second, errWaitReplaced) {
			t.Errorf("a call that replaces two ends them with %v and %v", first, second)
		}
		r.close()
		if err := <-bothEnds; err != nil {
			t.Error(err)
		}
	})
}

// addressed is a call of an agent from an address.
func addressed(agent uuid.UUID, address string) *wait {
	w := newWait()
	w.Agent, w.Address = agent, netip.MustParsePrefix(address)
	return w
}

// TestFullRoom: a newcomer to a full room displaces the oldest call of the address that holds most, unless its own would hold as many. It
// is the same among accounts whose last waits ended unpaid.
func TestFullRoom(t *testing.T) {
	for name, unpaid := range map[string]bool{"paid": false, "unpaid": true} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, 3, func(t *testing.T, r *waitingRoom, _ *inboxes) {
				enter := func(address string) chan error {
					w := addressed(uuid.New(), address)
					if unpaid {
						r.places.unpaid.Add(w.Agent, struct{}{}, unpaidFor)
					}
					return r.entered(t, w)
				}
				first, second, third := enter("10.0.0.1/32"), enter("10.0.0.1/32"), enter("10.0.0.2/32")
				if err := <-enter("10.0.0.2/32"); !errors.Is(err, errRoomFull) {
					t.Errorf("a call of an address that would hold as many as another one ends with %v, want the room full", err)
				}
				fourth := enter("10.0.0.3/32")
				if err := <-first; !errors.Is(err, errRoomFull) {
					t.Errorf("the oldest call of the address that holds most ends with %v, want the room full", err)
				}
				if err := <-enter("10.0.0.4/32"); !errors.Is(err, errRoomFull) {
					t.Errorf("a call beside three of three addresses ends with %v, want the room full", err)
				}
				if r.close(); errors.Join(<-second, <-third, <-fourth) != nil {
					t.Error("others are displaced too")
				}
			})
		})
	}
}

// TestUnpaidWaitsMakeRoom: an account whose last wait ended unpaid, by its own doing, loses its place in a full room to others, and gets
// none.
func TestUnpaidWaitsMakeRoom(t *testing.T) {
	for name, of := range map[string]struct {
		ends   func(r *waitingRoom, w *wait)
		hungUp bool
		err    error
		unpaid bool
	}{
		"it was charged":             {},
		"the server fails":           {err: errUnavailable},
		"another call was charged":   {ends: func(r *waitingRoom, w *wait) { r.overtake(w.Channel) }, err: store.ErrKeyReplaced},
		"it was not charged":         {err: store.ErrKeyReplaced, unpaid: true},
		"it hung up before the end":  {ends: func(r *waitingRoom, w *wait) { r.end(w, context.Canceled) }, unpaid: true, err: errUnavailable},
		"it hung up at the end":      {hungUp: true, err: context.Canceled, unpaid: true},
		"it paid for the next one":   {ends: func(r *waitingRoom, w *wait) { r.end(w, context.Canceled) }},
		"it was displaced":           {ends: func(r *waitingRoom, w *wait) { r.end(w, errRoomFull) }, err: errRoomFull},
		"it was replaced by another": {ends: func(r *waitingRoom, w *wait) { r.end(w, errWaitReplaced) }, err: errUnavailable, unpaid: true},
	} {
		t.Run(name, func(t *testing.T) {
			inRoom(t, 1, func(t *testing.T, r *waitingRoom, _ *inboxes) {
				agent := uuid.New()
				w := addressed(agent, "10.0.0.1/32")
				ended := r.entered(t, w)
				if of.ends != nil {
					of.ends(r, w)
				}
				r.end(w, nil)
				if of.ends == nil && <-ended != nil {
					t.Error("the call does not end by itself")
				}
				r.settle(w, of.hungUp, of.err)

				next := r.entered(t, addressed(agent, "10.0.0.1/32"))
				other := r.entered(t, addressed(uuid.New(), "10.0.0.2/32"))
				if !of.unpaid {
					if err := <-other; !errors.Is(err, errRoomFull) {
						t.Errorf("a newcomer ends with %v, want the room full", err)
					}
					return
				}
				if err := <-next; !errors.Is(err, errRoomFull) {
					t.Errorf("the next call of the account ends with %v, want the room full", err)
				}
				if err := <-r.entered(t, addressed(agent, "10.0.0.1/32")); !errors.Is(err, errRoomFull) {
					t.Errorf("one more of the account ends with %v, want the room full", err)
				}
				r.close()
				if err := <-other; err != nil {
					t.Errorf("the newcomer is displaced: %v", err)
				}
			})
		})
	}
}

// TestManyWait: one statement looks for many, each of ten thousand is looked for every two seconds, and what all hear of does not make all
// of them go on at once.
func TestManyWait(t *testing.T) {
	const many = 10_000
	inRoom(t, many, func(t *testing.T, r *waitingRoom, i *inboxes) {
		channel := uuid.New()
		var all sync.WaitGroup
		var mu sync.Mutex
		left := map[time.Duration]int{}
		began := time.Now()
		for range many {
			w := newWait(channel)
			all.Go(func() {
				if err := r.stay(t.Context(), w, 2*time.Minute); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				left[time.Since(began).Truncate(time.Second)]++
			})
		}
		time.Sleep(time.Minute)
		asked, agents := i.counts()
		if each, statements := agents/many, asked/60; each < 30 || each > 60 || statements > 40 {
			t.Errorf("in a minute each call was looked for %d times, with %d statements a second", each, statements)
		}
		r.mu.Lock()
		for w := r.checked.Front(); w != nil; w = w.Next() {
			i.put(w.Value.(*wait).Agent, nil)
		}
		r.mu.Unlock()
		r.hear([]uuid.UUID{channel})
		all.Wait()
		for second, n := range left {
			if n > leaveRate+leaveBurst {
				t.Errorf("%d calls went on in second %s", n, second)
			}
		}
		if took := time.Since(began); took > time.Minute+2*many*time.Second/leaveRate {
			t.Errorf("the last call went on after %s", took)
		}
	})
}

// TestVouchersInTurn: of the calls that leave with a voucher few go on at once, and the others do when these take too long, unless their
// callers hang up. One account cannot take the places of others.
func TestVouchersInTurn(t *testing.T) {
	inRoom(t, 1, func(t *testing.T, r *waitingRoom, _ *inboxes) {
		const many = 3 * vouchersAtOnce
		var all sync.WaitGroup
		var now, most, done atomic.Int64
		leave := func(ctx context.Context, takes time.Duration) {
			all.Go(func() {
				_ = r.charge(ctx, uuid.New(), func() error {
					most.Store(max(most.Load(), now.Add(1)))
					time.Sleep(takes)
					now.Add(-1)
					done.Add(1)
					return nil
				})
			})
		}
		for range many {
			leave(t.Context(), 10*time.Millisecond)
		}
		if all.Wait(); most.Load() != vouchersAtOnce || done.Load() != many {
			t.Errorf("%d of %d calls went on, %d at once; want %d", done.Load(), many, most.Load(), vouchersAtOnce)
		}
		agent, refused := uuid.New(), 0
		slow := func() error { time.Sleep(time.Second); return nil }
		for range vouchersAtOnce {
			all.Go(func() {
				if errors.Is(r.charge(t.Context(), agent, slow), errWaitCharged) {
					refused++
				}
			})
			synctest.Wait()
		}
		began := time.Now()
		_ = r.charge(t.Context(), uuid.New(), func() error { return nil })
		if took := time.Since(began); took > 0 || refused != vouchersAtOnce-1 {
			t.Errorf("beside the calls of one account, of which %d were refused, a call goes on after %s", refused, took)
		}
		if all.Wait(); r.charge(t.Context(), agent, func() error { return nil }) != nil {
			t.Error("the account is refused after its call")
		}
		for range vouchersAtOnce {
			leave(t.Context(), time.Hour)
		}
		synctest.Wait()
		gone, hangUp := context.WithCancel(t.Context())
		leave(gone, 0)
		leave(t.Context(), 0)
		hangUp()
		time.Sleep(store.CallTime + time.Second)
		if done.Load() != many+1 {
			t.Errorf("beside slow calls %d went on, want 1", done.Load()-many)
		}
		all.Wait()
	})
}
