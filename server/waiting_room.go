package server

import (
	"container/list"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/store"
)

const (
	// checkEvery is how often the room looks whether something is unread for a call, announced or not: an announcement can be lost.
	checkEvery = 1800 * time.Millisecond
	// checkAtOnce is how many calls one statement looks for, and checkPause the time after one that looked for fewer, in which announcements
	// add up: calls that leave together share what follows.
	checkAtOnce = 512
	checkPause  = 40 * time.Millisecond
	// checkRetry is the pause after the database was unavailable.
	checkRetry = 500 * time.Millisecond
	// leaveRate and leaveBurst bound how fast calls leave the room: a message to a channel that thousands await must not make all of
	// them read at once.
	leaveRate, leaveBurst = 1000, 256
	// vouchersAtOnce is how many calls that have left the room are charged with vouchers at once. More would wait for the database
	// together, which refuses whoever waits long, and they would come back.
	vouchersAtOnce = 128
)

// waitingRoom holds the calls that wait until something is unread. They hold no connection to the database. One goroutine looks for all of
// them, in one statement for many, first for those that were announced. An account, and a payment channel, has one call in the
// room: the newest.
type waitingRoom struct {
	check   func(context.Context, []store.Waiting) ([]bool, error) // store.HaveUnread
	leaving *rate.Limiter
	charged *semaphore.Weighted // the calls that leave with a voucher
	refused prometheus.Counter

	mu       sync.Mutex
	places   places
	byKey    map[any]*wait         // by the ids of the account and of the payment channel
	inTurn   map[uuid.UUID]bool    // the accounts whose calls are being charged: see charge
	bySource map[uuid.UUID][]*wait // by what is announced: the account, and its group chats and channels
	checked  list.List             // of *wait, by the time of their last checks, the oldest first
	due      []*wait               // announced since their last checks
	running  bool
	closed   bool
	wake     chan struct{}
}

// wait is a call in the room.
type wait struct {
	store.Waiting
	Channel string      // the payment channel that pays, or ""
	Call    string      // payment and request: the same for copies of one call
	Sources []uuid.UUID // see store.Sources
	Address netip.Prefix

	room      *waitingRoom
	kind      *edge.Budget // that place is of
	place     edge.Share
	ended     chan struct{}
	err       error // why it ended, set before ended is closed; nil: something is unread, or the server stops
	over      bool
	overtaken bool // see overtake
	due       bool
	checked   time.Time
	order     *list.Element // of waitingRoom.checked
}

func newWaitingRoom(most int, check func(context.Context, []store.Waiting) ([]bool, error)) *waitingRoom {
	return &waitingRoom{
		places: newPlaces(most), check: check, leaving: rate.NewLimiter(leaveRate, leaveBurst),
		charged: semaphore.NewWeighted(vouchersAtOnce),
		byKey:   map[any]*wait{}, inTurn: map[uuid.UUID]bool{}, bySource: map[uuid.UUID][]*wait{}, wake: make(chan struct{}, 1),
		refused: prometheus.NewCounter(prometheus.CounterOpts{Name: "parley_waits_refused_total",
			Help: "Calls that could not wait for unread messages, because too many waited."}),
	}
}

// collectors are the metrics of the room.
func (r *waitingRoom) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.refused,
		gauge("parley_waits_max", "The most calls that wait for unread messages.", func() float64 { return float64(r.places.most) }),
		gauge("parley_waits", "Calls that wait for unread messages.", func() float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			return float64(r.checked.Len())
		})}
}

// stay holds the call until something is unread, the time is over, or the server stops. It returns an error if the call must end: the
// caller has hung up, another call took its place, or the room is closed, or full, also after a time.
func (r *waitingRoom) stay(ctx context.Context, w *wait, limit time.Duration) error {
	if err := r.enter(w); err != nil { //nolint:contextcheck // work looks for all calls
		return err
	}
	// One channel and no select: thousands of calls stay here, and the stack of each must be small.
	defer time.AfterFunc(limit, func() { r.end(w, nil) }).Stop()
	defer context.AfterFunc(ctx, func() { r.end(w, ctx.Err()) })()
	if <-w.ended; w.err != nil { // the first end counts
		return w.err
	}
	return r.leaving.Wait(ctx)
}

// charge does what a call with a voucher does after it has waited, when few others do. It waits for them no longer than CallTime. An
// account has one such call: else those that wait for another call of their payment channel would take all places.
func (r *waitingRoom) charge(ctx context.Context, agent uuid.UUID, do func() error) error {
	r.mu.Lock()
	taken := r.inTurn[agent]
	r.inTurn[agent] = true
	r.mu.Unlock()
	if taken {
		return errWaitCharged
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.inTurn, agent)
	}()
	waiting, cancel := context.WithTimeout(ctx, store.CallTime)
	defer cancel()
	if r.charged.Acquire(waiting, 1) == nil {
		defer r.charged.Release(1)
	}
	if err := ctx.Err(); err != nil { // the caller has hung up
		return err
	}
	return do()
}

