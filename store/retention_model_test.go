package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/retention"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// sweep removes what has outlived its retention.
func (g *ground) sweep(policy store.Retention) retention.Report {
	g.t.Helper()
	report, err := retention.Sweep(g.t.Context(), g.Store, policy, false, nil)
	if err != nil {
		g.t.Fatalf("sweep: %v", err)
	}
	return report
}

// kept is a message in the database.
type kept struct {
	Number       int64
	ID, SenderID uuid.UUID
	CreatedAt    time.Time
}

// messagesOf reads the messages of a conversation from its table, oldest first.
func (g *ground) messagesOf(conversation uuid.UUID) (messages []kept) {
	g.t.Helper()
	g.query(func(c *pgx.Conn) error {
		rows, _ := c.Query(g.t.Context(), `SELECT number, id, sender_id, created_at FROM messages WHERE conversation_id = $1 ORDER BY number`,
			conversation)
		var err error
		messages, err = pgx.CollectRows(rows, pgx.RowToStructByName[kept])
		return err
	})
	return messages
}

// retentionModel knows the read markers of all agents, by the rules alone: it counts nothing.
type retentionModel struct {
	*ground
	random  *rand.Rand
	markers map[[2]uuid.UUID]int64 // by agent and conversation; absent without membership
	removed []uuid.UUID            // messages
	pins    []uuid.UUID
}

func (m *retentionModel) pick(from []uuid.UUID) uuid.UUID { return from[m.random.IntN(len(from))] }

// unread are the messages of others after the marker.
func (m *retentionModel) unread(agent, conversation uuid.UUID) (unread []kept) {
	marker, member := m.markers[[2]uuid.UUID{agent, conversation}]
	if !member {
		return nil
	}
	return slices.DeleteFunc(m.messagesOf(conversation), func(one kept) bool { return one.Number <= marker || one.SenderID == agent })
}

// mark moves the marker over a range, unless an unread message is before it.
func (m *retentionModel) mark(agent, conversation uuid.UUID, oldest, newest int64) {
	key := [2]uuid.UUID{agent, conversation}
	unread, messages := m.unread(agent, conversation), m.messagesOf(conversation)
	_, member := m.markers[key]
	if member && len(messages) > 0 && (len(unread) == 0 || unread[0].Number >= oldest) {
		m.markers[key] = max(m.markers[key], min(newest, messages[len(messages)-1].Number))
	}
}

// join makes the agent a member, to whom nothing is unread.
func (m *retentionModel) join(agent, conversation uuid.UUID) {
	last := int64(0)
	m.query(func(c *pgx.Conn) error {
		return c.QueryRow(m.t.Context(), `SELECT last_number FROM conversations WHERE id = $1`, conversation).Scan(&last)
	})
	m.markers[[2]uuid.UUID{agent, conversation}] = last
}

// act does something at random, and returns what.
func (m *retentionModel) act() (what string, err error) {
	ctx, who, where := m.t.Context(), m.pick(m.agents), m.pick(m.conversations)
	inGroup := func(change func(tx *store.Tx) error) error {
		return m.Transaction(ctx, func(tx *store.Tx) error { return errors.Join(tx.LockConversation(ctx, m.group), change(tx)) })
	}
	switch m.random.IntN(12) {
	default:
		return "a message", m.send(where, m.pick(m.members[where]))
	case 5:
		oldest := m.random.Int64N(30) + 1
		newest := oldest + m.random.Int64N(30)
		m.mark(who, where, oldest, newest)
		return fmt.Sprintf("reading %d to %d", oldest, newest), m.Transaction(ctx, func(tx *store.Tx) error {
			return tx.MarkRead(ctx, who, store.ReadRange{Conversation: where, Oldest: oldest, Newest: newest})
		})
	case 6:
		read := m.read(who, 1, m.random.Int64N(6)+1)
		for _, message := range read.Messages {
			m.mark(who, message.ConversationID, message.Number, message.Number)
		}
		return "polling", nil
	case 7:
		m.join(who, m.group)
		return "rejoining", inGroup(func(tx *store.Tx) error {
			return errors.Join(tx.Leave(ctx, m.group, who), tx.Join(ctx, m.group, who))
		})
	case 8:
		m.join(who, m.group)
		return "a ban that is lifted", inGroup(func(tx *store.Tx) error {
			return errors.Join(tx.Ban(ctx, m.group, m.agents[0], []uuid.UUID{who}), tx.Unban(ctx, m.group, who), tx.Join(ctx, m.group, who))
		})
	case 9:
		return "a pin and a reaction", m.pinAndReact(who)
	case 10, 11:
		return "retention", m.retain()
	}
}

func (m *retentionModel) send(where, who uuid.UUID) error {
	if m.random.IntN(3) > 0 {
		return m.SendAtOnce(m.t.Context(), []uuid.UUID{where, where}, []uuid.UUID{who, m.pick(m.members[where])})
	}
	_, err := m.SendAnywhere(m.t.Context(), where, who, uuid.Must(uuid.NewV7()), "text")
	return err
}

func (m *retentionModel) pinAndReact(who uuid.UUID) error {
	messages := m.messagesOf(m.group)
	if len(messages) == 0 {
		return nil
	}
	message := messages[m.random.IntN(len(messages))]
	err := m.Transaction(m.t.Context(), func(tx *store.Tx) error {
		if err := errors.Join(tx.LockConversation(m.t.Context(), m.group),
			tx.React(m.t.Context(), m.group, message.Number, who, "👍")); err != nil {
			return err
		}
		pins, err := tx.PinMessage(m.t.Context(), m.group, message.ID)
		if err == nil {
			m.pins = pins
		}
		return err
	})
	if errors.Is(err, store.ErrPinLimit) {
		return nil
	}
	return err
}

