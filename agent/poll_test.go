package agent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// The simulated month: each day has eight conversations of six messages, which come some minutes after each other.
const (
	simulatedDays = 30
	conversations = 8
	exchanged     = 6
	replyTime     = 3 * time.Minute
	pollPrice     = 0.001
)

// arrivals returns when messages are received and sent in the month. Every second message of a conversation is our own, sent after
// the one before it was read; the simulation sends it at once.
func arrivals(chance *rand.Rand) (received []time.Duration) {
	for d := range simulatedDays {
		for range conversations {
			at := time.Duration(d)*day + time.Duration(chance.Int64N(int64(day-time.Hour)))
			for range exchanged / 2 {
				received = append(received, at)
				at += replyTime + time.Duration(chance.ExpFloat64()*float64(replyTime))
			}
		}
	}
	slices.Sort(received)
	return received
}

// month is what a month of polling costs and brings.
type month struct {
	polls     int
	latencies []time.Duration
}

// simulate polls for a month. pause returns the next pause; found is called after a fetch that brought messages.
func simulate(received []time.Duration, clock *time.Time, wait time.Duration, pause func() time.Duration, fetched,
	active func()) (m month) {
	start := *clock
	next := 0
	for {
		now := clock.Add(pause()).Sub(start)
		if now > simulatedDays*day {
			return m
		}
		if next < len(received) {
			now = max(now, min(received[next], now+wait)) // it returns when a message comes
		} else {
			now += wait
		}
		*clock = start.Add(now)
		m.polls++
		fetched()
		found := false
		for next < len(received) && received[next] <= now {
			m.latencies = append(m.latencies, now-received[next])
			next++
			found = true
		}
		if found {
			active() // and it answers, which is activity too
		}
	}
}

func (m month) row(name string) string {
	slices.Sort(m.latencies)
	at := func(share float64) int { return int(m.latencies[int(share*float64(len(m.latencies)-1))].Seconds()) }
	return fmt.Sprintf("| %s | %d | %.2f | %d s, %d s |", name, m.polls/simulatedDays, float64(m.polls)*pollPrice, at(0.5), at(0.95))
}

// policies are those of the documentation's table.
var policies = []struct {
	name   string
	policy Polling
}{
	{"every minute, without waiting", Polling{Wait: 1, First: time.Minute, Longest: time.Minute, PerDay: 1 << 30}},
	{"every 5 minutes", Polling{Wait: time.Minute, First: 4 * time.Minute, Longest: 4 * time.Minute, PerDay: 1 << 30}},
	{"adaptive, at most 5 minutes, no budget", Polling{Longest: 5 * time.Minute, PerDay: 1 << 30}},
	{"**adaptive, at most 15 minutes, 100 a day (default)**", DefaultPolling},
	{"adaptive, at most an hour, 50 a day", Polling{Longest: time.Hour, PerDay: 50}},
}

// TestPollingCosts simulates a month with each policy and compares the costs with the documentation's table.
func TestPollingCosts(t *testing.T) {
	t.Parallel()
	documented, err := os.ReadFile("../docs/agents.md")
	testkit.NoError(t, err)
	var table strings.Builder
	missing := false
	for _, p := range policies {
		chance := rand.New(rand.NewPCG(16, 16)) //nolint:gosec // the same month each time
		received := arrivals(chance)
		clock := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
		poller := NewPoller(p.policy)
		poller.Now, poller.Random = func() time.Time { return clock }, chance.Float64
		month := simulate(received, &clock, poller.Wait, poller.Pause, poller.Fetched, poller.Active)
		row := month.row(p.name)
		table.WriteString(row + "\n")
		missing = missing || !strings.Contains(string(documented), row)
		if perDay := month.polls / simulatedDays; perDay > p.policy.PerDay {
			t.Errorf("%s: %d fetches a day, want at most %d", p.name, perDay, p.policy.PerDay)
		}
	}
	if missing {
		t.Errorf("docs/agents.md does not have this table:\n%s", table.String())
	}
}

// TestPollingBudget: in no 24 hours there are more fetches than the budget, and the pauses stay reasonable.
func TestPollingBudget(t *testing.T) {
	t.Parallel()
	chance := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same month each time
	clock := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	poller := NewPoller(DefaultPolling)
	poller.Now, poller.Random = func() time.Time { return clock }, chance.Float64
	var at []time.Time
	for range 3000 {
		pause := poller.Pause()
		if pause > 2*time.Hour {
			t.Fatalf("a pause of %s", pause)
		}
		clock = clock.Add(pause)
		poller.Fetched()
		at = append(at, clock)
		if chance.IntN(4) == 0 {
			poller.Active()
		}
	}
	for i := DefaultPolling.PerDay; i < len(at); i++ {
		if at[i].Sub(at[i-DefaultPolling.PerDay]) < day {
			t.Fatalf("more than %d fetches in 24 hours before %s", DefaultPolling.PerDay, at[i])
		}
	}
}

// TestMost: a poller that always finds messages fetches at once as long as the rest of the budget lasts for the rest of the day.
func TestMost(t *testing.T) {
	t.Parallel()
	for policy, want := range map[Polling]int{
		DefaultPolling: 7, {PerDay: 5000, Longest: time.Minute}: 3619, {PerDay: 10, Longest: 15 * time.Minute}: 1,
	} {
		if got := policy.Most(time.Hour); got != want {
			t.Errorf("%+v fetches at most %d times in an hour, want %d", policy, got, want)
		}
	}
}
