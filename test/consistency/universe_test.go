//go:build consistency

package consistency

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// universe is four agents that know nobody else. Three write to each other and in a group chat of the first, each with two clients. The
// fourth rotates its key.
type universe struct {
	w        *world
	number   int
	seed     uint64
	recorder *Recorder
	began    time.Time
	agents   [][]*testkit.Agent // the clients of each
	keyed    []*testkit.Agent
	group    string
	texts    atomic.Int64
}

var universes atomic.Int64

// patient is how long a client sends a payment again.
const patient = 20 * time.Second

func newUniverse(t testing.TB, w *world, seed uint64) *universe {
	t.Helper()
	u := &universe{w: w, number: int(universes.Add(1)), seed: seed, began: time.Now().Add(-time.Minute),
		recorder: NewRecorder(network{&http.Transport{MaxIdleConnsPerHost: 16}})}
	for i := range 3 {
		u.agents = append(u.agents, u.enter(t, i, 2))
	}
	u.keyed = u.enter(t, 3, 3)
	for i, a := range u.keyed[1:] { // to the wallet that has paid for a new key a server shows it again
		u.keyed[i+1] = u.client(t, 3, w.Wallet(funds))
		u.keyed[i+1].Name, u.keyed[i+1].Key, u.keyed[i+1].ID = a.Name, a.Key, a.ID
	}
	others := []string{u.agents[1][0].ID, u.agents[2][0].ID}
	group, err := u.agents[0][0].CreateGroupChatWithResponse(t.Context(), client.CreateGroupChatRequest{Name: "all", InitialMemberIds: others})
	testkit.Require200(t, "create the group chat", group, err)
	u.group = group.JSON200.ChatID
	return u
}

// enter registers an agent with some clients. Half of the agents pay from payment channels; their clients pay from the same ones, and each
// learns from errors what the others have spent.
func (u *universe) enter(t testing.TB, i, clients int) []*testkit.Agent {
	t.Helper()
	wallet := u.w.Wallet(funds)
	var all []*testkit.Agent
	for range clients {
		all = append(all, u.client(t, i, wallet))
	}
	all[0].Register(t, fmt.Sprintf("agent_%d_%d", u.number, i))
	all[0].SetID(t)
	for _, a := range all[1:] {
		a.Name, a.Key, a.ID = all[0].Name, all[0].Key, all[0].ID
	}
	return all
}

// funds are what a wallet has, and what its clients may spend together.
const funds = 3000 * testkit.Dollar

// client returns a client of an agent without its key.
func (u *universe) client(t testing.TB, agent int, wallet *ecdsa.PrivateKey) *testkit.Agent {
	t.Helper()
	var channels client.PaymentChannelStore
	if (agent+u.number)%2 == 0 {
		channels = &client.MemoryChannels{}
	}
	known := &terms{required: map[string]*x402.PaymentRequired{}}
	a := testkit.NewAgent(t, "http://parley", wallet, client.Limits{PerCall: 10 * testkit.Dollar, Total: funds / 3},
		&transport{u.w, u.recorder, known}, channels)
	a.Payer.Patience, a.Payer.Terms = patient, known
	return a
}

// live lets all clients call until ctx ends, and then read everything.
func (u *universe) live(ctx context.Context) {
	var all sync.WaitGroup
	for i, clients := range u.agents {
		for j, a := range clients {
			c := &caller{Agent: a, u: u, index: i, chance: rand.New(rand.NewPCG(u.seed, uint64(10*i+j)))} //nolint:gosec // repeatable
			all.Go(func() {
				for ctx.Err() == nil {
					c.step(j == 0)
					time.Sleep(time.Duration(c.chance.IntN(15)) * time.Millisecond)
				}
			})
		}
	}
	u.rotate(ctx, &all)
	all.Wait()
	for i := range u.agents {
		c := &caller{Agent: u.agents[i][0], u: u, index: i, chance: rand.New(rand.NewPCG(u.seed, 100))} //nolint:gosec // repeatable
		c.list(false)
		c.peek()
	}
}

// caller is a client that makes random calls.
type caller struct {
	*testkit.Agent
	u      *universe
	index  int
	chance *rand.Rand
	cursor string
}

func (c *caller) other() *testkit.Agent { return c.u.agents[(c.index+1+c.chance.IntN(2))%3][0] }

