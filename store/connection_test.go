package store_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// route is a TCP route to a database that can be cut off: then nothing is forwarded, and nobody is told.
type route struct {
	net.Listener
	network, address string // of the database

	mu   sync.Mutex
	open *sync.Cond
	cut  bool
}

// routeTo returns a route to the database at a URL, and the URL of the database over the route.
func routeTo(t *testing.T, databaseURL string) (*route, string) {
	t.Helper()
	parsed, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &route{Listener: listener}
	r.network, r.address = pgconn.NetworkAddress(config.Host, config.Port)
	r.open = sync.NewCond(&r.mu)
	t.Cleanup(func() {
		_ = listener.Close()
		r.set(false)
	})
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go r.forward(t.Context(), from)
		}
	}()
	parsed.Host, parsed.RawQuery = listener.Addr().String(), "sslmode=disable"
	return r, parsed.String()
}

func (r *route) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	r.open.Broadcast()
}

func (r *route) forward(ctx context.Context, from net.Conn) {
	to, err := (&net.Dialer{}).DialContext(ctx, r.network, r.address)
	if err != nil {
		_ = from.Close()
		return
	}
	pass := func(to io.WriteCloser, from io.Reader) {
		defer to.Close()
		buffer := make([]byte, 16<<10)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			r.mu.Lock()
			for r.cut {
				r.open.Wait()
			}
			r.mu.Unlock()
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
	}
	go pass(to, from)
	pass(from, to)
}

// TestSilentDatabase: no call waits longer than five seconds for a database that does not answer. After the first calls, calls are
// refused within a second. When the database is back, calls succeed again.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	route, databaseURL := routeTo(t, storetest.URL(t))
	s, err := store.Open(t.Context(), databaseURL, store.Serving)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	calls := map[string]func() error{
		"a statement of pgx": func() error {
			_, err := s.Unread(t.Context(), uuid.New(), 1, 10)
			return err
		},
		"a statement of GORM": func() error {
			_, err := s.AgentByID(t.Context(), uuid.New())
			return err
		},
		"a transaction": func() error {
			return s.Transaction(t.Context(), func(tx *store.Store) error { return tx.CheckAgents(t.Context(), nil) })
		},
	}
	all := func(most time.Duration) (failed int) {
		var group sync.WaitGroup
		var mu sync.Mutex
		for name, call := range calls {
			for range 20 {
				group.Go(func() {
					begun := time.Now()
					err := call()
					mu.Lock()
					defer mu.Unlock()
					if took := time.Since(begun); took > most {
						t.Errorf("%s took %v, want at most %v (%v)", name, took, most, err)
					}
					if store.Unavailable(err) {
						failed++
					}
				})
			}
		}
		group.Wait()
		return failed
	}
	if failed := all(5 * time.Second); failed > 0 {
		t.Fatalf("%d calls fail before the fault", failed)
	}
	route.set(true)
	if failed := all(5 * time.Second); failed != 60 {
		t.Errorf("%d of 60 calls are refused while the database is cut off", failed)
	}
	if failed := all(time.Second + 500*time.Millisecond); failed != 60 { // the machine may be busy
		t.Errorf("%d of 60 later calls are refused while the database is cut off", failed)
	}
	route.set(false)
	for deadline := time.Now().Add(10 * time.Second); all(5*time.Second) > 0; {
		if time.Now().After(deadline) {
			t.Fatal("calls fail although the database is back")
		}
	}
}
