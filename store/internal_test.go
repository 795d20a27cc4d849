package store

import (
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestClock: a reading moves the clock only if it shows that the clock is wrong, and then to within half of the time that the
// response took.
func TestClock(t *testing.T) {
	t.Parallel()
	var c clock
	local := time.Now()
	right := local.Round(0).Add(-5 * time.Minute) // the database's clock at local, which is behind
	read := func(after, took, shift time.Duration) {
		// The database looks at its clock in the middle.
		c.set(right.Add(after+took/2+shift), local.Add(after), local.Add(after+took))
	}
	off := func(after time.Duration) time.Duration { return c.at(local.Add(after)).Sub(right.Add(after)) }
	want := func(what string, after, least, most time.Duration) {
		t.Helper()
		if got := off(after); got < least || got > most {
			t.Errorf("%s: the clock is %s ahead of the database's, want %s to %s", what, got, least, most)
		}
	}
	want("before the first reading", 0, 5*time.Minute, 5*time.Minute)
	read(0, 2*time.Millisecond, 0)
	want("the first reading", time.Second, -time.Millisecond, time.Millisecond)
	before := off(0)
	read(10*time.Second, 4*time.Second, 0)
	if off(15*time.Second) != before {
		t.Error("a slow response moves a clock that agrees with it")
	}
	read(20*time.Second, 2*time.Millisecond, 10*time.Millisecond)
	want("the database's clock has moved on", 21*time.Second, 9*time.Millisecond, 11*time.Millisecond)
	read(30*time.Second, 2*time.Millisecond, -time.Minute)
	want("a host whose clock is behind", 31*time.Second, -time.Minute-time.Millisecond, -time.Minute+time.Millisecond)
	if now := c.now(); now != now.Round(0) { // Sub would compare it with the clock of this machine
		t.Error("a time of the database has a monotonic part")
	}
}

// TestLargePatternsCostLittle: an expression that is refused is free for its sender, so it must not take much memory. Not
// parallel, because it measures the memory of the process.
func TestLargePatternsCostLittle(t *testing.T) { //nolint:paralleltest // see above
	for _, query := range []string{
		strings.Repeat(`(\w?){999}`, 25), strings.Repeat(`(\pL?){999}`, 23), "(?:" + strings.Repeat("a?", 123) + "){1000}",
		"(?:" + strings.Repeat("a", 246) + "){1000}", "(?:" + strings.Repeat(`\pL?`, 61) + "){1000}", strings.Repeat(`\pL{1000}`, 28),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := parsePattern(query)
		runtime.ReadMemStats(&after)
		const most = 4 << 20
		if used := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, ErrPatternTooLarge) || used > most {
			t.Errorf("%.30q…: %v and %d bytes, want ErrPatternTooLarge and at most %d", query, err, used, most)
		}
	}
}

// TestJSONLength: the length of a text as JSON is what encoding/json writes, for every character and their neighbours.
func TestJSONLength(t *testing.T) {
	t.Parallel()
	check := func(text string) {
		t.Helper()
		if raw, err := json.Marshal(text); err != nil || jsonLength(text) != len(raw)-2 {
			t.Errorf("%q has %d bytes as JSON (%v), not %d", text, len(raw)-2, err, jsonLength(text))
		}
	}
	for r := range rune(0x3000) {
		if r > 0 {
			check("a" + string(r) + "\u2028" + string(r) + "é")
		}
	}
	check("\u2028\u2029\u202a\u2027🦜<&>\"\\\b\f\n\r\t\x7f")
}
