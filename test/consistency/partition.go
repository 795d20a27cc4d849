package consistency

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Partition is a history that does not depend on others, and its model.
type Partition struct {
	Kind, Name string
	ops        []*op
	initial    any
	// strict means that nothing but ops changes what a log holds.
	strict bool
	// known are the ends of the ranges that definite ops append, in order.
	known []int64
}

// op is an operation of the sequential model.
type op struct {
	begin, end int64
	what       string
	pure       bool // it changes nothing
	indefinite bool
	appended   int64 // to a log, 0 if nothing
	appending  bool  // it may append, if it happened
	// step returns the state after the operation, and whether it can have come to its outcome in this state.
	step func(p *Partition, state any) (after any, possible bool)
	// freed is step for an operation of which only the time counts, not what it did.
	freed func(state any) any
}

func (p *Partition) add(ops ...*op) { p.ops = append(p.ops, ops...) }

// log is the state of what only grows: the number of the newest message of a conversation, or the sum charged to a payment channel.
type log struct{ last int64 }

// next returns the end of the first known range after a position.
func (p *Partition) next(last int64) int64 {
	i, _ := slices.BinarySearch(p.known, last+1)
	if i == len(p.known) {
		return never
	}
	return p.known[i]
}

// reach returns whether a log can hold exactly what ends at a position. If it is not strict, what no operation of the history has appended
// may have been appended at any time.
func (p *Partition) reach(last, position int64) bool {
	return last == position || !p.strict && last < position && p.next(last) > position
}

// append returns the log after a range was appended.
func (p *Partition) append(last, from, to int64) (int64, bool) {
	if last >= to || !p.reach(last, from) {
		return last, false
	}
	return to, true
}

// stepping gives the operation a step on states of one type. If its outcome is not known, it may have changed nothing.
func stepping[S any](o *op, step func(p *Partition, before S) (after S, possible bool)) *op {
	indefinite := o.indefinite
	o.step = func(p *Partition, state any) (any, bool) {
		before := state.(S) //nolint:forcetypeassert // of this partition
		after, possible := step(p, before)
		if !possible && indefinite {
			return before, true
		}
		return after, possible
	}
	return o
}

func (o *op) appends(from, to int64) {
	if !o.indefinite {
		o.appended = to
	}
	stepping(o, func(p *Partition, l log) (log, bool) {
		after, possible := p.append(l.last, from, to)
		return log{after}, possible
	})
}

func (o *op) reads(position int64) {
	stepping(o, func(p *Partition, l log) (log, bool) { return log{position}, p.reach(l.last, position) })
}

// prepare makes the history ready to be checked.
func (p *Partition) prepare() {
	p.known = p.known[:0]
	for _, o := range p.ops {
		if o.appended > 0 {
			p.known = append(p.known, o.appended)
		}
	}
	slices.Sort(p.known)
}

// patience limits the check of one partition. Most take milliseconds.
const patience = time.Minute

// check returns whether the history is possible.
func (p *Partition) check() porcupine.CheckResult {
	p.prepare()
	history := make([]porcupine.Operation, len(p.ops))
	for i, o := range p.ops {
		history[i] = porcupine.Operation{Input: o, Call: o.begin, Return: o.end}
	}
	return porcupine.CheckOperationsTimeout(porcupine.Model{
		Init: func() any { return p.initial },
		Step: func(state, input, _ any) (bool, any) {
			after, possible := input.(*op).step(p, state) //nolint:forcetypeassert // as above
			return possible, after
		},
	}, history, patience)
}

func (p *Partition) illegal(ops []*op) bool {
	reduced := *p
	reduced.ops, reduced.known = ops, nil
	return reduced.check() == porcupine.Illegal
}

// shortest returns a history with few operations that is impossible too. It leaves out what nothing depends on: first all that began after
// the history became impossible, then reads and messages one by one, and of changes everything but their time.
func (p *Partition) shortest() *Partition {
	if p.strict {
		relaxed := *p
		relaxed.strict = false
		if relaxed.illegal(p.ops) {
			return relaxed.shortest()
		}
	}
	ends := make([]int64, len(p.ops))
	for i, o := range p.ops {
		ends[i] = o.end
	}
	slices.Sort(ends)
	ends = slices.Compact(ends)
	until := func(end int64) (kept []*op) {
		for _, o := range p.ops {
			switch {
			case o.end <= end:
				kept = append(kept, o)
			case o.begin <= end && !o.pure: // it may have had its effect
				kept = append(kept, o.unfinished())
			}
		}
		return kept
	}
	at, _ := slices.BinarySearchFunc(ends, true, func(end int64, _ bool) int {
		if p.illegal(until(end)) {
			return 1
		}
		return -1
	})
	short := *p
	if at < len(ends) {
		short.ops = until(ends[at])
	}
	for chunk := max(1, len(short.ops)/2); ; chunk /= 2 {
		for i := 0; i < len(short.ops); {
			end := min(len(short.ops), i+chunk)
			if reduced, fewer := short.without(i, end); fewer && short.illegal(reduced) {
				short.ops = reduced
				continue
			}
			i = end
		}
		if chunk <= 1 {
			break
		}
	}
	for i, o := range short.ops {
		if o.freed == nil {
			continue
		}
		reduced := slices.Clone(short.ops)
		reduced[i] = o.free()
		if short.illegal(reduced) {
			short.ops = reduced
		}
	}
	return &short
}

// without returns the operations without those of a range that may be left out, and whether there is one.
func (p *Partition) without(from, to int) (kept []*op, fewer bool) {
	for i, o := range p.ops {
		if i >= from && i < to && (o.pure || (o.appended > 0 || o.appending) && !p.strict) {
			fewer = true
			continue
		}
		kept = append(kept, o)
	}
	return kept, fewer
}

// unfinished returns the operation before its response: it may have happened.
func (o *op) unfinished() *op {
	cut := *o
	cut.end, cut.indefinite, cut.appended, cut.appending = never, true, 0, o.appended > 0
	cut.step = func(p *Partition, state any) (any, bool) {
		if after, possible := o.step(p, state); possible {
			return after, true
		}
		return state, true
	}
	return &cut
}

// free returns the operation with any effect.
func (o *op) free() *op {
	free := *o
	free.what, free.freed = "", nil
	free.step = func(_ *Partition, state any) (any, bool) { return o.freed(state), true }
	return &free
}

// String lists the operations, except those whose effect does not matter.
func (p *Partition) String() string {
	var lines []string
	meanwhile := 0
	ops := slices.Clone(p.ops)
	slices.SortStableFunc(ops, func(a, b *op) int { return int(a.begin - b.begin) })
	for _, o := range ops {
		if o.what == "" {
			meanwhile++
			continue
		}
		lines = append(lines, fmt.Sprintf("  %s to %s  %s", at(o.begin), at(o.end), o.what))
	}
	if meanwhile > 0 {
		lines = append(lines, fmt.Sprintf("  %d changes meanwhile, whatever they did", meanwhile))
	}
	return fmt.Sprintf("%s %s\n%s", p.Kind, p.Name, strings.Join(lines, "\n"))
}

// at is a time of a history in seconds.
func at(t int64) string {
	if t == never {
		return "   never"
	}
	return fmt.Sprintf("%8.4f", time.Duration(t).Seconds())
}
