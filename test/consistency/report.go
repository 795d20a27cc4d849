package consistency

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"
)

// Report sums up checks.
type Report struct {
	kinds      map[string]*sum
	Operations int
	Anomalies  []*Partition // that are not possible
	Unknown    []string     // partitions whose check took too long
}

type sum struct{ partitions, operations, indefinite int }

// Check checks partitions.
func (r *Report) Check(partitions []*Partition) {
	if r.kinds == nil {
		r.kinds = map[string]*sum{}
	}
	for _, p := range partitions {
		of := r.kinds[p.Kind]
		if of == nil {
			of = &sum{}
			r.kinds[p.Kind] = of
		}
		of.partitions++
		of.operations += len(p.ops)
		r.Operations += len(p.ops)
		for _, o := range p.ops {
			if o.end == never {
				of.indefinite++
			}
		}
		switch p.check() {
		case porcupine.Illegal:
			r.Anomalies = append(r.Anomalies, p)
		case porcupine.Unknown:
			r.Unknown = append(r.Unknown, p.Kind+" "+p.Name)
		}
	}
}

// Wrong returns what must not be, in words.
func (r *Report) Wrong() (wrong []string) {
	for _, p := range r.Anomalies {
		wrong = append(wrong, "no order of the calls explains this history:\n"+p.String())
	}
	for _, name := range r.Unknown {
		wrong = append(wrong, fmt.Sprintf("the check of the history %s took longer than %s", name, patience))
	}
	return wrong
}

// String is a table of what was checked.
func (r *Report) String() string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(r.kinds)) {
		of := r.kinds[kind]
		fmt.Fprintf(&b, "| %s | %d histories | %d operations | %d without an outcome |\n", kind, of.partitions, of.operations, of.indefinite)
	}
	return b.String()
}
