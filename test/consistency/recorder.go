package consistency

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/parley-chat/parley/x402"
)

// never is the end of a call whose outcome is not known: it may still have its effect after everything else.
const never = int64(1) << 62

// attempt is one request and its response.
type attempt struct {
	server     string
	begin, end int64
	status     int // 0: no response
	code       string
	unknown    bool // the call may have happened, or may still happen
}

// call is one call of a client with all requests that it took: those that send the same message, and otherwise those with the same content
// and the same payment identifier, voucher or payment.
type call struct {
	path, query string
	asked       asked
	key         string // API key
	attempts    []attempt
	response    answer // of the first 200
	first200    int64  // when it came; 0: never
}

// asked is what the checks read of requests.
type asked struct {
	ChatID           string   `json:"chat_id"`
	ChannelID        string   `json:"channel_id"`
	RecipientAgentID string   `json:"recipient_agent_id"`
	AgentID          string   `json:"agent_id"`
	Content          string   `json:"content"`
	N, Page          int64    //
	Before           string   `json:"before_message_id"`
	MarkRead         *bool    `json:"mark_read"`
	Initial          []string `json:"initial_member_ids"`
	Add              []string `json:"add_member_ids"`
	Remove           []string `json:"remove_member_ids"`
	Ban              []string `json:"ban_agent_ids"`
	Unban            []string `json:"unban_agent_ids"`
}

// answer is what the checks read of responses.
type answer struct {
	AgentID   string `json:"agent_id"`
	APIKey    string `json:"api_key"`
	ChatID    string `json:"chat_id"`
	ChannelID string `json:"channel_id"`
	MessageID string `json:"message_id"`
	Messages  []struct {
		MessageID string `json:"message_id"`
		SourceID  string `json:"source_id"`
	}
	Notices []notice
	Total   int64
	Unread  int64 `json:"total_unread"`
	Cursor  string
}

type notice struct {
	Type     string
	SourceID string      `json:"source_id"`
	At       json.Number `json:"created_at"`
}

// Recorder is a transport that records calls.
type Recorder struct {
	base  http.RoundTripper
	began time.Time

	mu       sync.Mutex
	calls    map[string]*call
	order    []*call
	uses     []use
	payments payments
}

// use is a request with an API key that was accepted or rejected.
type use struct {
	attempt
	key string
}

// NewRecorder returns a recorder that sends requests over base.
func NewRecorder(base http.RoundTripper) *Recorder {
	return &Recorder{base: base, began: time.Now(), calls: map[string]*call{},
		payments: payments{vouchers: map[string]*voucher{}}}
}

func (r *Recorder) now() int64 { return int64(time.Since(r.began)) }

// RoundTrip sends a request to the server of its URL.
func (r *Recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	var sent []byte
	if request.Body != nil {
		var err error
		sent, err = io.ReadAll(request.Body)
		_ = request.Body.Close()
		if err != nil {
			return nil, err
		}
		request = request.Clone(request.Context())
		request.Body = io.NopCloser(bytes.NewReader(sent))
	}
	a := attempt{server: request.URL.Host, begin: r.now()}
	response, err := r.base.RoundTrip(request)
	var got []byte
	if err == nil {
		got, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
		response.Body = io.NopCloser(bytes.NewReader(got))
	}
	a.end = r.now()
	var header http.Header
	if err == nil {
		a.status, header = response.StatusCode, response.Header
	}
	r.note(request, sent, a, header, got)
	return response, err
}

// note records one request.
func (r *Recorder) note(request *http.Request, sent []byte, a attempt, header http.Header, got []byte) {
	if a.status != http.StatusOK && a.status != http.StatusNoContent {
		var problem struct{ Code, Message string }
		_ = json.Unmarshal(got, &problem)
		if a.code = problem.Code; a.code == "blocked" && strings.HasPrefix(problem.Message, "you have blocked") {
			a.code = "blocking"
		}
	}
	switch a.status {
	case 0, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		a.unknown = true
	case http.StatusConflict:
		a.unknown = a.code == "payment_in_progress"
	}
	key, payment := request.Header.Get("X-API-KEY"), request.Header.Get(x402.HeaderPaymentSignature)
	paid, _ := x402.DecodePayment(payment)
	id := cmp.Or(payment, request.Header.Get(x402.HeaderPaymentV1))
	batch, fromChannel := paid.(*x402.BatchPayment)
	fromChannel = fromChannel && batch.Payload.Type != x402.BatchRefund
	if fromChannel { // the deposit beside a voucher does not make it another call
		id = batch.Payload.Voucher.ChannelID + " " + batch.Payload.Voucher.MaxClaimableAmount
	}
	if paid != nil {
		var identifier struct{ Info struct{ ID string } }
		if json.Unmarshal(paid.Extension("payment-identifier"), &identifier) == nil && identifier.Info.ID != "" {
			id = identifier.Info.ID
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if key != "" && (a.status == http.StatusOK || a.status == http.StatusUnauthorized) && request.URL.Path != rotatePath {
		r.uses = append(r.uses, use{a, key})
	}
	if id == "" {
		return
	}
	if strings.HasSuffix(request.URL.Path, "/send") { // each message has its own content
		id = ""
	}
	content := strings.Join([]string{request.URL.Path, request.URL.RawQuery, string(sent)}, "\n")
	name := id + "\n" + content
	c := r.calls[name]
	if c == nil {
		c = &call{path: request.URL.Path, query: request.URL.RawQuery, key: key}
		_ = json.Unmarshal(sent, &c.asked)
		r.calls[name] = c
		r.order = append(r.order, c)
	}
	c.attempts = append(c.attempts, a)
	if a.status == http.StatusOK && (c.first200 == 0 || a.end < c.first200) {
		c.first200 = a.end
		c.response = answer{}
		_ = json.Unmarshal(got, &c.response)
	}
	if fromChannel {
		r.payments.note(batch, content, a, header)
	}
}

// begin is when the first request was sent.
func (c *call) begin() int64 {
	begin := never
	for _, a := range c.attempts {
		begin = min(begin, a.begin)
	}
	return begin
}

// ok reports whether the call returned 200.
func (c *call) ok() bool { return c.first200 != 0 }

// unknown reports whether the call may have happened although it never returned 200.
func (c *call) unknown() bool {
	for _, a := range c.attempts {
		if a.unknown && !c.ok() {
			return true
		}
	}
	return false
}

// refused returns the code with which the last request was refused, "" if the outcome is another one.
func (c *call) refused() (code string, end int64) {
	if c.ok() || c.unknown() {
		return "", 0
	}
	last := c.attempts[len(c.attempts)-1]
	return last.code, last.end
}

// interval returns when the call may have happened.
func (c *call) interval() (begin, end int64) {
	switch _, refused := c.refused(); {
	case c.ok():
		return c.begin(), c.first200
	case refused != 0:
		return c.begin(), refused
	}
	return c.begin(), never
}

// servers are those that can have handled the call.
func (c *call) servers() map[string]bool {
	all := map[string]bool{}
	for _, a := range c.attempts {
		all[a.server] = true
	}
	return all
}

// poll is what the query of a call for unread messages asks.
func (c *call) poll() (marks bool, through string) {
	query, _ := url.ParseQuery(c.query)
	through = query.Get("read_through")
	return query.Get("mark_read") != "false" && through == "", through
}
