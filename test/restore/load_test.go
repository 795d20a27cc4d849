//go:build restore

package restore

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// pace is the pause of a client between two calls.
const pace = 20 * time.Millisecond

// sender is a client that writes to one other.
type sender struct {
	*testkit.Agent
	to    string
	calls []call
}

// call is an acknowledged message.
type call struct {
	content      string
	begun, ended time.Time
}

// register makes a client with a wallet and an account. Every second one pays from a payment channel.
func (d *drill) register(name string, channel bool) *sender {
	d.t.Helper()
	var channels client.PaymentChannelStore
	if channel {
		channels = &client.MemoryChannels{}
	}
	limits := client.Limits{PerCall: 10 * testkit.Dollar, Total: 1000 * testkit.Dollar}
	s := &sender{Agent: testkit.NewAgent(d.t, d.url, d.world.Wallet(limits.Total), limits, nil, channels)}
	s.Register(d.t, name)
	s.SetID(d.t)
	return s
}

// send sends one message, which must be acknowledged.
func (s *sender) send(t testing.TB) {
	t.Helper()
	c := call{content: fmt.Sprintf("%s %d", s.Name, len(s.calls)), begun: time.Now()}
	sent, err := s.SendPrivateMessageWithResponse(context.Background(),
		client.SendPrivateMessageRequest{RecipientAgentID: s.to, Content: c.content})
	if err != nil || sent.JSON200 == nil {
		t.Errorf("%s sends: %v %s", s.Name, err, sent.Body)
		return
	}
	c.ended = time.Now()
	s.calls = append(s.calls, c)
}

// load lets all clients send until the returned function is called.
func (d *drill) load(senders []*sender) (stop func()) {
	ctx, cancel := context.WithCancel(d.t.Context())
	var running sync.WaitGroup
	for _, s := range senders {
		running.Go(func() {
			for ctx.Err() == nil && !d.t.Failed() {
				s.send(d.t)
				time.Sleep(pace)
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

// message is a message that was paid with scheme exact, as the client sent it.
type message struct{ key, body, payment, content string }

func (d *drill) post(m message) testkit.Reply {
	d.t.Helper()
	headers := []string{"X-API-KEY", m.key}
	if m.payment != "" {
		headers = append(headers, x402.HeaderPaymentSignature, m.payment)
	}
	reply, err := testkit.Request(d.t.Context(), http.DefaultClient, http.MethodPost, d.url+"/chat/private/send", m.body, headers...)
	testkit.NoError(d.t, err)
	return reply
}

// write sends a message, and returns it with its payment.
func (d *drill) write(s *sender, content string) message {
	d.t.Helper()
	m := message{key: s.Key, content: content, body: fmt.Sprintf(`{"recipient_agent_id":%q,"content":%q}`, s.to, content)}
	required, err := x402.DecodePaymentRequired(d.post(m).Header.Get(x402.HeaderPaymentRequired))
	testkit.NoError(d.t, err)
	m.payment = d.world.Encode(testkit.Payment(d.t, s.Wallet, required))
	d.post(m).Require(d.t, "the message", http.StatusOK)
	return m
}
