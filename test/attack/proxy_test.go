//go:build attack

package attack

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
)

// proxy stands between the servers and the facilitator and can make it fail in every way. A fault decides what becomes
// of one call of /verify or /settle; without one, and for everything else, the call goes through.
type proxy struct {
	t       testing.TB
	url     string
	address string
	network *devnet.Facilitator

	mu     sync.Mutex
	server *http.Server // nil while the port is closed
	fault  fault
	calls  map[string]int // by path, by kind, and by payer: "/settle claim", "/settle by 0x…"
	idle   chan struct{}  // closed when the test ends: whoever hangs lets go
}

// fault handles one call of /verify or /settle.
type fault func(c *call)

// call is one call of the facilitator. A fault that does nothing with it replies 200 with nothing.
type call struct {
	p    *proxy
	path string // "/verify" or "/settle"
	body []byte
	w    http.ResponseWriter
	r    *http.Request
}

func newProxy(t testing.TB, network *devnet.Facilitator) *proxy {
	t.Helper()
	p := &proxy{t: t, address: testkit.FreeAddress(t), network: network, calls: map[string]int{}, idle: make(chan struct{})}
	p.url = "http://" + p.address
	p.open()
	t.Cleanup(func() {
		close(p.idle)
		p.close()
	})
	return p
}

// open lets the port reply.
func (p *proxy) open() {
	p.t.Helper()
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatalf("the facilitator's port: %v", err)
	}
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			p.t.Errorf("the facilitator's port: %v", err)
		}
	}()
}

// close makes the port refuse connections and cuts those that there are. It waits until the servers have noticed: a request on a
// connection that they keep would count as sent.
func (p *proxy) close() {
	p.mu.Lock()
	server := p.server
	p.server = nil
	p.mu.Unlock()
	if server != nil {
		_ = server.Close()
		time.Sleep(200 * time.Millisecond)
	}
}

// breakWith sets what becomes of the calls from now on.
func (p *proxy) breakWith(f fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// mend lets every call through from now on.
func (p *proxy) mend() { p.breakWith(nil) }

// count returns how often a path was called so far.
func (p *proxy) count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[path]
}

// ServeHTTP is one call.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.calls[r.URL.Path]++
	p.calls[r.URL.Path+" "+testkit.PaymentKind(body)]++
	if payer := testkit.JSONText(body, "from"); payer != "" {
		p.calls[r.URL.Path+" by "+payer]++
	}
	c := &call{p: p, path: r.URL.Path, body: body, w: w, r: r}
	fault := p.fault
	p.mu.Unlock()
	if fault == nil || (c.path != "/verify" && c.path != "/settle" && c.path != "/supported") {
		fault = pass
	}
	fault(c)
}

// forward lets the facilitator act and keeps its reply back.
func (c *call) forward() *httptest.ResponseRecorder {
	request := c.r.Clone(c.r.Context())
	request.Body = io.NopCloser(bytes.NewReader(c.body))
	reply := httptest.NewRecorder()
	c.p.network.ServeHTTP(reply, request)
	return reply
}

// write replies the call.
func (c *call) write(status int, body string) {
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	_, _ = io.WriteString(c.w, body) // a server that is gone reads nothing
}

// pass lets the call through.
func pass(c *call) {
	reply := c.forward()
	c.write(reply.Code, reply.Body.String())
}

// dropBefore hangs up without having asked the facilitator: the money did not move.
func dropBefore(c *call) { testkit.HangUp(c.w) }

// dropAfter hangs up after the facilitator has acted: the money moved.
func dropAfter(c *call) {
	c.forward()
	testkit.HangUp(c.w)
}

// cutAfter hangs up in the middle of the facilitator's reply.
func cutAfter(c *call) {
	body := c.forward().Body.String()
	testkit.CutOff(c.w, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body),
		body[:len(body)/2]))
}

// respond responds without having asked the facilitator.
func respond(status int, body string) fault {
	return func(c *call) { c.write(status, body) }
}

// respondAfter lets the facilitator act and replies something else.
func respondAfter(status int, body string) fault {
	return func(c *call) {
		c.forward()
		c.write(status, body)
	}
}

// delayed waits before it goes on.
func delayed(d time.Duration, then fault) fault {
	return func(c *call) {
		select {
		case <-time.After(d):
		case <-c.p.idle:
		}
		then(c)
	}
}

// onSettle breaks /settle only.
func onSettle(f fault) fault {
	return func(c *call) {
		if c.path != "/settle" {
			pass(c)
			return
		}
		f(c)
	}
}
