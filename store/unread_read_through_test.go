package store_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// confirm is ReadThrough in one of three ways.
func (g *ground) confirm(agent uuid.UUID, through store.Through, size int64) *store.Unread {
	g.t.Helper()
	return g.poll(agent, func(ctx context.Context, do store.Actions) (*store.Unread, error) {
		return do.ReadThrough(ctx, agent, through, anyPage(1, size))
	})
}

// haveUnread asks for one agent.
func (g *ground) haveUnread(agent uuid.UUID, through store.Through) bool {
	g.t.Helper()
	have, err := g.HaveUnread(g.t.Context(), []store.Waiting{{Agent: uuid.New()}, {Agent: agent, Through: through}, {Agent: uuid.New()}})
	if err != nil || have[0] || have[2] {
		g.t.Fatalf("HaveUnread: %v %v, want nothing for strangers", have, err)
	}
	return have[1]
}

// TestConfirmedPages does random things one after the other: a confirmation marks what its page returned and nothing else, whenever it
// comes and however often, and HaveUnread knows what would be left.
func TestConfirmedPages(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	type page struct {
		through store.Through
		ids     []uuid.UUID
		first   bool
	}
	pages := map[uuid.UUID][]page{}
	for range testkit.Times(400) {
		who := g.agents[random.IntN(len(g.agents))]
		if random.IntN(2) == 0 {
			where := g.conversations[random.IntN(len(g.conversations))]
			writers := g.members[where]
			if _, err := g.SendAnywhere(t.Context(), where, writers[random.IntN(len(writers))], uuid.Must(uuid.NewV7()), "text"); err != nil {
				t.Fatal(err)
			}
			continue
		}
		number, size := random.Int64N(2)+1, random.Int64N(6)+1
		looked, err := g.Unread(t.Context(), who, longPage(number, size))
		testkit.NoError(t, err)
		pages[who] = append(pages[who], page{looked.Through(), idsOf(looked.Messages), number == 1})
		old := pages[who][random.IntN(len(pages[who]))]
		before := g.recount(who)
		want := slices.DeleteFunc(slices.Clone(before), func(id uuid.UUID) bool { return slices.Contains(old.ids, id) })
		have := g.haveUnread(who, old.through)
		if old.first && have != (len(want) > 0) || have && len(before) == 0 {
			t.Fatalf("HaveUnread says %v, and a confirmation leaves %d", have, len(want))
		}
		next := g.confirm(who, old.through, 1000)
		left := g.recount(who)
		if old.first { // of a later page only what leaves no gap is marked
			if diff := gocmp.Diff(append([]uuid.UUID{}, want...), append([]uuid.UUID{}, left...)); diff != "" {
				t.Fatalf("after the confirmation of %d messages (-want +unread):\n%s", len(old.ids), diff)
			}
		}
		for _, id := range before {
			if !slices.Contains(left, id) && !slices.Contains(old.ids, id) {
				t.Fatalf("message %s was confirmed, and the page did not have it", id)
			}
		}
		if diff := gocmp.Diff(append([]uuid.UUID{}, left...), idsOf(next.Messages)); diff != "" || next.Total != int64(len(left)) {
			t.Fatalf("the next page has %d of %d (-unread +returned):\n%s", len(next.Messages), next.Total, diff)
		}
		g.checkCounters("a confirmation")
	}
}

