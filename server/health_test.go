package server_test

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// slowDatabase stands between the server and its database and lets each packet of the server wait.
type slowDatabase struct {
	url   string
	delay atomic.Int64
}

func newSlowDatabase(t *testing.T) *slowDatabase {
	t.Helper()
	direct, err := url.Parse(storetest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	network, to := "tcp", direct.Host
	if host := direct.Query().Get("host"); host != "" { // a socket
		port := direct.Query().Get("port")
		if port == "" {
			port = "5432"
		}
		network, to = "unix", host+"/.s.PGSQL."+port
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	between := *direct
	between.Host = listener.Addr().String()
	query := between.Query()
	query.Del("host")
	query.Del("port")
	between.RawQuery = query.Encode()
	d := &slowDatabase{url: between.String()}
	go func() {
		for {
			front, err := listener.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial(network, to)
			if err != nil {
				_ = front.Close()
				continue
			}
			go func() {
				defer func() { _ = front.Close() }()
				_, _ = io.Copy(front, back)
			}()
			go func() {
				defer func() { _ = back.Close() }()
				packet := make([]byte, 64<<10)
				for {
					n, err := front.Read(packet)
					if err != nil {
						return
					}
					for came := time.Now(); time.Since(came) < time.Duration(d.delay.Load()); {
						time.Sleep(10 * time.Millisecond)
					}
					if _, err := back.Write(packet[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return d
}

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
	database := newSlowDatabase(t)
	w := newWorldOn(t, database.url)
	t.Cleanup(func() { database.delay.Store(0) })
	if statuses, _ := w.health(); statuses[http.StatusOK] != 20 { // nothing is known yet: they wait for the first
		t.Fatalf("20 calls of /health end as %v, want 200", statuses)
	}

	// The database replies within its two seconds, but not for two calls after each other.
	database.delay.Store(int64(1200 * time.Millisecond))
	if statuses, slowest := w.health(); statuses[http.StatusOK] != 20 || slowest > 2*time.Second {
		t.Errorf("with a slow database 20 calls of /health end as %v after %v, want 200 within 2 s", statuses, slowest)
	}

	// It does not reply: whoever asks it says so, and then everybody.
	database.delay.Store(int64(time.Hour))
	asked := make(chan testkit.Reply)
	go func() {
		a, _ := w.try(http.MethodGet, "/health", "")
		asked <- a
	}()
	time.Sleep(100 * time.Millisecond)
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
}
