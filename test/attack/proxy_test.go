//go:build attack

package attack

import (
	"bytes"
	"context"
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
	mute   bool           // nothing is replied at all
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
	p.fault, p.mute = f, false
}

// stopResponding takes every call of the facilitator, of whatever path, and responds to none of them until the test ends. The chain's
// endpoint, which shares the port, goes on.
func (p *proxy) stopResponding() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
}

// mend lets every call through from now on.
func (p *proxy) mend() { p.breakWith(nil) }

// count returns how often a path was called so far.
func (p *proxy) count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[path]
}

// asked returns how often the facilitator was asked for anything that concerns a payment.
func (p *proxy) asked() int { return p.count("/verify") + p.count("/settle") }

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
	fault, mute := p.fault, p.mute
	p.mu.Unlock()
	if mute && c.path != "/rpc" {
		silent(c)
		return
	}
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

// wait lasts until release is closed, or the test ends.
func (c *call) wait(release <-chan struct{}) {
	select {
	case <-release:
	case <-c.p.idle:
	}
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

// silent takes the call and never replies.
func silent(c *call) { c.wait(nil) }

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

// held are calls of /settle that the proxy keeps waiting.
type held struct {
	p       *proxy
	reached chan struct{} // gets one for each call that waits
	let     chan struct{} // closed by release
	once    sync.Once
}

// hold keeps the next n calls of /settle that agents caused waiting until release; the others go through, as do claims and
// payouts, which servers begin at times of their own. With acted the facilitator acts first, so that only its replies wait;
// else it hears of them only then.
func (p *proxy) hold(n int, acted bool) *held {
	h := &held{p: p, reached: make(chan struct{}, n), let: make(chan struct{})}
	left := make(chan struct{}, n)
	for range n {
		left <- struct{}{}
	}
	p.breakWith(onSettle(func(c *call) {
		if kind := testkit.PaymentKind(c.body); kind == "claim" || kind == "settle" { // not a payment of an agent
			pass(c)
			return
		}
		select {
		case <-left:
		default:
			pass(c)
			return
		}
		if !acted {
			h.reached <- struct{}{}
			c.wait(h.let)
			pass(c)
			return
		}
		reply := c.forward()
		h.reached <- struct{}{}
		c.wait(h.let)
		c.write(reply.Code, reply.Body.String())
	}))
	return h
}

// whileSettling sends a payment, runs meanwhile as its call of /settle waits, as hold says, and returns its reply.
func (p *proxy) whileSettling(t testing.TB, acted bool, send func(context.Context) (testkit.Reply, error), meanwhile func()) testkit.Reply {
	t.Helper()
	hold := p.hold(1, acted)
	replied := make(chan testkit.Reply, 1)
	go func() {
		r, _ := send(context.WithoutCancel(t.Context()))
		replied <- r
	}()
	hold.await(t)
	meanwhile()
	hold.release()
	return <-replied
}

// await returns when a further call waits.
func (h *held) await(t testing.TB) {
	t.Helper()
	select {
	case <-h.reached:
	case <-time.After(20 * time.Second):
		t.Fatal("no call of /settle came in 20 s")
	}
}

// release lets the calls go on, and those that come later through.
func (h *held) release() {
	h.once.Do(func() {
		h.p.mend()
		close(h.let)
	})
}
