package store

import (
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
