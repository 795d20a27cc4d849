//go:build linux

package main

import (
	"container/heap"
	"math"
	"slices"
)

// figures are what a call of one kind uses, in milliseconds of a processor. A batch of calls costs something on top, however many share
// it: so a call costs less when others arrive with it.
type figures struct {
	Name      string
	Price     float64 // USD
	Clients   float64 // of the load generator
	Server    float64
	Database  float64
	PerBatch  float64 // of the server, for each batch
	PerCommit float64 // of the database, for each batch
	WAL       float64 // bytes, in large batches
}

// queues are where a call of this kind waits: to read, if it reads, and to write. Each runs one batch at a time, except for reads, which
// have half of the processors, and searches, which have a connection each.
func (f figures) queues() (reads, writes string) {
	switch f.Name {
	case sendOne, sendMany:
		return "", "sends"
	case ownAccount:
		return "", "charges"
	case nothingNew:
		return "polls", "charges"
	case agentSearch, wordSearch:
		return "searches", "charges"
	}
	return "reads", "charges"
}

// load is what the simulation is given.
type load struct {
	kinds      []figures
	clients    []int      // by kind, each with one call after another
	rates      []float64  // by kind, calls per second that arrive whatever happens
	charge     float64    // of the database, for a call that is only charged: what a call needs beyond is its read
	processors int        // of the database
	apart      bool       // servers and clients have enough other processors
	servers    int        // each with its own queues
	flush      float64    // milliseconds, of the write-ahead log, here and at a standby
	trip       float64    // milliseconds, from a server to the database and back
	waiting    float64    // milliseconds of the database per second, to look for calls that wait
	wakes      string     // the kind of the call that each send ends, or none
	outage     [2]float64 // from when to when the database is unavailable, in seconds
	seconds    float64    // that are simulated
}

// outcome is what the simulation saw.
type outcome struct {
	rate     float64   // calls per second, without the first fifth of the time
	rates    []float64 // by kind
	p99      float64   // milliseconds
	restored float64   // seconds, from the return of the database until no call takes longer than a second
}

const (
	maxPerBatch = 64   // store.maxBatch
	wakePause   = 40   // milliseconds: checkPause of server
	retryAfter  = 1000 // milliseconds until a refused caller comes back
)

// simulation is a run of the model: a heap of events by time.
type simulation struct {
	load
	now           float64 // milliseconds
	events        []event
	count         int
	machine, data *pool // of servers and clients, and of the database
	queues        map[any]*queue
	seen          outcome
	took          []float64 // milliseconds, by call
	last          float64   // when a call last took longer than a second
}

type event struct {
	at    float64
	order int
	do    func()
}