func (r *waitingRoom) enter(w *wait) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.room, w.ended = r, make(chan struct{})
	if r.closed {
		return errRoomClosed
	}
	for _, key := range w.keys() {
		if older := r.byKey[key]; older != nil {
			r.remove(older, older.replacedBy(w))
		}
	}
	if !r.places.take(w) {
		r.refused.Inc()
		return errRoomFull
	}
	for _, key := range w.keys() {
		r.byKey[key] = w
	}
	for _, source := range w.sources() {
		r.bySource[source] = append(r.bySource[source], w)
	}
	w.order = r.checked.PushBack(w)
	r.announce(w)
	if !r.running {
		r.running = true
		go r.work()
	}
	return nil
}

func (w *wait) keys() []any {
	if w.Channel == "" {
		return []any{w.Agent}
	}
	return []any{w.Agent, w.Channel}
}

func (w *wait) sources() []uuid.UUID {
	return append(w.Sources[:len(w.Sources):len(w.Sources)], w.Agent)
}

// replacedBy is why the call ends when a newer one comes. A copy of it has the same payment, which may be charged for the copy.
func (w *wait) replacedBy(newer *wait) error {
	if w.Call == newer.Call {
		return errWaitRepeated
	}
	return errWaitReplaced
}

// overtake ends the wait of a call whose voucher does not fit any more, because its payment channel was charged for another call.
func (r *waitingRoom) overtake(channel string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.byKey[channel]; w != nil {
		w.overtaken = true
		r.remove(w, nil)
	}
}

// end ends a call, unless it has ended.
func (r *waitingRoom) end(w *wait, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.remove(w, err)
}

// remove is end. The caller holds the lock.
func (r *waitingRoom) remove(w *wait, err error) {
	if w.over {
		return
	}
	w.over, w.err = true, err
	r.places.leave(w, err != nil && err != errRoomFull) //nolint:errorlint // nothing wraps it
	for _, key := range w.keys() {
		delete(r.byKey, key)
	}
	for _, source := range w.sources() {
		calls := r.bySource[source]
		i := slices.Index(calls, w)
		calls[i] = calls[len(calls)-1]
		calls[len(calls)-1] = nil
		if r.bySource[source] = calls[:len(calls)-1]; len(calls) == 1 {
			delete(r.bySource, source)
		}
	}
	if r.checked.Remove(w.order); r.checked.Len() == 0 {
		r.wakeUp()
	}
	close(w.ended)
}

// hear notes that there may be something for those who wait for it: see store.Listen.
func (r *waitingRoom) hear(ids []uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		for _, w := range r.bySource[id] {
			r.announce(w)
		}
	}
}

// announce makes the room look for the call soon. The caller holds the lock.
func (r *waitingRoom) announce(w *wait) {
	if w.due {
		return
	}
	w.due = true
	r.due = append(r.due, w)
	r.wakeUp()
}

// wakeUp ends a pause of work.
func (r *waitingRoom) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// close ends all waits. Later calls cannot wait: errRoomClosed.
func (r *waitingRoom) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for r.checked.Len() > 0 {
		r.remove(r.checked.Front().Value.(*wait), nil) //nolint:forcetypeassert // there are no others
	}
}

// work looks for those who wait, until nobody does.
func (r *waitingRoom) work() {
	for {
		calls, pause, waiting := r.next()
		switch {
		case !waiting:
			return
		case len(calls) > 0:
			time.Sleep(r.look(calls))
			continue
		}
		select {
		case <-r.wake:
		case <-time.After(pause):
		}
	}
}

// next returns the calls to look for: those that were announced, then those that nothing was looked for lately. If there are none, it
// returns how long to pause.
func (r *waitingRoom) next() (calls []*wait, pause time.Duration, waiting bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.checked.Len() == 0 {
		r.running, r.due = false, nil
		return nil, 0, false
	}
	now := time.Now()
	take := func(w *wait) {
		w.due, w.checked = false, now
		r.checked.MoveToBack(w.order)
		calls = append(calls, w)
	}
	n := 0
	for ; n < len(r.due) && len(calls) < checkAtOnce; n++ {
		if w := r.due[n]; !w.over {
			take(w)
		}
	}
	r.due = slices.Delete(r.due, 0, n)
	for len(calls) < checkAtOnce {
		oldest := r.checked.Front().Value.(*wait) //nolint:forcetypeassert // there are no others
		if pause = checkEvery - now.Sub(oldest.checked); pause > 0 {
			break
		}
		take(oldest)
	}
	return calls, pause, true
}

// look ends the waits for which something is unread. It returns how long to pause.
func (r *waitingRoom) look(calls []*wait) time.Duration {
	ctx, cancel := context.WithTimeout(context.Background(), store.CallTime)
	defer cancel()
	waiting := make([]store.Waiting, len(calls))
	for i, w := range calls {
		waiting[i] = w.Waiting
	}
	have, err := r.check(ctx, waiting)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, w := range calls {
		switch {
		case err != nil && !w.over:
			r.announce(w)
		case err == nil && have[i]:
			r.remove(w, nil)
		}
	}
	switch {
	case err != nil:
		return checkRetry
	case len(calls) == checkAtOnce: // more may be due
		return 0
	}
	return checkPause
}
