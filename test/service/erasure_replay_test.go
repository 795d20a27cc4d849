package service

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// paidCalls is a transport that keeps the calls that were paid for.
type paidCalls struct {
	next  http.RoundTripper
	mu    sync.Mutex
	calls []paidCall
}

type paidCall struct {
	request *http.Request
	body    []byte
}

func (p *paidCalls) RoundTrip(request *http.Request) (*http.Response, error) {
	var body []byte
	if request.Body != nil {
		var err error
		if body, err = io.ReadAll(request.Body); err != nil {
			return nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	response, err := p.next.RoundTrip(request)
	if err == nil && response.StatusCode == http.StatusOK && request.Header.Get(x402.HeaderPaymentSignature) != "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.calls = append(p.calls, paidCall{request, body})
	}
	return response, err
}

// repeat sends the calls again, and returns how many responses of each operation contain one of the texts.
func (p *paidCalls) repeat(t *testing.T, texts ...string) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, call := range p.calls {
		request := call.request.Clone(t.Context())
		request.Body = io.NopCloser(bytes.NewReader(call.body))
		response, err := p.next.RoundTrip(request)
		testkit.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode >= http.StatusInternalServerError {
			t.Errorf("%s again: %d %s, %v", request.URL.Path, response.StatusCode, body, err)
		}
		if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(string(body)), text) }) {
			found[testkit.Operations[request.Method+" "+request.URL.Path].Operation.OperationID]++
		}
	}
	return found
}

// TestErasureReachesEveryRead: after an erasure no repetition of any call that anybody paid for before shows what the agent wrote, and no
// stored response of a read is left. The test pays for every read before.
func TestErasureReachesEveryRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	paid := &paidCalls{next: w.http.Transport}
	w.http.Transport = paid
	f := w.full()
	f.agent.must("/chat/group/create", fields{"name": "zorblax open", "description": trace, "is_discoverable": true})
	for _, reader := range []*agent{f.peer, f.agent} {
		f.me(reader, reader.Key).Require(t, "its own profile", http.StatusOK)
		reader.unread(nil, nil, nil)
		reader.must("/agent/profile", fields{"agent_id": f.agent})
		for _, kind := range []string{"agents", "groups", "channels"} {
			reader.must("/search/"+kind, fields{"query": "zorblax"})
		}
		for kind, of := range map[string]fields{
			"/chat/private/": {"chat_id": f.chat}, "/chat/group/": {"chat_id": f.group}, "/channel/": {"channel_id": f.news},
		} {
			search := maps.Clone(of)
			search["query"] = trace
			reader.must(kind+"info", of)
			reader.must(kind+"messages", of)
			reader.must(kind+"search", search)
		}
	}
	reads, err := parley.Reads()
	testkit.NoError(t, err)
	before := paid.repeat(t, "zorblax", trace)
	for _, read := range reads {
		if before[read] == 0 {
			t.Errorf("no response of %s shows what the agent wrote before its erasure", read)
		}
	}
	o := f.operator()
	o.suspend(f.agent, "")
	o.erase(f.agent)
	o.must(o.on.FinishErasure(t.Context(), o.id(f.agent.ID)))
	f.eraseReads()
	if after := paid.repeat(t, "zorblax", trace); len(after) > 0 {
		t.Errorf("these repetitions show what the erased agent wrote: %v; before the erasure: %v", after, before)
	}
	if stored := f.Count("SELECT count(*) FROM payments WHERE response IS NOT NULL AND operation = ANY ($1)", reads); stored > 0 {
		t.Errorf("%d stored responses of reads are left", stored)
	}
}
