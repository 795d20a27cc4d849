package server_test

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// reader sends, fetches and polls at random, and remembers what was returned to it.
type reader struct {
	*agent
	chance  *rand.Rand
	group   string
	privacy string // its private chat with the next reader
	peer    *reader
	sent    int
	seen    map[string]bool // contents
}

// content is the content of the next message, different from all others.
func (r *reader) content() string {
	r.sent++
	return r.Name + " writes message " + strconv.Itoa(r.sent)
}

// step does one random thing.
func (r *reader) step() {
	ctx, t := r.w.T.Context(), r.w.T
	size, page := 1+r.chance.Int64N(6), 1+r.chance.Int64N(3)
	markRead := r.chance.IntN(4) > 0
	see := func(messages []client.Message) {
		for _, message := range messages {
			r.seen[message.Content] = true
		}
	}
	switch r.chance.IntN(8) {
	case 0, 1:
		r.sendGroup(r.group, r.content())
	case 2:
		r.send(r.peer.agent, r.content())
	case 3, 4:
		read, err := r.ListGroupMessagesWithResponse(ctx, client.ListGroupMessagesRequest{ChatID: r.group, N: &size, Page: &page,
			MarkRead: &markRead})
		testkit.Require200(t, "fetch", read, err)
		see(read.JSON200.Messages)
	case 5:
		read, err := r.ListPrivateMessagesWithResponse(ctx,
			client.ListPrivateMessagesRequest{ChatID: r.privacy, N: &size, Page: &page, MarkRead: &markRead})
		testkit.Require200(t, "fetch", read, err)
		see(read.JSON200.Messages)
	default:
		for _, message := range r.unread(&page, &size, &markRead).Messages {
			r.seen[message.Content] = true
		}
	}
}

// lost returns the messages of others that count as read and were never returned.
func (r *reader) lost() (lost []string) {
	r.w.T.Helper()
	r.w.EachRow(func(rows pgx.Rows) error {
		var content string
		err := rows.Scan(&content)
		if !r.seen[content] {
			lost = append(lost, content)
		}
		return err
	}, `SELECT o.content FROM messages o JOIN memberships m USING (conversation_id) JOIN agents a ON a.id = m.agent_id
		WHERE a.username = $1 AND o.sender_id <> a.id AND o.number <= m.read_number AND o.number > m.joined_number`, r.Name)
	return lost
}

// TestReadingLosesNothing: 1,000 random sends, fetches of any size and page, and polls of four agents at once. The read marker
// passes no message that was not returned.
func TestReadingLosesNothing(t *testing.T) {
	testkit.Long(t)
	t.Parallel()
	w := newWorld(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var readers []*reader
	for i := range 4 {
		readers = append(readers, &reader{agent: w.agent("reader" + strconv.Itoa(i)), chance: rand.New(rand.NewPCG(seed, uint64(i))),
			seen: map[string]bool{}})
	}
	group := readers[0].createGroup("readers", readers[1].agent, readers[2].agent, readers[3].agent)
	for i, r := range readers {
		r.group, r.peer = group, readers[(i+1)%4]
		r.privacy, _ = r.send(r.peer.agent, r.content())
	}
	var running sync.WaitGroup
	for _, r := range readers {
		running.Go(func() {
			for range 250 {
				r.step()
				if lost := r.lost(); len(lost) > 0 {
					t.Errorf("%s: %d messages are read and were never returned: %v", r.Name, len(lost), lost)
					return
				}
			}
		})
	}
	running.Wait()
	for _, r := range readers { // and in the end polling alone returns the rest
		for len(r.unread(nil, nil, nil).Messages) > 0 {
		}
	}
	if unread :=
		w.Count(`SELECT count(*) FROM memberships m JOIN conversations c ON c.id = m.conversation_id
			WHERE c.last_number - m.read_number - m.unread_own > 0`); unread > 0 {
		t.Errorf("%d conversations are still unread", unread)
	}
}
