//go:build attack

package attack

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

const (
	loadClients = 64
	loadGroups  = 4
	loadPause   = 150 * time.Millisecond // of a client between two calls, on average
)

// load is clients that send to group chats, read them and poll, all paid: every eighth one with one transfer per call, the others from a
// payment channel. A server that has just started knows no payer, and admits twelve such transfers of one address at once
// (payment/strangers.go): with more of them it depends on the machine whether some are refused. They are the Go client of this repository,
// which repeats a payment as the documentation says.
type load struct {
	w       *world
	clients []*loadClient
	stop    context.CancelFunc
	running sync.WaitGroup

	calls, failed, retries, broken atomic.Int64

	mu   sync.Mutex
	sent map[string]bool // the contents of acknowledged messages
}

// loadClient is one of them. It is also the transport of its Payer and counts there what the caller does not see.
type loadClient struct {
	*testkit.Agent
	l       *load
	group   string
	payment string // that was sent last
}

// RoundTrip counts connections that break, and payments that are sent again.
func (c *loadClient) RoundTrip(r *http.Request) (*http.Response, error) {
	if payment := r.Header.Get(x402.HeaderPaymentSignature); payment != "" {
		if payment == c.payment {
			c.l.retries.Add(1)
		}
		c.payment = payment
	}
	response, err := loadTransport.RoundTrip(r)
	if err != nil && r.Context().Err() == nil {
		c.l.broken.Add(1)
	}
	return response, err
}

var loadTransport = &http.Transport{MaxIdleConnsPerHost: loadClients, IdleConnTimeout: 30 * time.Second}

// newLoad registers the clients at a server.
func newLoad(w *world, url string) *load {
	w.T.Helper()
	l := &load{w: w, sent: map[string]bool{}}
	for i := range loadClients {
		l.clients = append(l.clients, l.register(url, i))
	}
	for g := range loadGroups {
		members := l.clients[g*loadClients/loadGroups : (g+1)*loadClients/loadGroups]
		var others []string
		for _, member := range members[1:] {
			others = append(others, member.ID)
		}
		created, err := members[0].CreateGroupChatWithResponse(w.T.Context(),
			client.CreateGroupChatRequest{Name: fmt.Sprintf("Load %d", g), InitialMemberIds: others})
		testkit.Require200(w.T, "create a group chat", created, err)
		for _, member := range members {
			member.group = created.JSON200.ChatID
		}
	}
	return l
}

func (l *load) register(url string, number int) *loadClient {
	var channels client.PaymentChannelStore
	if number%8 != 0 {
		channels = &client.MemoryChannels{}
	}
	c := &loadClient{l: l}
	limits := client.Limits{PerCall: testkit.Dollar, Total: 1000 * testkit.Dollar}
	c.Agent = testkit.NewAgent(l.w.T, url, l.w.Wallet(limits.Total), limits, c, channels)
	tan := c.Register(l.w.T, fmt.Sprintf("load_%d", number))
	l.w.Secret(tan, c.Key)
	c.SetID(l.w.T)
	return c
}

// start lets the clients call until the load ends. A call that runs then is finished.
func (l *load) start() {
	ctx, stop := context.WithCancel(l.w.T.Context())
	l.stop = stop
	for i, c := range l.clients {
		l.running.Go(func() {
			chance := rand.New(rand.NewPCG(uint64(i), 15)) //nolint:gosec // not negative, no secret
			for ctx.Err() == nil {
				c.step(chance)
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(chance.Int64N(int64(2 * loadPause)))):
				}
			}
		})
	}
}

func (l *load) end() {
	l.stop()
	l.running.Wait()
}

// step makes one call.
func (c *loadClient) step(chance *rand.Rand) {
	ctx, cancel := context.WithTimeout(c.l.w.T.Context(), 2*time.Minute)
	defer cancel()
	var response interface{ StatusCode() int }
	var err error
	switch pick := chance.IntN(10); {
	case pick < 6:
		content := fmt.Sprintf("under load, number %06d", contentNumber.Add(1))
		c.l.w.expect(content)
		var sent *client.SendGroupMessageResponse
		sent, err = c.SendGroupMessageWithResponse(ctx, client.SendGroupMessageRequest{ChatID: c.group, Content: content})
		if response = sent; err == nil && sent.JSON200 != nil {
			c.l.mu.Lock()
			c.l.sent[content] = true
			c.l.mu.Unlock()
		}
	case pick < 9:
		n := client.MessagePageSize(20)
		response, err = c.ListGroupMessagesWithResponse(ctx, client.ListGroupMessagesRequest{ChatID: c.group, N: &n})
	default:
		response, err = c.ListUnreadMessagesWithResponse(ctx, &client.ListUnreadMessagesParams{})
	}
	c.l.calls.Add(1)
	if err != nil || response.StatusCode() != http.StatusOK {
		if c.l.failed.Add(1) <= 20 {
			c.l.w.T.Errorf("a call failed: %v (%+v)", err, response)
		}
	}
}

// figures are the counters of the load at one moment, with what HAProxy had to make good.
type figures struct {
	calls, failed, retries, broken int64
	troubles                       int
}

func (l *load) figures(b *balancer) (figures, string) {
	troubles, list := b.troubles()
	return figures{l.calls.Load(), l.failed.Load(), l.retries.Load(), l.broken.Load(), troubles}, list
}

// phase runs a part of the trial under load, and logs and returns what it cost.
func (l *load) phase(b *balancer, name string, run func()) figures {
	l.w.T.Helper()
	before, was := l.figures(b)
	begun := time.Now()
	run()
	now, is := l.figures(b)
	cost := figures{now.calls - before.calls, now.failed - before.failed, now.retries - before.retries, now.broken - before.broken,
		now.troubles - before.troubles}
	l.w.T.Logf("%s: %d calls in %v, %d failed, %d payments sent again, %d connections broken; HAProxy:%s, before:%s",
		name, cost.calls, time.Since(begun).Round(time.Second/10), cost.failed, cost.retries, cost.broken, is, was)
	return cost
}

// check compares what the clients know with the database and the chain: every acknowledged message is there once, the numbers of each
// conversation have no gap, the ledger has what the clients spent, and the payee gets it to the unit.
func (l *load) check(pass func(time.Duration)) {
	t := l.w.T
	t.Helper()
	l.w.check()
	sent := slices.Collect(maps.Keys(l.sent))
	if there := l.w.Count("SELECT count(*) FROM messages WHERE content = ANY($1)", sent); there != len(sent) {
		t.Errorf("%d messages were acknowledged, and %d of them are there", len(sent), there)
	}
	if gaps := l.w.Count(testkit.NumberGaps); gaps > 0 {
		t.Errorf("the numbers of %d conversations have a gap", gaps)
	}
	var spent uint64
	for _, c := range l.clients {
		spent += c.Payer.Spent()
	}
	var charged uint64
	l.w.Scan("SELECT sum(amount)::bigint FROM payments WHERE state = 'delivered'", nil, &charged)
	if spent != charged {
		t.Errorf("the clients spent %d, the ledger has %d", spent, charged)
	}
	pass(day)
	if !testkit.Eventually(2*recoveryTime, func() bool { return l.w.Revenue() == charged }) {
		t.Errorf("the ledger has %d, the payee got %d", charged, l.w.Revenue())
	}
	t.Logf("%d messages acknowledged, 0 lost, 0 doubled; clients, ledger and chain agree on %s USD", len(l.sent), x402.FormatUSD(charged))
}
