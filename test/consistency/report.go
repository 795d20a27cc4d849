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
	Anomalies  []*Partition // as short as they get
	Unknown    []string     // partitions whose check took too long
}

type sum struct{ partitions, operations, indefinite int }

// maxAnomalies is how many anomalies of a kind are made short.
const maxAnomalies = 3

// Check checks partitions.
func (r *Report) Check(partitions []*Partition) {
	if r.kinds == nil {
		r.kinds = map[string]*sum{}
	}
	found := map[string]int{}
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
			if found[p.Kind]++; found[p.Kind] > maxAnomalies {
				continue
			}
			r.Anomalies = append(r.Anomalies, p.shortest())
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

// Shortest returns the anomaly with the fewest operations, or nil.
func (r *Report) Shortest() *Partition {
	if len(r.Anomalies) == 0 {
		return nil
	}
	return slices.MinFunc(r.Anomalies, func(a, b *Partition) int { return a.shown() - b.shown() })
}

// shown counts the operations that String lists.
func (p *Partition) shown() (n int) {
	for _, o := range p.ops {
		if o.what != "" {
			n++
		}
	}
	return n
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
