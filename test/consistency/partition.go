package consistency

import (
	"cmp"
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
	indefinite bool
	appended   int64 // to a log, 0 if nothing
	// step returns the state after the operation, and whether it can have come to its outcome in this state.
	step func(p *Partition, state any) (after any, possible bool)
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

// patience limits the check of one partition. Most take milliseconds.
const patience = time.Minute

// check returns whether the history is possible.
func (p *Partition) check() porcupine.CheckResult {
	model, history := p.model()
	return porcupine.CheckOperationsTimeout(model, history, patience)
}

func (p *Partition) model() (porcupine.Model, []porcupine.Operation) {
	history := make([]porcupine.Operation, len(p.ops))
	p.known = p.known[:0]
	for i, o := range p.ops {
		history[i] = porcupine.Operation{Input: o, Call: o.begin, Return: o.end}
		if o.appended > 0 {
			p.known = append(p.known, o.appended)
		}
	}
	slices.Sort(p.known)
	return porcupine.Model{
		Init: func() any { return p.initial },
		Step: func(state, input, _ any) (bool, any) {
			after, possible := input.(*op).step(p, state) //nolint:forcetypeassert // as above
			return possible, after
		},
	}, history
}

// shown is how many operations String lists on each side.
const shown = 12

// String shows where the history becomes impossible: the end of the longest order that is possible, and the operations that must come next,
// of which none fits.
func (p *Partition) String() string {
	model, history := p.model()
	_, info := porcupine.CheckOperationsVerbose(model, history, patience)
	var longest []porcupine.Operation
	for _, order := range slices.Concat(info.PartialLinearizationsOperations()...) {
		if len(order) > len(longest) {
			longest = order
		}
	}
	lines, ordered := []string{p.Kind + " " + p.Name}, map[*op]bool{}
	for i, operation := range longest {
		o := operation.Input.(*op) //nolint:forcetypeassert // as above
		if ordered[o] = true; i >= len(longest)-shown {
			lines = append(lines, "  "+o.String())
		}
	}
	left := slices.DeleteFunc(slices.Clone(p.ops), func(o *op) bool { return ordered[o] })
	slices.SortFunc(left, func(a, b *op) int { return cmp.Compare(a.end, b.end) })
	lines = append(lines, fmt.Sprintf("  None of these %d comes next:", len(left)))
	for _, o := range left[:min(shown, len(left))] {
		lines = append(lines, "  "+o.String())
	}
	return strings.Join(lines, "\n")
}

func (o *op) String() string { return fmt.Sprintf("%s to %s  %s", at(o.begin), at(o.end), o.what) }

// at is a time of a history in seconds.
func at(t int64) string {
	if t == never {
		return "   never"
	}
	return fmt.Sprintf("%8.4f", time.Duration(t).Seconds())
}
