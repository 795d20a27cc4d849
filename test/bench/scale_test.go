//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"math"
	"os"
	"strings"
	"testing"
)

// TestSimulate compares the simulation with what can be computed by hand.
func TestSimulate(t *testing.T) {
	t.Parallel()
	send := figures{Name: sendMany, Clients: 1, Server: 2, Database: 3, PerBatch: 1, PerCommit: 4}
	read := figures{Name: newest, Server: 2, Database: 10, PerCommit: 1}
	own := figures{Name: ownAccount, Server: 1, Database: 2}
	one := func(f figures, clients int) load {
		return load{kinds: []figures{f}, clients: []int{clients}, charge: 2, processors: 2, servers: 1, seconds: 20}
	}
	slow := figures{Name: sendMany, Server: 12, Database: 2, PerBatch: 1, PerCommit: 4}
	alone, waits := one(send, 1), one(send, 1)
	waits.flush, waits.trip = 5, 3
	servers, more := one(own, 1000), one(own, 1000)
	servers.apart, servers.processors = true, 64
	more.apart, more.processors, more.servers = true, 64, 4
	woken := one(send, 1)
	woken.kinds, woken.clients, woken.wakes = []figures{send, {Name: wokenPoll, Server: 1}}, []int{1, 0}, wokenPoll
	for _, test := range []struct {
		name string
		load load
		rate float64
	}{
		{"one client has the sum of all times", alone, 1000.0 / (1 + 2 + 1 + 3 + 4)},
		{"flush and round trip take time", waits, 1000.0 / (1 + 2 + 1 + 3 + 4 + 5 + 3)},
		{"many clients have all processors, and share the cost of batches", one(slow, 256), 2000.0 / (12 + 2 + 5.0/64)},
		{"a read has two stages", one(read, 1), 1000.0 / (2 + 10 + 1)},
		{"a server runs one batch at a time", servers, 1000.0 / 2},
		{"servers run theirs side by side", more, 4000.0 / 2},
		{"a message wakes a poll", woken, 2000.0 / (1 + 2 + 1 + 3 + 4)},
	} {
		if seen := simulate(test.load); math.Abs(seen.rate/test.rate-1) > 0.04 {
			t.Errorf("%s: %.1f calls per second, want %.1f", test.name, seen.rate, test.rate)
		}
	}
	half := load{kinds: []figures{own}, rates: []float64{250}, charge: 2, processors: 2, apart: true, servers: 1, seconds: 60,
		outage: [2]float64{10, 20}}
	if seen := simulate(half); seen.restored < 8 || seen.restored > 12 {
		t.Errorf("at half load the backlog of 10 s is gone after %.1f s, want 10", seen.restored)
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	var points []result
	for _, w := range []float64{1, 0.2, 0.05} {
		points = append(points, result{writes: w, pgCPU: 0.5 + 2*w})
	}
	if perCall, perBatch := fit(points, pgCPU); math.Abs(perCall-0.5) > 1e-9 || math.Abs(perBatch-2) > 1e-9 {
		t.Errorf("the fit is %g per call and %g per batch, want 0.5 and 2", perCall, perBatch)
	}
}

// TestPlan: the model predicts what was measured, docs/scale.md has its tables, and its pictures are pictures.
func TestPlan(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	var m machineFigures
	if err := json.Unmarshal(measuredFigures, &m); err != nil {
		t.Fatal(err)
	}
	for i, mix := range mixes {
		if miss := m.miss(i); miss > allowed {
			t.Errorf("the predicted rate of the mix %s differs from the measured one by %.0f %%", mix.name, 100*miss)
		}
	}
	var tables, picture bytes.Buffer
	m.tables(&tables)
	for table := range strings.SplitSeq(strings.TrimSpace(tables.String()), "\n\n") {
		if !strings.Contains(string(document), table) {
			t.Errorf("docs/scale.md lacks a table of `bin/bench -plan docs/images`:\n%s", table)
		}
	}
	m.drawLadder(&picture)
	if err := xml.Unmarshal(picture.Bytes(), new(any)); err != nil || strings.Contains(picture.String(), "NaN") {
		t.Errorf("the picture is not XML, or has a number that is none: %v", err)
	}
}
