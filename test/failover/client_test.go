//go:build failover

package failover

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

const (
	// agents is the number of agents. Every second one pays from a payment channel, the others with one transfer per call.
	agents = 8
	// patience is how long a client sends the same payment again. It is longer than any outage.
	patience = 4 * time.Minute
	// pace is the pause of a client between two calls.
	pace = 150 * time.Millisecond
	// longestLife is how long a consumer of unread messages follows them at most before it is killed.
	longestLife = time.Second
)

// agent is a client with an account.
type agent struct {
	*testkit.Agent
	second *testkit.Agent // the same account with another wallet
	calls  []*call        // of the first, which send messages, one after another
}

// load is the clients and what they did.
type load struct {
	t         testing.TB
	world     *testkit.World
	transport *transport
	agents    []*agent
	consumers *testkit.Consumers
	group     string
	channel   string
	done      sync.WaitGroup

	facilitator string        // its URL
	maxOpen     time.Duration // see maxOpen
}

// newLoad registers the agents and makes the conversations: a group chat and a channel of all.
func newLoad(t testing.TB, world *testkit.World, facilitator string, servers []*server) *load {
	t.Helper()
	l := &load{t: t, world: world, transport: newTransport(servers), consumers: testkit.NewConsumers(2 * pace), facilitator: facilitator,
		maxOpen: maxOpen}
	var others []string
	for i := range agents {
		l.agents = append(l.agents, l.register(i))
		if i > 0 {
			others = append(others, l.agents[i].ID)
		}
	}
	first := l.agents[0]
	group, err := first.CreateGroupChatWithResponse(t.Context(), client.CreateGroupChatRequest{Name: "all", InitialMemberIds: others})
	testkit.Require200(t, "create the group chat", group, err)
	channel, err := first.CreateChannelWithResponse(t.Context(), client.CreateChannelRequest{Name: "news"})
	testkit.Require200(t, "create the channel", channel, err)
	l.group, l.channel = group.JSON200.ChatID, channel.JSON200.ChannelID
	for _, a := range l.agents[1:] {
		subscribed, err := a.SubscribeChannelWithResponse(t.Context(), client.ChannelRequest{ChannelID: l.channel})
		testkit.Require200(t, "subscribe", subscribed, err)
	}
	return l
}

// register makes an agent with a wallet and an account.
func (l *load) register(i int) *agent {
	l.t.Helper()
	var channels client.PaymentChannelStore
	if i%2 == 0 {
		channels = &client.MemoryChannels{}
	}
	limits := client.Limits{PerCall: 10 * testkit.Dollar, Total: 10_000 * testkit.Dollar}
	newAgent := func(channels client.PaymentChannelStore) *testkit.Agent {
		return testkit.NewAgent(l.t, "http://parley", l.world.Wallet(limits.Total), limits, l.transport, channels)
	}
	a := &agent{Agent: newAgent(channels), second: newAgent(nil)}
	a.Payer.Patience = patience
	a.Register(l.t, fmt.Sprintf("agent%d", i))
	a.SetID(l.t)
	a.second.Name, a.second.Key = a.Name, a.Key
	return a
}

// start lets every agent send, and two consumers of each follow and die, until ctx ends. Senders finish their last call.
func (l *load) start(ctx context.Context, seed uint64) {
	for i, a := range l.agents {
		chance := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // the same seed makes the same calls
		l.done.Go(func() {
			for ctx.Err() == nil {
				l.send(a, chance)
				time.Sleep(pace)
			}
		})
		for _, consumer := range []*testkit.Agent{a.Agent, a.second} {
			l.done.Go(func() {
				for ctx.Err() == nil {
					// A server whose clock is wrong refuses payments: another consumer comes.
					_ = l.consumers.Live(ctx, consumer, rand.N(longestLife))
					time.Sleep(pace)
				}
			})
		}
	}
}

// send sends one message: in the group chat, in the channel, or to another agent.
func (l *load) send(a *agent, chance *rand.Rand) {
	c := &call{content: fmt.Sprintf("message %d of %s", len(a.calls), a.Name)}
	ctx := withCall(context.Background(), c)
	var err error
	switch kind := chance.IntN(3); {
	case kind == 0 && a == l.agents[0]:
		var sent *client.SendChannelMessageResponse
		sent, err = a.SendChannelMessageWithResponse(ctx, client.SendChannelMessageRequest{ChannelID: l.channel, Content: c.content})
		if err == nil && sent.JSON200 != nil {
			c.acked = true
		}
	case kind == 1:
		var sent *client.SendGroupMessageResponse
		sent, err = a.SendGroupMessageWithResponse(ctx, client.SendGroupMessageRequest{ChatID: l.group, Content: c.content})
		if err == nil && sent.JSON200 != nil {
			c.acked = true
		}
	default:
		to := l.agents[chance.IntN(len(l.agents))]
		if to == a {
			to = l.agents[(chance.IntN(len(l.agents)-1)+1)%len(l.agents)]
		}
		if to == a {
			return
		}
		var sent *client.SendPrivateMessageResponse
		sent, err = a.SendPrivateMessageWithResponse(ctx, client.SendPrivateMessageRequest{RecipientAgentID: to.ID, Content: c.content})
		if err == nil && sent.JSON200 != nil {
			c.acked = true
		}
	}
	c.finish(err)
	a.calls = append(a.calls, c)
}

// finish reports whether the client knows what became of its call.
func (c *call) finish(err error) {
	last := c.attempts[len(c.attempts)-1]
	c.unknown = !c.acked && (err != nil || last.status == 0 || last.status >= http.StatusInternalServerError ||
		last.code == "payment_in_progress")
}

// readAll fetches what is unconfirmed. If it cannot, checkRead finds what is missing.
func (l *load) readAll() {
	for _, a := range l.agents {
		_ = l.consumers.Drain(context.Background(), a.Agent)
	}
}
