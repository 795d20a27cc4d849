//go:build attack

package attack

import (
	"bytes"
	"net"
	"net/http"
	"net/url"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

// databaseProxy is a proxy for the database that can delay what the database sends unasked: connections that said LISTEN
// get nothing more while they are frozen. It can also be slow.
type databaseProxy struct {
	url   string
	delay time.Duration // of everything that is asked; set before it is used

	mu    sync.Mutex
	moved *sync.Cond
	ice   bool
	ears  int // connections that listen
}

func newDatabaseProxy(t testing.TB, databaseURL string) *databaseProxy {
	t.Helper()
	address, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	network, target := "tcp", address.Host
	if socket := address.Query().Get("host"); socket != "" {
		network, target = "unix", path.Join(socket, ".s.PGSQL."+address.Query().Get("port"))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &databaseProxy{}
	g.moved = sync.NewCond(&g.mu)
	through := *address
	through.Host, through.RawQuery = listener.Addr().String(), "sslmode=disable"
	g.url = through.String()
	t.Cleanup(func() {
		_ = listener.Close()
		g.thaw()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go g.join(network, target, client)
		}
	}()
	return g
}

func (g *databaseProxy) join(network, target string, client net.Conn) {
	defer hangUp(client)
	database, err := net.Dial(network, target)
	if err != nil {
		return
	}
	defer hangUp(database)
	var once sync.Once
	listens := make(chan struct{})
	go func() {
		defer hangUp(database)
		buffer := make([]byte, 64<<10)
		for {
			n, err := client.Read(buffer)
			if bytes.Contains(bytes.ToLower(buffer[:n]), []byte("listen ")) {
				once.Do(func() {
					close(listens)
					g.mu.Lock()
					g.ears++
					g.mu.Unlock()
				})
			}
			time.Sleep(g.delay)
			if _, failed := database.Write(buffer[:n]); err != nil || failed != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := database.Read(buffer)
		select {
		case <-listens:
			g.mu.Lock()
			for g.ice {
				g.moved.Wait()
			}
			g.mu.Unlock()
		default:
		}
		if _, failed := client.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

func hangUp(connection net.Conn) { _ = connection.Close() }

func (g *databaseProxy) set(ice bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ice = ice
	g.moved.Broadcast()
}

func (g *databaseProxy) freeze() { g.set(true) }
func (g *databaseProxy) thaw()   { g.set(false) }

// frozen is how many connections said LISTEN so far.
func (g *databaseProxy) frozen() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ears
}

// refusedWithin uses a key until it is refused for a second, and fails the test if it works later than two seconds after
// its end. It returns when it worked last.
func refusedWithin(t testing.TB, use func() (testkit.Reply, error), began time.Time) (last time.Duration) {
	t.Helper()
	for time.Since(began) < 4*time.Second {
		sent := time.Since(began)
		r, err := use()
		switch {
		case err != nil:
			t.Errorf("no response: %v", err)
		case r.Status == http.StatusOK:
			last = sent
			if sent > 2*time.Second {
				t.Errorf("the old key works %s after it was rotated away", sent.Round(time.Millisecond))
				return last
			}
		case r.Status != http.StatusUnauthorized:
			t.Errorf("the old key: %v, want 401", r)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return last
}
