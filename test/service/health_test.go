package service

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// health asks 20 times at once and counts the statuses; the slowest reply took so long.
func (w *world) health() (statuses map[int]int, slowest time.Duration) {
	w.T.Helper()
	statuses = map[int]int{}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			started := time.Now()
			a, err := w.try(http.MethodGet, "/health", "")
			if err != nil {
				w.T.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[a.Status]++
			slowest = max(slowest, time.Since(started))
		})
	}
	asking.Wait()
	return statuses, slowest
}

// TestHealthAsksTheDatabaseOnce: one call at a time asks the database. The others get what came of it last, at once, and
// no call takes its own waiting for the database's.
func TestHealthAsksTheDatabaseOnce(t *testing.T) {
	t.Parallel()
	databaseURL := storetest.URL(t)
	route, serversURL := storetest.RouteTo(t, databaseURL)
	w := newWorldOver(t, databaseURL, serversURL)
	// On a busy machine it may take long to connect.
	if !testkit.Eventually(20*time.Second, func() bool { return w.store.Ping(t.Context()) == nil }) {
		t.Fatal("the database is unavailable")
	}
	if statuses, _ := w.health(); statuses[http.StatusOK] != 20 { // nothing is known yet: they wait for the first
		t.Fatalf("20 calls of /health end as %v, want 200", statuses)
	}

	// The database replies late, within its two seconds.
	route.Cut(true)
	time.AfterFunc(1200*time.Millisecond, func() { route.Cut(false) })
	if statuses, slowest := w.health(); statuses[http.StatusOK] != 20 || slowest > 2*time.Second {
		t.Errorf("with a slow database 20 calls of /health end as %v after %v, want 200 within 2 s", statuses, slowest)
	}

	// It does not reply: whoever asks it says so, and then everybody.
	route.Cut(true)
	asked := make(chan testkit.Reply)
	go func() {
		a, _ := w.try(http.MethodGet, "/health", "")
		asked <- a
	}()
	time.Sleep(500 * time.Millisecond)
	if statuses, slowest := w.health(); statuses[http.StatusOK] != 20 || slowest > time.Second {
		t.Errorf("while one call asks the database, 20 others end as %v after %v, want the last result at once", statuses, slowest)
	}
	if a := <-asked; a.Status != http.StatusServiceUnavailable || !strings.Contains(string(a.Body), "DEGRADED") {
		t.Errorf("the call that asked: %v, want 503 DEGRADED", a)
	}
	go func() { _, _ = w.try(http.MethodGet, "/health", "") }()
	time.Sleep(100 * time.Millisecond)
	if statuses, slowest := w.health(); statuses[http.StatusServiceUnavailable] != 20 || slowest > time.Second {
		t.Errorf("after that 20 calls end as %v after %v, want 503 at once", statuses, slowest)
	}
	route.Cut(false) // the connections of the server close
}

// TestHealthWhilePaidCallsFail: /health is DEGRADED while paid calls end in 5xx, not after one of them, and however many calls without a
// payment are made. Each 5xx says what to do if the payment expires meanwhile.
func TestHealthWhilePaidCallsFail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	status := func() string {
		reply := w.call(http.MethodGet, "/health", "")
		reply.Require(t, "/health", http.StatusOK)
		return reply.Text("status") + " " + reply.Text("message")
	}
	for range 6 { // with the six of the two registrations ten succeed
		alice.send(bob, "hello")
	}
	defer w.breakFacilitator(func(http.ResponseWriter, *http.Request) bool { return true })()
	fails := func() {
		t.Helper()
		failed := alice.sends(bob, "while it fails")
		if failed.Status != http.StatusServiceUnavailable || !strings.Contains(failed.Message, "a 402 then means that nothing was charged") {
			t.Errorf("a call while the facilitator fails: %v, want 503 that says what a 402 means", failed)
		}
	}
	if fails(); status() != "OK Parley is up and serving agents." {
		t.Errorf("after one failure /health says %q", status())
	}
	fails()
	for range 50 {
		w.call(http.MethodPost, sendPath, "")
	}
	if got := status(); !strings.HasPrefix(got, "DEGRADED More than a tenth of the paid calls") {
		t.Errorf("after two failures of twelve calls /health says %q", got)
	}
}