// retain removes the messages that are older than a few moments. It removes no others.
func (m *retentionModel) retain() error {
	age := time.Duration(m.random.Int64N(int64(100*time.Millisecond))) + time.Microsecond
	before := map[uuid.UUID][]kept{}
	for _, conversation := range m.conversations {
		before[conversation] = m.messagesOf(conversation)
	}
	begun := time.Now()
	report := m.sweep(store.Retention{Messages: age})
	gone := int64(0)
	for _, conversation := range m.conversations {
		after := m.messagesOf(conversation)
		for _, message := range before[conversation] {
			stays := slices.ContainsFunc(after, func(one kept) bool { return one.ID == message.ID })
			switch {
			case stays && message.CreatedAt.Before(begun.Add(-age)):
				return fmt.Errorf("message %d has outlived its retention of %v and is still there", message.Number, age)
			case !stays && message.CreatedAt.After(time.Now().Add(-age)):
				return fmt.Errorf("message %d was removed before it was %v old", message.Number, age)
			case !stays:
				gone++
				m.removed = append(m.removed, message.ID)
				m.pins = slices.DeleteFunc(m.pins, func(pin uuid.UUID) bool { return pin == message.ID })
			}
		}
	}
	if report.Messages != gone {
		return fmt.Errorf("the report says that %d messages were removed, and %d were", report.Messages, gone)
	}
	return nil
}

// check compares all that an agent can read with the model.
func (m *retentionModel) check(agent, conversation uuid.UUID) {
	m.t.Helper()
	ctx := m.t.Context()
	want := []uuid.UUID{}
	for _, one := range m.conversations {
		for _, message := range m.unread(agent, one) {
			want = append(want, message.ID)
		}
	}
	unread, err := m.Unread(ctx, agent, longPage(1, 1000))
	if err != nil || unread.Total != int64(len(want)) {
		m.t.Fatalf("%d messages are unread (%v), want %d", unread.Total, err, len(want))
	}
	got := idsOf(unread.Messages)
	byBytes := func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }
	slices.SortFunc(got, byBytes)
	slices.SortFunc(want, byBytes)
	if diff := gocmp.Diff(want, got); diff != "" {
		m.t.Fatalf("unread messages (-want +got):\n%s", diff)
	}
	m.checkPages(agent, conversation)
	if len(m.removed) > 0 {
		if _, err := m.MessageView(ctx, m.pick(m.removed), agent); !errors.Is(err, store.ErrMessageNotFound) {
			m.t.Fatalf("a removed message: %v, want %v", err, store.ErrMessageNotFound)
		}
	}
	var gaps int
	m.query(func(c *pgx.Conn) error { return c.QueryRow(ctx, testkit.NumberGaps).Scan(&gaps) })
	if gaps > 0 {
		m.t.Fatalf("%d conversations have gaps in their numbers", gaps)
	}
}

// checkPages compares totals, pages, searches and pins of a conversation with the messages in the table.
func (m *retentionModel) checkPages(agent, conversation uuid.UUID) {
	m.t.Helper()
	ctx := m.t.Context()
	messages := m.messagesOf(conversation)
	slices.Reverse(messages)
	var kind string
	m.query(func(c *pgx.Conn) error {
		return c.QueryRow(ctx, `SELECT kind FROM conversations WHERE id = $1`, conversation).Scan(&kind)
	})
	view, err := m.ConversationView(ctx, kind, conversation, agent)
	if err != nil || view.MessageCount() != int64(len(messages)) {
		m.t.Fatalf("%d messages (%v), want %d", view.MessageCount(), err, len(messages))
	}
	if kind == store.KindGroup && !slices.Equal(view.Pinned, m.pins) {
		m.t.Fatalf("pins %v, want %v", view.Pinned, m.pins)
	}
	n, page, before, from := m.random.Int64N(7)+1, m.random.Int64N(4)+1, (*uuid.UUID)(nil), 0
	if len(messages) > 0 && m.random.IntN(2) == 0 {
		from = m.random.IntN(len(messages)) + 1
		before = &messages[from-1].ID
	}
	older := messages[from:]
	want := older[min((int(page)-1)*int(n), len(older)):min(int(page)*int(n), len(older))]
	found, err := m.Messages(ctx, view, n, page, before, store.LongPage)
	if err != nil || found.Next != nil {
		m.t.Fatalf("page %d of %d: next %v (%v)", page, n, found.Next, err)
	}
	matches, err := m.SearchMessages(ctx, view, "t(ext|he first)", n, page, before)
	if err != nil || matches.SearchedTo != nil {
		m.t.Fatalf("search: %v", err)
	}
	for name, got := range map[string][]store.SentMessage{"page": found.Messages, "matches": matches.Messages} {
		same := slices.EqualFunc(want, got, func(a kept, b store.SentMessage) bool { return a.Number == b.Number && a.ID == b.ID })
		if !same {
			m.t.Fatalf("%s %d of %d before the newest %d of %d messages has %d messages, want %d, or others",
				name, page, n, from, len(messages), len(got), len(want))
		}
	}
	if len(m.removed) > 0 {
		if _, err := m.Messages(ctx, view, n, 1, &m.removed[len(m.removed)-1], store.LongPage); !errors.Is(err, store.ErrMessageNotFound) {
			m.t.Fatalf("a page before a removed message: %v, want %v", err, store.ErrMessageNotFound)
		}
	}
}
