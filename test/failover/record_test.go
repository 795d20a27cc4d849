//go:build failover

package failover

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-chat/parley/test/consistency"
	"github.com/parley-chat/parley/x402"
)

// attempt is one request of a call and what came of it.
type attempt struct {
	window
	server  *server
	paid    bool          // it had a payment
	wait    time.Duration // that it asked for
	status  int           // 0: the connection was lost
	code    string
	charged *bool
}

// uncharged reports whether the caller was told that it was not charged.
func (a *attempt) uncharged() bool {
	return a.paid && (a.charged != nil && !*a.charged || a.status == http.StatusPaymentRequired && a.charged == nil)
}

// call is what a client wanted, with all attempts. The transport adds to it through the context.
type call struct {
	content  string // of the message
	attempts []*attempt
	acked    bool // the last response was 200
	unknown  bool // the client gave up without an outcome
}

// refused reports whether the client was told that nothing was done.
func (c *call) refused() bool { return !c.acked && !c.unknown }

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// transport sends each attempt to the next server and records it.
type transport struct {
	servers []*server
	next    atomic.Int64
	base    *consistency.Recorder

	mu   sync.Mutex
	all  []*attempt
	acks []*attempt // responses 200 to paid calls, in the order of time
}

func newTransport(servers []*server) *transport {
	// A client that waits longer than the limit shows by how much it was exceeded.
	base := &http.Transport{MaxIdleConnsPerHost: 64, ResponseHeaderTimeout: 90 * time.Second}
	return &transport{servers: servers, base: consistency.NewRecorder(base)}
}

// RoundTrip sends one request.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	s := t.servers[int(t.next.Add(1))%len(t.servers)]
	request = request.Clone(request.Context())
	request.URL.Host = s.listen
	a := &attempt{server: s, window: window{from: time.Now()}, paid: request.Header.Get(x402.HeaderPaymentSignature) != ""}
	if seconds, err := strconv.Atoi(request.URL.Query().Get("wait")); err == nil {
		a.wait = time.Duration(seconds) * time.Second
	}
	response, err := t.base.RoundTrip(request)
	if err == nil {
		err = a.learn(response)
	}
	a.to = time.Now()
	if c, ok := request.Context().Value(callKey{}).(*call); ok {
		c.attempts = append(c.attempts, a) // one client, one request at a time
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, a)
	if a.paid && a.status == http.StatusOK {
		t.acks = append(t.acks, a)
	}
	return response, err
}

// learn reads what the response says, and leaves it readable.
func (a *attempt) learn(response *http.Response) error {
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return err
	}
	a.status = response.StatusCode
	var problem struct {
		Code    string
		Charged *bool
	}
	if response.StatusCode != http.StatusOK && json.Unmarshal(body, &problem) == nil {
		a.code, a.charged = problem.Code, problem.Charged
	}
	return nil
}

// since returns the attempts that ended after a time.
func (t *transport) since(from time.Time) (found []*attempt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range t.all {
		if a.to.After(from) {
			found = append(found, a)
		}
	}
	return found
}

// ackedBy counts the servers that acknowledged a paid call after a time.
func (t *transport) ackedBy(after time.Time) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	by := map[*server]bool{}
	for i := len(t.acks) - 1; i >= 0 && t.acks[i].to.After(after); i-- {
		if t.acks[i].from.After(after) {
			by[t.acks[i].server] = true
		}
	}
	return len(by)
}
