package store_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// ground is a database with four agents, a private chat of each pair, a group chat of all, and a channel of the first
// agent, which does not subscribe, with the others as subscribers.
type ground struct {
	*store.Store
	t             *testing.T
	mu            sync.Mutex // of connection, in query
	connection    *pgx.Conn
	agents        []uuid.UUID
	conversations []uuid.UUID
	members       map[uuid.UUID][]uuid.UUID // who may write, by conversation
	group         uuid.UUID
	channels      atomic.Int64 // payment channels of poll
}

func newGround(t *testing.T) *ground {
	t.Helper()
	g := &ground{t: t, members: map[uuid.UUID][]uuid.UUID{}}
	url := storetest.URL(t)
	var err error
	if g.Store, err = store.Open(t.Context(), url, store.Limits{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	g.connection = connect(t, url)
	for i := range 4 {
		g.agents = append(g.agents, agent(t, g.Store, fmt.Sprintf("agent_%d", i)))
	}
	for i, a := range g.agents {
		for _, b := range g.agents[:i] {
			sent, err := alone(t.Context(), g.Store, func(tx *store.Tx) (*store.Sent, error) {
				return tx.SendMessage(t.Context(), private(a, b, "the first"))
			})
			testkit.NoError(t, err)
			g.add(sent.ConversationID, a, b)
		}
	}
	g.group = uuid.Must(uuid.NewV7())
	channel := uuid.Must(uuid.NewV7())
	g.query(func(c *pgx.Conn) error {
		_, err := c.Exec(t.Context(), `INSERT INTO conversations (id, kind, name, admin_id, created_at) VALUES ($1, 'group', 'all', $3, now()),
			($2, 'channel', 'news', $3, now())`,
			g.group, channel, g.agents[0])
		return err
	})
	if err := errors.Join(g.Transaction(t.Context(), func(tx *store.Tx) error { return tx.Join(t.Context(), g.group, g.agents...) }),
		g.Transaction(t.Context(), func(tx *store.Tx) error { return tx.Join(t.Context(), channel, g.agents[1:]...) })); err != nil {
		t.Fatal(err)
	}
	g.add(g.group, g.agents...)
	g.add(channel, g.agents[0])
	return g
}

func (g *ground) add(conversation uuid.UUID, writers ...uuid.UUID) {
	g.conversations = append(g.conversations, conversation)
	g.members[conversation] = writers
}

func (g *ground) query(fn func(*pgx.Conn) error) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	testkit.NoError(g.t, fn(g.connection))
}

// recount counts what the agent has not read, message by message: their ids, oldest first.
func (g *ground) recount(agent uuid.UUID) (ids []uuid.UUID) {
	g.t.Helper()
	g.query(func(c *pgx.Conn) error {
		rows, err := c.Query(g.t.Context(), `
			SELECT o.id FROM messages o JOIN memberships m ON m.conversation_id = o.conversation_id AND m.agent_id = $1 AND m.status = 'member'
			JOIN conversations c ON c.id = o.conversation_id AND c.deleted_at IS NULL
			WHERE o.number > m.read_number AND o.sender_id <> $1 ORDER BY o.created_at, o.conversation_id, o.number`, agent)
		if err != nil {
			return err
		}
		ids, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		return err
	})
	return ids
}

// checkCounters compares unread_own of every membership with the messages.
func (g *ground) checkCounters(when string) {
	g.t.Helper()
	var wrong int
	g.query(func(c *pgx.Conn) error {
		return c.QueryRow(g.t.Context(),
			`SELECT count(*) FROM memberships m WHERE status = 'member' AND unread_own <> (SELECT count(*) FROM messages o
			WHERE o.conversation_id = m.conversation_id AND o.sender_id = m.agent_id AND o.number > m.read_number)`).Scan(&wrong)
	})
	if wrong > 0 {
		g.t.Fatalf("after %s, %d memberships count their own messages wrongly", when, wrong)
	}
}

func idsOf(messages []store.UnreadMessage) []uuid.UUID {
	ids := make([]uuid.UUID, len(messages))
	for i, message := range messages {
		ids[i] = message.ID
	}
	return ids
}

// read is ReadUnread in one of three ways.
func (g *ground) read(agent uuid.UUID, page, size int64) *store.Unread {
	return g.poll(agent, func(ctx context.Context, do store.Actions) (*store.Unread, error) {
		return do.ReadUnread(ctx, agent, anyPage(page, size))
	})
}

// poll makes a poll that shares its commit, paid with a voucher or not, or has a transaction of its own.
func (g *ground) poll(agent uuid.UUID, ask func(context.Context, store.Actions) (*store.Unread, error)) (unread *store.Unread) {
	ctx := g.t.Context()
	work := sharing(func(ctx context.Context, do store.Actions) (err error) {
		unread, err = ask(ctx, do)
		return err
	})
	var err error
	switch rand.IntN(3) {
	case 0:
		err = g.Transaction(ctx, func(tx *store.Tx) error {
			unread, err = ask(ctx, tx)
			return err
		})
	case 1:
		payment := beginning("0xreader", agent)
		if err = g.BeginSettlement(ctx, payment, time.Minute, nil); err == nil {
			err = commit(ctx, g.Store, work, deliveryOf(payment))
		}
	case 2:
		channel, payer := g.openChannel(int(g.channels.Add(1)), 1)
		err = commit(ctx, g.Store, work, store.Closing{Charge: chargeOf(channel, payer, voucherPrice, agent), Encode: encoded})
	}
	if err != nil {
		g.t.Errorf("poll: %v", err)
		return &store.Unread{}
	}
	return unread
}

// TestUnreadIsWhatRecountingFinds does random things one after the other and recounts after each.
func TestUnreadIsWhatRecountingFinds(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	pick := func(from []uuid.UUID) uuid.UUID { return from[random.IntN(len(from))] }
	for range 400 {
		who, where := pick(g.agents), pick(g.conversations)
		var when string
		var err error
		switch random.IntN(10) {
		default:
			when, who = "a message", pick(g.members[where])
			_, err = g.SendAnywhere(ctx, where, who, uuid.Must(uuid.NewV7()), "text")
		case 5:
			var places, senders []uuid.UUID
			for range random.IntN(8) + 1 {
				places = append(places, pick(g.conversations))
				senders = append(senders, pick(g.members[places[len(places)-1]]))
			}
			when = fmt.Sprintf("%d messages at once", len(places))
			err = g.SendAtOnce(ctx, places, senders)
		case 6:
			number := random.Int64N(40)
			when = fmt.Sprintf("reading up to %d", number)
			err = g.Transaction(ctx, func(tx *store.Tx) error {
				return tx.MarkRead(ctx, who, store.ReadRange{Conversation: where, Oldest: 1, Newest: number})
			})
		case 7:
			when = "rejoining"
			err = g.Transaction(ctx, func(tx *store.Tx) error {
				return errors.Join(tx.LockConversation(ctx, g.group), tx.Leave(ctx, g.group, who), tx.Join(ctx, g.group, who))
			})
		case 8, 9:
			page, size := random.Int64N(3)+1, random.Int64N(6)+1
			when = fmt.Sprintf("page %d of %d", page, size)
			want := g.recount(who)
			all := int64(len(want))
			first, last := min((page-1)*size, all), min(page*size, all)
			peeked, peekErr := g.Unread(ctx, who, longPage(page, size))
			short, shortErr := g.Unread(ctx, who, shortPage(page, size))
			read := g.read(who, page, size)
			if err = errors.Join(peekErr, shortErr); err != nil {
				break
			}
			for name, got := range map[string]*store.Unread{"peeking": peeked, "peeking at a short page": short, "reading": read} {
				if diff := gocmp.Diff(append([]uuid.UUID{}, want[first:last]...), idsOf(got.Messages)); diff != "" || got.Total != all {
					t.Fatalf("%s at %s: total %d, want %d, messages (-want +got):\n%s", name, when, got.Total, all, diff)
				}
			}
			for _, message := range read.Messages {
				view, err := g.ConversationView(ctx, message.Kind, message.ConversationID, who)
				if err != nil || page == 1 && view.ReadNumber < message.Number {
					t.Fatalf("number %d was returned and the marker stands at %d (%v)", message.Number, view.ReadNumber, err)
				}
			}
			for _, skipped := range want[:first] { // on the pages before
				if !slices.Contains(g.recount(who), skipped) {
					t.Fatalf("message %s was skipped and is read", skipped)
				}
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		g.checkCounters(when)
		unread, err := g.Unread(ctx, who, longPage(1, 1000))
		testkit.NoError(t, err)
		if diff := gocmp.Diff(append([]uuid.UUID{}, g.recount(who)...), idsOf(unread.Messages)); diff != "" ||
			unread.Total != int64(len(unread.Messages)) {
			t.Fatalf("after %s, total %d, unread messages (-recounted +listed):\n%s", when, unread.Total, diff)
		}
	}
}

// until calls fn again and again until done is closed, and once after that.
func until(done <-chan struct{}, fn func(n int)) {
	for n := 0; ; n++ {
		select {
		case <-done:
			fn(n)
			return
		default:
			fn(n)
		}
	}
}

var errGiveUp = errors.New("give up")

// write sends messages to conversations of the agent. One in four is rolled back, as after a dry run.
func (g *ground) write(agent uuid.UUID, messages int) {
	var own []uuid.UUID
	for _, conversation := range g.conversations {
		if slices.Contains(g.members[conversation], agent) {
			own = append(own, conversation)
		}
	}
	for n := range messages {
		err := g.Transaction(g.t.Context(), func(tx *store.Tx) error {
			if _, err := tx.SendAnywhere(g.t.Context(), own[rand.IntN(len(own))], agent, uuid.Must(uuid.NewV7()), "text"); err != nil {
				return err
			}
			if n%4 == 3 {
				return errGiveUp
			}
			return nil
		})
		if err != nil && !errors.Is(err, errGiveUp) {
			g.t.Errorf("send: %v", err)
		}
	}
}

// markBoth marks two conversations as read, every second time in the other order.
func (g *ground) markBoth(n int) {
	first, second := g.conversations[0], g.group
	if n%2 == 0 {
		first, second = second, first
	}
	err := g.Transaction(g.t.Context(), func(tx *store.Tx) error {
		err := tx.MarkRead(g.t.Context(), g.agents[0], store.ReadRange{Conversation: first})
		time.Sleep(time.Millisecond)
		return errors.Join(err, tx.MarkRead(g.t.Context(), g.agents[0], store.ReadRange{Conversation: second}))
	})
	if err != nil {
		g.t.Errorf("lock memberships crosswise: %v", err)
	}
}

// checkSeen compares the messages that an agent has seen with those that others have sent to it.
func (g *ground) checkSeen(agent uuid.UUID, seen []store.UnreadMessage) {
	g.t.Helper()
	var want []uuid.UUID
	g.query(func(c *pgx.Conn) error {
		rows, err := c.Query(g.t.Context(), `SELECT o.id FROM messages o JOIN memberships m USING (conversation_id)
			WHERE m.agent_id = $1 AND o.sender_id <> $1 AND o.content = 'text' ORDER BY o.id`, agent)
		if err != nil {
			return err
		}
		want, err = pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		return err
	})
	newest := map[uuid.UUID]int64{}
	for _, message := range seen {
		if message.Number <= newest[message.ConversationID] {
			g.t.Errorf("agent %s sees number %d of a conversation after number %d", agent, message.Number, newest[message.ConversationID])
		}
		newest[message.ConversationID] = message.Number
	}
	got := idsOf(seen)
	slices.SortFunc(got, func(a, b uuid.UUID) int { return cmp.Compare(a.String(), b.String()) })
	if diff := gocmp.Diff(want, got); diff != "" {
		g.t.Errorf("agent %s has seen %d of %d messages (-sent +seen):\n%s", agent, len(got), len(want), diff)
	}
}

// TestPollingWhileOthersWrite: eight write, four of them poll, one locks memberships crosswise. Every agent sees each
// message of others exactly once, in the order of its conversation, and nobody waits for ever.
func TestPollingWhileOthersWrite(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	for _, agent := range g.agents {
		g.read(agent, 1, 1000) // the first messages of the chats
	}
	var writers, pollers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() { g.write(g.agents[i%4], testkit.Times(300)) })
	}
	written := make(chan struct{})
	pollers.Go(func() { until(written, g.markBoth) })
	seen := make([][]store.UnreadMessage, len(g.agents))
	for i, agent := range g.agents {
		poll := func(size int64) int64 {
			unread := g.read(agent, 1, size)
			seen[i] = append(seen[i], unread.Messages...)
			if int64(len(unread.Messages)) > unread.Total {
				t.Errorf("a page of %d messages says that there are %d in all", len(unread.Messages), unread.Total)
			}
			return unread.Total
		}
		pollers.Go(func() {
			until(written, func(int) { poll(rand.Int64N(50) + 1) })
			for poll(rand.Int64N(50)+1) > 0 {
			}
		})
	}
	writers.Wait()
	close(written)
	pollers.Wait()
	g.checkCounters("polling")
	for i, agent := range g.agents {
		g.checkSeen(agent, seen[i])
	}
}

// TestTwoPollsAtOnce: of two polls of one agent each returns other messages.
func TestTwoPollsAtOnce(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	reader := g.agents[0]
	for range 200 {
		if _, err := g.SendAnywhere(t.Context(), g.group, g.agents[1], uuid.Must(uuid.NewV7()), "text"); err != nil {
			t.Fatal(err)
		}
	}
	want := g.recount(reader)
	var mu sync.Mutex
	var got []uuid.UUID
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for {
				unread := g.read(reader, 1, 7)
				if len(unread.Messages) == 0 {
					return
				}
				mu.Lock()
				got = append(got, idsOf(unread.Messages)...)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	byText := func(a, b uuid.UUID) int { return cmp.Compare(a.String(), b.String()) }
	slices.SortFunc(want, byText)
	slices.SortFunc(got, byText)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("four polls at once have returned (-sent +returned):\n%s", diff)
	}
}

// TestReadingWhileOneWrites: a marker that moves while a message of the same agent is under way counts that message.
func TestReadingWhileOneWrites(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	ctx := t.Context()
	me := g.agents[0]
	g.read(me, 1, 1000)
	other, err := g.SendAnywhere(ctx, g.group, g.agents[1], uuid.Must(uuid.NewV7()), "from another")
	testkit.NoError(t, err)
	marked := make(chan error, 1)
	if err := g.Transaction(ctx, func(tx *store.Tx) error {
		if _, err := tx.SendAnywhere(ctx, g.group, me, uuid.Must(uuid.NewV7()), "my own"); err != nil {
			return err
		}
		go func() {
			marked <- g.Transaction(ctx, func(tx *store.Tx) error {
				return tx.MarkRead(ctx, me, store.ReadRange{Conversation: g.group, Oldest: 1, Newest: other.Number})
			})
		}()
		// A poll does not wait for the message: it leaves the conversation for the next time.
		if unread := g.read(me, 1, 10); len(unread.Messages) != 0 || unread.Total != 1 {
			t.Errorf("a poll while the membership is taken returns %d messages of %d, want none of one", len(unread.Messages), unread.Total)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	testkit.NoError(t, <-marked)
	g.checkCounters("reading while writing")
	if unread := g.read(me, 1, 10); unread.Total != 0 {
		t.Errorf("everything was read or written by the agent itself, and %d are unread", unread.Total)
	}
	view, err := g.ConversationView(ctx, store.KindGroup, g.group, me)
	if err != nil || view.ReadNumber != view.LastNumber {
		t.Errorf("the marker stands at %d of %d (%v), want it past the own message", view.ReadNumber, view.LastNumber, err)
	}
}

func TestUnreadPagesFarOut(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	for _, page := range []int64{3, 1 << 40, 1<<53 - 1} {
		unread, err := g.Unread(t.Context(), g.agents[0], longPage(page, 250))
		if err != nil || len(unread.Messages) != 0 || unread.Total != 3 {
			t.Errorf("page %d: %+v (%v), want no messages of three", page, unread, err)
		}
	}
}

// longPage is a page of unread messages with as much content as any page has.
func longPage(number, size int64) store.UnreadPage {
	return store.UnreadPage{Number: number, Size: size, Most: store.LongPage}
}

// shortPage is one with little content and few keys.
func shortPage(number, size int64) store.UnreadPage {
	return store.UnreadPage{Number: number, Size: size, Most: store.ShortPage}
}

// anyPage is one of the two.
func anyPage(number, size int64) store.UnreadPage {
	if rand.IntN(2) == 0 {
		return shortPage(number, size)
	}
	return longPage(number, size)
}