// TestConfirmingMarksNothingOlder: a message that is committed after the page was read, and has an earlier time, stays unread. So does a
// notice with a lower number.
func TestConfirmingMarksNothingOlder(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	me := g.agents[0]
	g.read(me, 1, 1000)
	send := func(where uuid.UUID) {
		t.Helper()
		if _, err := g.SendAnywhere(t.Context(), where, g.agents[1], uuid.Must(uuid.NewV7()), "text"); err != nil {
			t.Fatal(err)
		}
	}
	notice := func(number int, conversation uuid.UUID) {
		t.Helper()
		if _, err := g.connection.Exec(t.Context(), `
			INSERT INTO notices (agent_id, number, type, conversation_id, source_name, actor_id, created_at)
			OVERRIDING SYSTEM VALUE VALUES ($1, $2, 'added', $3, 'all', $4, now())`, me, number, conversation, g.agents[1]); err != nil {
			t.Fatal(err)
		}
	}
	send(g.group)
	notice(1000, g.group)
	page, err := g.Unread(t.Context(), me, longPage(1, 50))
	if err != nil || len(page.Messages) != 1 || len(page.Notices) != 1 {
		t.Fatalf("%+v (%v), want a message and a notice", page, err)
	}
	send(g.conversations[0])
	notice(999, g.conversations[len(g.conversations)-1])
	if _, err := g.connection.Exec(t.Context(), `UPDATE messages SET created_at = now() - interval '1 hour' WHERE conversation_id = $1 AND
		content = 'text'`, g.conversations[0]); err != nil {
		t.Fatal(err)
	}
	if !g.haveUnread(me, page.Through()) {
		t.Error("nothing is unread beside the page")
	}
	next := g.confirm(me, page.Through(), 50)
	if len(next.Messages) != 1 || next.Messages[0].ConversationID != g.conversations[0] ||
		len(next.Notices) != 1 || next.Notices[0].Number != 999 {
		t.Errorf("the next page is %+v, want the older message and the notice with the lower number", next)
	}
	if g.haveUnread(me, next.Through()) {
		t.Error("something is unread beside the second page")
	}
	other := connect(t, g.connection.Config().ConnString())
	replace := func() pgx.Tx {
		t.Helper()
		replacing, err := other.Begin(t.Context())
		if err == nil {
			_, err = replacing.Exec(t.Context(), "DELETE FROM notices WHERE agent_id = $1", me)
		}
		testkit.NoError(t, err)
		return replacing
	}
	replacing := replace()
	if last := g.confirm(me, next.Through(), 50); len(last.Notices) > 0 {
		t.Errorf("a notice that was confirmed while it is replaced comes again: %+v", last.Notices)
	}
	testkit.NoError(t, replacing.Rollback(t.Context()))
	replacing = replace()
	rolledBack := make(chan error)
	time.AfterFunc(50*time.Millisecond, func() { rolledBack <- replacing.Rollback(t.Context()) })
	g.confirm(me, next.Through(), 50)
	testkit.NoError(t, <-rolledBack)
	if last, err := g.Unread(t.Context(), me, longPage(1, 50)); err != nil || len(last.Notices) > 0 {
		t.Errorf("%+v (%v) comes again: it was confirmed, and then not replaced", last.Notices, err)
	}
}

// TestMadeUpRanges: a range that is longer than a page is not counted to its end whenever HaveUnread looks. The call that sends such a
// cursor does not wait.
func TestMadeUpRanges(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	me := g.agents[1]
	g.read(me, 1, 1000)
	write := func(n int) {
		t.Helper()
		if _, err := g.connection.Exec(t.Context(), `INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
			SELECT id, last_number + i, gen_random_uuid(), $2, 'text', now() FROM conversations, generate_series(1, CAST($3 AS int)) i
			WHERE id = $1`, g.group, g.agents[0], n); err != nil {
			t.Fatal(err)
		}
		_, err := g.connection.Exec(t.Context(), "UPDATE conversations SET last_number = last_number + $2 WHERE id = $1", g.group, n)
		testkit.NoError(t, err)
	}
	all := store.Through{Ranges: []store.ReadRange{{Conversation: g.group, Oldest: 1, Newest: 1 << 53}}}
	write(store.MaxPage)
	page, err := g.Unread(t.Context(), me, longPage(1, store.MaxPage))
	if err != nil || len(page.Messages) != store.MaxPage || g.haveUnread(me, page.Through()) || g.haveUnread(me, all) {
		t.Errorf("%d messages (%v) beside which something is unread, want a full page and nothing else", len(page.Messages), err)
	}
	write(1)
	if !g.haveUnread(me, page.Through()) || !g.haveUnread(me, all) {
		t.Error("nothing is unread beside a full page, or beside a range that no page returned")
	}
}

