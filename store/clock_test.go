package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

// timesOff lists the times in the database that are not from first to last, by table and column.
func timesOff(t *testing.T, connection *pgx.Conn, first, last time.Time) (off []string) {
	t.Helper()
	for _, column := range [][2]string{
		{"conversations", "created_at"}, {"conversations", "last_message_at"}, {"conversations", "deleted_at"}, {"messages", "created_at"},
		{"memberships", "joined_at"}, {"notices", "created_at"}, {"blocks", "created_at"}, {"reactions", "created_at"},
	} {
		var earliest, latest *time.Time
		if err := connection.QueryRow(t.Context(), "SELECT min("+column[1]+"), max("+column[1]+") FROM "+column[0]).Scan(&earliest,
			&latest); err != nil {
			t.Fatal(err)
		}
		if earliest == nil || earliest.Before(first) || latest.After(last) {
			off = append(off, fmt.Sprintf("%s.%s %s to %s", column[0], column[1], earliest, latest))
		}
	}
	return off
}

// writeTimes makes everything that has a time, in a new group chat.
func writeTimes(t *testing.T, s *store.Store, alice, bob uuid.UUID) {
	t.Helper()
	ctx, group := t.Context(), uuid.Must(uuid.NewV7())
	err := errors.Join(s.Transaction(ctx, func(tx *store.Tx) error { return tx.UnblockAgent(ctx, alice, bob) }),
		s.Transaction(ctx, func(tx *store.Tx) error {
			return tx.CreateConversation(ctx, store.KindGroup, group, alice, "clocks", nil, false)
		}), s.Transaction(ctx, func(tx *store.Tx) error { return tx.Join(ctx, group, alice) }), s.Transaction(ctx,
			func(tx *store.Tx) error { return tx.AddGroupMembers(ctx, group, alice, []uuid.UUID{bob}) }),
	)
	inTransaction := func(message store.OutgoingMessage) {
		t.Helper()
		sent, sendErr := alone(ctx, s, func(tx *store.Tx) (*store.Sent, error) { return tx.SendMessage(ctx, message) })
		if sendErr != nil {
			t.Fatal(sendErr)
		}
		err = errors.Join(err, s.Transaction(ctx, func(tx *store.Tx) error { return tx.React(ctx, sent.ConversationID, sent.Number, bob, "👍") }))
	}
	inBatch := func(message store.OutgoingMessage) {
		payment := beginning("0xpayer", alice)
		err = errors.Join(err, s.BeginSettlement(ctx, payment, time.Minute, nil), commit(t.Context(), s, sending(message), deliveryOf(payment)))
	}
	// The first message of a conversation has the time of the store, later ones have at least that of the one before.
	inBatch(toGroup(alice, group, "one"))
	inTransaction(toGroup(alice, group, "two"))
	inTransaction(private(alice, bob, "one"))
	inBatch(private(alice, bob, "two"))
	err = errors.Join(err, s.Transaction(ctx, func(tx *store.Tx) error { return tx.Ban(ctx, group, alice, []uuid.UUID{bob}) }),
		s.Transaction(ctx, func(tx *store.Tx) error { return tx.DeleteConversation(ctx, store.KindGroup, group, alice) }), s.Transaction(ctx,
			func(tx *store.Tx) error { return tx.BlockAgent(ctx, alice, bob) }))
	testkit.NoError(t, err)
}

// clockGround has two stores on one database, whose clocks are wrong by an hour in either direction.
type clockGround struct {
	t             *testing.T
	connection    *pgx.Conn
	ahead, behind *store.Store
	alice, bob    uuid.UUID
}

const (
	wrongBy = time.Hour
	exact   = time.Second // how well a store knows the database's time, on a busy machine
)

func newClockGround(t *testing.T) *clockGround {
	t.Helper()
	ctx, url := t.Context(), storetest.URL(t)
	g := &clockGround{t: t}
	var err error
	g.connection = connect(t, url)
	for _, s := range []**store.Store{&g.ahead, &g.behind} {
		if *s, err = store.Open(ctx, url, storetest.Patient); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*s).Close)
	}
	g.alice, g.bob = agent(t, g.ahead, "alice"), agent(t, g.behind, "bob")
	g.ahead.SetClock(wrongBy)
	g.behind.SetClock(-wrongBy)
	return g
}

// now is the database's time.
func (g *clockGround) now() (now time.Time) {
	g.t.Helper()
	testkit.NoError(g.t, g.connection.QueryRow(g.t.Context(), "SELECT clock_timestamp()").Scan(&now))
	return now
}

// TestTimesAreThoseOfNow: what a store writes has the time of Now. Even if the clocks of two stores are wrong, no message has a time
// before that of an earlier one, and numbers have no gaps.
func TestTimesAreThoseOfNow(t *testing.T) {
	t.Parallel()
	g := newClockGround(t)
	first := g.now()
	writeTimes(t, g.ahead, g.alice, g.bob)
	if off := timesOff(t, g.connection, first.Add(wrongBy-exact), g.now().Add(wrongBy+exact)); off != nil {
		t.Errorf("these do not have the time of Now: %v", off)
	}
	writeTimes(t, g.behind, g.alice, g.bob)
	var back, gaps int
	err := g.connection.QueryRow(t.Context(),
		`SELECT count(*) FILTER (WHERE m.created_at < o.created_at), count(*) FILTER (WHERE o.number IS NULL AND m.number > 1)
		FROM messages m LEFT JOIN messages o ON o.conversation_id = m.conversation_id AND o.number = m.number - 1`).Scan(&back, &gaps)
	if err != nil || back > 0 || gaps > 0 {
		t.Errorf("%d messages are older than those before them, %d have none before them (%v)", back, gaps, err)
	}
}

// TestPresenceReadsTheClock: a store that is present has the database's time, from the start, and again if its clock becomes wrong.
func TestPresenceReadsTheClock(t *testing.T) {
	t.Parallel()
	g := newClockGround(t)
	first := g.now()
	for _, s := range []*store.Store{g.ahead, g.behind} {
		living, end := context.WithCancel(t.Context())
		ready, gone := make(chan struct{}), make(chan struct{})
		go func() { s.BePresent(living, func() { close(ready) }); close(gone) }()
		t.Cleanup(func() { end(); <-gone })
		<-ready
		writeTimes(t, s, g.alice, g.bob)
		if difference := s.ClockDifference(); difference.Abs() > exact {
			t.Errorf("the clock of this machine is %s ahead of the database's, which has the same", difference)
		}
	}
	if off := timesOff(t, g.connection, first.Add(-exact), g.now().Add(exact)); off != nil {
		t.Errorf("these do not have the time of the database: %v", off)
	}
	g.ahead.SetClock(wrongBy)
	if !testkit.Eventually(20*time.Second, func() bool { return g.ahead.ClockDifference().Abs() < exact }) {
		t.Errorf("the clock stays wrong: by %s", -g.ahead.ClockDifference())
	}
}