func (s *simulation) Len() int      { return len(s.events) }
func (s *simulation) Swap(i, j int) { s.events[i], s.events[j] = s.events[j], s.events[i] }
func (s *simulation) Push(e any)    { s.events = append(s.events, e.(event)) } //nolint:forcetypeassert // see after
func (s *simulation) Less(i, j int) bool {
	a, b := s.events[i], s.events[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (s *simulation) Pop() any {
	last := s.events[len(s.events)-1]
	s.events = s.events[:len(s.events)-1]
	return last
}

func (s *simulation) after(delay float64, do func()) {
	s.count++
	heap.Push(s, event{s.now + delay, s.count, do})
}

// pool are processors, which take turns of a millisecond with what is to be done, as an operating system does. Or they are threads of the
// servers, one for each processor: so however much servers have to do, the database gets its turns.
type pool struct {
	idle    int
	turn    float64
	run     func(ms float64, then func())
	waiting []burst
}

type burst struct {
	left float64
	then func()
}

func (p *pool) use(ms float64, then func()) {
	p.waiting = append(p.waiting, burst{ms, then})
	p.next()
}

func (p *pool) next() {
	for p.idle > 0 && len(p.waiting) > 0 {
		b := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.idle--
		took := math.Min(b.left, p.turn)
		p.run(took, func() {
			p.idle++
			if b.left -= took; b.left > 0 {
				p.waiting = append(p.waiting, b)
			} else {
				b.then()
			}
			p.next()
		})
	}
}

// queue is a batcher of store.
type queue struct {
	lanes, most int
	flush       float64
	waiting     []item
}

type item struct {
	work, commit, server float64 // of the database for this call, of the database for the batch, of the server for it
	then                 func()
}

func (s *simulation) queue(server int, name string) *queue {
	key := [2]any{server, name}
	if s.queues[key] == nil {
		s.queues[key] = map[string]*queue{
			"reads": {lanes: max(2, s.processors/2), most: maxPerBatch}, "searches": {lanes: 8, most: 1}, "polls": {lanes: 1, most: maxPerBatch},
			"sends": {lanes: 1, most: maxPerBatch, flush: s.flush}, "charges": {lanes: 1, most: maxPerBatch, flush: s.flush},
		}[name]
	}
	return s.queues[key]
}

// start runs the next batch, if a lane is free.
func (s *simulation) start(q *queue) {
	if q.lanes == 0 || len(q.waiting) == 0 {
		return
	}
	q.lanes--
	n := min(len(q.waiting), q.most)
	batch := q.waiting[:n:n]
	q.waiting = q.waiting[n:]
	var all item
	for _, one := range batch {
		all.work, all.commit, all.server = all.work+one.work, max(all.commit, one.commit), max(all.server, one.server)
	}
	s.machine.use(all.server, func() {
		s.after(s.trip, func() {
			s.data.use(all.work+all.commit, func() {
				s.after(q.flush, func() {
					q.lanes++
					for _, one := range batch {
						one.then()
					}
					s.start(q)
				})
			})
		})
	})
}

func (s *simulation) push(q *queue, one item) {
	q.waiting = append(q.waiting, one)
	s.start(q)
}

// call makes one call at a server, until it succeeds.
func (s *simulation) call(kind, server int, then func()) {
	f, began, written := s.kinds[kind], s.now, s.kinds[kind].Database
	reads, writes := f.queues()
	finish := func() { s.done(kind, server, began); then() }
	write := func() {
		s.push(s.queue(server, writes), item{written, f.PerCommit, f.PerBatch, func() { s.machine.use(f.Server/2, finish) }})
	}
	var try func()
	try = func() {
		if s.now >= s.outage[0]*1000 && s.now < s.outage[1]*1000 {
			s.after(retryAfter, try)
			return
		}
		s.machine.use(f.Clients+f.Server/2, func() {
			if reads == "" {
				write()
				return
			}
			written = math.Min(written, s.charge)
			s.push(s.queue(server, reads), item{work: f.Database - written, then: write})
		})
	}
	try()
}

// done counts a call, and lets a message wake whom it is for.
func (s *simulation) done(kind, server int, began float64) {
	if s.now >= s.seconds*200 {
		s.seen.rates[kind]++
		s.took = append(s.took, s.now-began)
	}
	if s.now-began > 1000 {
		s.last = s.now
	}
	if _, writes := s.kinds[kind].queues(); s.wakes != "" && writes == "sends" {
		woken := slices.IndexFunc(s.kinds, func(f figures) bool { return f.Name == s.wakes })
		s.after(wakePause, func() { s.call(woken, server, func() {}) })
	}
}

// repeat does something every so many milliseconds.
func (s *simulation) repeat(every float64, do func(n int)) {
	var next func(n int)
	next = func(n int) {
		s.after(every, func() { do(n); next(n + 1) })
	}
	next(0)
}

// simulate runs the model.
func simulate(l load) outcome {
	s := &simulation{load: l, queues: map[any]*queue{}, seen: outcome{rates: make([]float64, len(l.kinds))}}
	s.data = &pool{idle: l.processors, turn: 1, run: s.after}
	if s.machine = (&pool{idle: l.processors, turn: math.Inf(1), run: s.data.use}); l.apart {
		s.machine = &pool{idle: 1 << 20, turn: math.Inf(1), run: s.after}
	}
	for kind, n := range l.clients {
		for i := range n {
			var again func()
			again = func() { s.call(kind, i%l.servers, again) }
			again()
		}
	}
	for kind, rate := range l.rates {
		if rate > 0 {
			s.repeat(1000/rate, func(n int) { s.call(kind, n%l.servers, func() {}) })
		}
	}
	s.repeat(100, func(int) { s.data.use(l.waiting/10, func() {}) })
	for s.events[0].at < l.seconds*1000 {
		e := heap.Pop(s).(event) //nolint:forcetypeassert // see after
		s.now = e.at
		e.do()
	}
	for kind := range s.seen.rates {
		s.seen.rates[kind] /= l.seconds * 0.8
		s.seen.rate += s.seen.rates[kind]
	}
	if slices.Sort(s.took); len(s.took) > 0 {
		s.seen.p99 = s.took[len(s.took)*99/100]
	}
	s.seen.restored = max(0, s.last/1000-l.outage[1])
	return s.seen
}