// TestConfirmingWhileOthersWrite: two consumers of each agent process pages and confirm them, and die at random; a new one begins with what
// is unconfirmed. Nothing is lost. What is locked for too long while it is confirmed is returned again.
func TestConfirmingWhileOthersWrite(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	var writers, consumers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() { g.write(g.agents[i], testkit.Times(300)) })
	}
	written := make(chan struct{})
	consumers.Go(func() { until(written, g.markNobody) })
	for _, agent := range g.agents {
		inbox := &inbox{seen: map[uuid.UUID]bool{}}
		for range 2 {
			consumers.Go(func() {
				until(written, func(int) { g.consume(agent, inbox, rand.IntN(8)) })
				for len(g.consume(agent, inbox, 100).Messages) > 0 {
				}
			})
		}
		defer func() {
			if left := g.recount(agent); len(left) > 0 {
				t.Errorf("%d messages are left", len(left))
			}
			g.checkInbox(agent, inbox)
		}()
	}
	writers.Wait()
	close(written)
	consumers.Wait()
	g.checkCounters("confirming")
}

// markNobody locks two memberships of the first agent, as markBoth does, and marks nothing.
func (g *ground) markNobody(n int) {
	if n%10 == 0 {
		g.markBoth(n / 10)
	}
	time.Sleep(time.Millisecond)
}

// inbox is what the consumers of one agent know together.
type inbox struct {
	mu   sync.Mutex
	seen map[uuid.UUID]bool
}

// consume makes a consumer that confirms so many pages and dies with the last one unconfirmed, which it returns.
func (g *ground) consume(agent uuid.UUID, in *inbox, pages int) (page *store.Unread) {
	through := store.Through{}
	for range pages + 1 {
		page = g.confirm(agent, through, rand.Int64N(20)+1)
		in.mu.Lock()
		for _, id := range idsOf(page.Messages) {
			in.seen[id] = true
		}
		in.mu.Unlock()
		if through = page.Through(); through.Empty() {
			return page
		}
	}
	return page
}

// checkInbox reports the messages to the agent that no consumer has seen.
func (g *ground) checkInbox(agent uuid.UUID, in *inbox) {
	var sent int
	if err := g.connection.QueryRow(g.t.Context(), `SELECT count(*) FROM messages o JOIN memberships m USING (conversation_id)
		WHERE m.agent_id = $1 AND o.sender_id <> $1 AND o.number > m.joined_number`, agent).Scan(&sent); err != nil {
		g.t.Fatal(err)
	}
	if len(in.seen) != sent {
		g.t.Errorf("agent %s has seen %d of %d messages", agent, len(in.seen), sent)
	}
}

// TestNews: a server hears what another one commits, and itself hears it at once: private messages in the name of the recipient, others in
// that of their conversation.
func TestNews(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	here, there := make(chan uuid.UUID, 100), make(chan uuid.UUID, 100)
	tell := func(to chan uuid.UUID) func(ids []uuid.UUID) {
		return func(ids []uuid.UUID) {
			for _, id := range ids {
				to <- id
			}
		}
	}
	other, err := store.Open(t.Context(), g.connection.Config().ConnString(), store.Limits{})
	testkit.NoError(t, err)
	t.Cleanup(other.Close)
	g.Listen(tell(here))
	other.Listen(tell(there))
	ready := make(chan struct{})
	go other.BePresent(t.Context(), func() { close(ready) })
	<-ready
	sender := g.agents[1]
	for _, send := range []struct{ where, concerns uuid.UUID }{{g.group, g.group}, {g.conversations[0], g.agents[0]}} {
		if _, err := g.SendAnywhere(t.Context(), send.where, sender, uuid.Must(uuid.NewV7()), "text"); err != nil {
			t.Fatal(err)
		}
		for name, heard := range map[string]chan uuid.UUID{"this server": here, "the other server": there} {
			select {
			case id := <-heard:
				if id != send.concerns {
					t.Errorf("%s hears of %s, want %s", name, id, send.concerns)
				}
			case <-time.After(10 * time.Second):
				t.Errorf("%s hears nothing", name)
			}
		}
	}
	if err := g.Transaction(t.Context(), func(tx *store.Tx) error {
		_, err := tx.SendAnywhere(t.Context(), g.group, sender, uuid.Must(uuid.NewV7()), "text")
		return cmp.Or(err, errGiveUp)
	}); err == nil || len(here) > 0 {
		t.Errorf("a transaction that is rolled back ends with %v and is announced to %d", err, len(here))
	}
}
