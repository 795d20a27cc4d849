package testkit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// Dialect is a way in which facilitators of others differ from that of the play-money network. docs/payments.md says how the server
// reacts to each ("Facilitators as they are").
type Dialect struct {
	Name string
	// Never is the kind of payments that it never brings to the chain, as in [PaymentKind], AllKinds, or "".
	Never  string
	answer func(*Speaker, *dialectCall) dialectAnswer
}

// AllKinds are all kinds of payments.
const AllKinds = "all"

// Speaker is a facilitator that speaks a dialect over a network. Calls of its other endpoints go through, such as /rpc.
type Speaker struct {
	dialect    Dialect
	network    http.Handler
	halfAnHour time.Duration

	mu    sync.Mutex
	calls map[string]*dialectCall // by path and body
	count int
	last  string // see echo, mix and report
}

// DialectNamed returns the dialect of this name.
func DialectNamed(name string) Dialect {
	i := slices.IndexFunc(Dialects, func(d Dialect) bool { return d.Name == name })
	return Dialects[i]
}

// Over returns a facilitator that speaks the dialect over a network. halfAnHour stands for this time.
func (d Dialect) Over(network http.Handler, halfAnHour time.Duration) *Speaker {
	return &Speaker{dialect: d, network: network, halfAnHour: halfAnHour, calls: map[string]*dialectCall{}}
}

// dialectCall is a call of /settle, /verify or /supported, and its repetitions.
type dialectCall struct {
	path   string
	kind   string // see PaymentKind
	body   []byte
	hash   string               // of a transaction that there may never be
	act    func() dialectAnswer // lets the network act
	times  int                  // that it came
	number int                  // among the calls of the speaker; the newest repetition's
	mined  *dialectAnswer
}

// dialectAnswer is the response to a call. With status 0 there is none.
type dialectAnswer struct {
	status     int
	retryAfter string
	body       string
}

func (a dialectAnswer) settles() bool { return strings.Contains(a.body, `"success":true`) }

// ServeHTTP answers one call at a time.
func (s *Speaker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/settle" && r.URL.Path != "/verify" && r.URL.Path != "/supported" {
		s.network.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	answer := s.speak(r.URL.Path, body)
	if answer.status == 0 {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if answer.retryAfter != "" {
		w.Header().Set("Retry-After", answer.retryAfter)
	}
	w.WriteHeader(answer.status)
	_, _ = io.WriteString(w, answer.body) // a server that is gone reads nothing
}

func (s *Speaker) speak(path string, body []byte) dialectAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := path + string(body)
	call := s.calls[name]
	if call == nil {
		call = &dialectCall{path: path, kind: PaymentKind(body), body: body, hash: fmt.Sprintf("0x%x", sha256.Sum256([]byte(name)))}
		call.act = func() dialectAnswer { return s.pass(path, body) }
		s.calls[name] = call
	}
	s.count++
	call.number = s.count
	call.times++
	return s.dialect.answer(s, call)
}

// pass lets the network answer.
func (s *Speaker) pass(path string, body []byte) dialectAnswer {
	method := http.MethodPost
	if path == "/supported" {
		method = http.MethodGet
	}
	reply := httptest.NewRecorder()
	s.network.ServeHTTP(reply, httptest.NewRequestWithContext(context.Background(), method, path, bytes.NewReader(body)))
	return dialectAnswer{status: reply.Code, body: reply.Body.String()}
}

// mine lets the network act on a call after half an hour.
func (s *Speaker) mine(call *dialectCall) {
	time.AfterFunc(s.halfAnHour, func() {
		answer := call.act()
		s.mu.Lock()
		defer s.mu.Unlock()
		call.mined = &answer
	})
}

// JSONText returns the first member of this name in JSON without spaces, if it is a text, in lower case.
func JSONText(body []byte, name string) string {
	_, rest, _ := bytes.Cut(body, []byte(`"`+name+`":"`))
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	return strings.ToLower(string(text))
}

// PaymentKind is the kind of the payment or the command in a call of the facilitator: "deposit", "voucher", "claim", "settle" or "refund"
// of payment channels; "exact" for all others.
func PaymentKind(body []byte) string {
	_, rest, found := bytes.Cut(body, []byte(`"payload":{"type":"`))
	if !found {
		return "exact"
	}
	kind, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(kind)
}