// step makes one call. What comes of it is in the recorder.
func (c *caller) step(first bool) {
	ctx := context.Background()
	text := fmt.Sprintf("message %d of %s", c.u.texts.Add(1), c.Name)
	admin := c.index == 0
	switch at := c.chance.IntN(100); {
	case at < 22:
		_, _ = c.SendGroupMessageWithResponse(ctx, client.SendGroupMessageRequest{ChatID: c.u.group, Content: text})
	case at < 40:
		_, _ = c.SendPrivateMessageWithResponse(ctx, client.SendPrivateMessageRequest{RecipientAgentID: c.other().ID, Content: text})
	case at < 56:
		c.list(c.chance.IntN(3) == 0)
	case at < 78:
		c.poll()
	case at < 90 && admin && first:
		c.edit(ctx)
	case at < 81 && !admin && first:
		_, _ = c.LeaveGroupChatWithResponse(ctx, client.LeaveGroupChatRequest{ChatID: c.u.group})
	case at < 91 && first:
		_, _ = c.BlockAgentWithResponse(ctx, client.BlockAgentRequest{AgentID: c.other().ID})
	default:
		_, _ = c.UnblockAgentWithResponse(ctx, client.UnblockAgentRequest{AgentID: c.other().ID})
	}
}

// edit adds, removes, bans or readmits one agent. Most changes let it in, so that there is something to read.
func (c *caller) edit(ctx context.Context) {
	edit, who := client.EditGroupChatRequest{ChatID: c.u.group}, client.AgentIDs{c.other().ID}
	switch c.chance.IntN(6) {
	case 0:
		edit.RemoveMemberIds = who
	case 1:
		edit.BanAgentIds = who
	case 2, 3:
		edit.UnbanAgentIds = who
	default:
		edit.AddMemberIds = who
	}
	_, _ = c.EditGroupChatWithResponse(ctx, edit)
	if edit.AddMemberIds != nil && c.chance.IntN(2) == 0 { // two changes so fast that nobody sees what is between
		_, _ = c.EditGroupChatWithResponse(ctx, client.EditGroupChatRequest{ChatID: c.u.group, RemoveMemberIds: who})
		_, _ = c.EditGroupChatWithResponse(ctx, edit)
	}
}

// list reads the newest messages of the group chat.
func (c *caller) list(marks bool) {
	_, _ = c.ListGroupMessagesWithResponse(context.Background(), client.ListGroupMessagesRequest{
		ChatID: c.u.group, N: new(int64(3 + c.chance.IntN(20))), MarkRead: &marks})
}

func (c *caller) peek() {
	response, err := c.ListUnreadMessagesWithResponse(context.Background(), &client.ListUnreadMessagesParams{
		MarkRead: new(false), PageSize: new(int64(100))})
	if err == nil && response.JSON200 != nil {
		c.cursor = *response.JSON200.Cursor
	}
}

// poll reads what is unread: it marks it, looks at it, or confirms the page before.
func (c *caller) poll() {
	switch at := c.chance.IntN(4); {
	case at == 0:
		_, _ = c.ListUnreadMessagesWithResponse(context.Background(), &client.ListUnreadMessagesParams{
			PageSize: new(int64(100))})
	case at == 1 || c.cursor == "":
		c.peek()
	default:
		response, err := c.ListUnreadMessagesWithResponse(context.Background(), &client.ListUnreadMessagesParams{
			ReadThrough: &c.cursor, PageSize: new(int64(100))})
		if c.cursor = ""; err == nil && response.JSON200 != nil {
			c.cursor = *response.JSON200.Cursor
		}
	}
}

// rotation is the pause between two rotations: longer than a server accepts a replaced key.
const rotation = StaleKey + 600*time.Millisecond

// rotate lets the fourth agent replace its key, sometimes with two clients at once, and call with the new key and the one before.
func (u *universe) rotate(ctx context.Context, all *sync.WaitGroup) {
	var mu sync.Mutex
	now, before := u.keyed[0].Key, u.keyed[0].Key
	read := func(old bool) string {
		mu.Lock()
		defer mu.Unlock()
		if old {
			return before
		}
		return now
	}
	replace := func(a *testkit.Agent) {
		key := read(false)
		a.Key = key
		response, err := a.RotateKeyWithResponse(context.Background(), client.RotateKeyJSONRequestBody{})
		if err != nil || response.JSON200 == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		now, before = response.JSON200.APIKey, key
	}
	all.Go(func() {
		for ctx.Err() == nil {
			var both sync.WaitGroup
			both.Go(func() { replace(u.keyed[0]) })
			if rand.IntN(2) == 0 {
				both.Go(func() { replace(u.keyed[1]) })
			}
			both.Wait()
			select {
			case <-ctx.Done():
			case <-time.After(rotation):
			}
		}
	})
	all.Go(func() {
		for ctx.Err() == nil {
			u.keyed[2].Key = read(rand.IntN(3) > 0)
			_, _ = u.keyed[2].GetOwnAgentWithResponse(context.Background())
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		}
	})
}

// check checks what the clients saw.
func (u *universe) check(t testing.TB, report *Report) {
	t.Helper()
	facts, err := Load(t.Context(), u.w.DatabaseURL, u.began)
	testkit.NoError(t, err)
	report.Check(u.recorder.Partitions(facts, Scope{Rights: true, Unread: true, Complete: true}))
}
