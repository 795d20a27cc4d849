package storetest

import (
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Route is a TCP route to a database that can be cut off: then nothing is forwarded, and nobody is told.
type Route struct {
	network, address string // of the database

	mu   sync.Mutex
	open *sync.Cond
	cut  bool
}

// RouteTo returns a route to the database at a URL until the test ends, and the URL of the database over the route.
func RouteTo(t testing.TB, databaseURL string) (*Route, string) {
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
	r := &Route{}
	r.network, r.address = pgconn.NetworkAddress(config.Host, config.Port)
	r.open = sync.NewCond(&r.mu)
	t.Cleanup(func() {
		_ = listener.Close()
		r.Cut(false)
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

// Cut cuts the route off, or mends it: then what was sent meanwhile arrives.
func (r *Route) Cut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
	r.open.Broadcast()
}

func (r *Route) forward(ctx context.Context, from net.Conn) {
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
