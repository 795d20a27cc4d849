package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// presenceClass keeps the advisory locks of living servers apart from all others: "PARL" in ASCII.
const presenceClass = 0x5041524c

// newOwner picks the number under which this process works on payments. Of two equal ones the second would not get its
// lock and stay silent, which is what being gone looks like; leases still hold then.
func newOwner() int32 { return rand.Int32N(1<<31-1) + 1 } //nolint:gosec // a name, not a secret

// BePresent shows the other servers on this database that the present one lives, until ctx ends: it holds an advisory
// lock on a connection of its own, which PostgreSQL gives back the moment the process is gone. A lost connection is
// made anew. On the same connection it hears which agents have changed, for the cache. ready is called when the lock is
// held for the first time, or could not be had at once.
func (s *Store) BePresent(ctx context.Context, ready func()) {
	for first := true; ctx.Err() == nil; first = false {
		connection, err := s.holdPresence(ctx)
		if first {
			ready()
		}
		if err != nil {
			pause(ctx, time.Second)
			continue
		}
		s.listen(ctx, connection)
		s.agents.hears(false)
		_ = connection.Close(context.WithoutCancel(ctx))
	}
}

// heartbeat is how often the server calls itself, and how long it waits to hear that.
const heartbeat = 5 * time.Second

// listen hears which agents have changed until the connection is broken or ctx ends. Agents are remembered only while the
// server hears its own calls, which it makes over another connection: a connection can be deaf and look well, behind a
// pooler in transaction mode for instance.
func (s *Store) listen(ctx context.Context, connection *pgx.Conn) {
	for ctx.Err() == nil {
		if s.hear(ctx, connection) {
			continue
		}
		s.agents.hears(false)
		asking, cancel := context.WithTimeout(ctx, heartbeat)
		err := connection.Ping(asking)
		cancel()
		if err != nil {
			return
		}
	}
}

// hear listens for one heartbeat, and tells whether the server heard itself.
func (s *Store) hear(ctx context.Context, connection *pgx.Conn) (heard bool) {
	ctx, cancel := context.WithTimeout(ctx, heartbeat)
	defer cancel()
	call := fmt.Sprintf("server %d", s.owner)
	_, _ = s.pool.Exec(ctx, "SELECT pg_notify($1, $2)", agentChannel, call) // what was not called is not heard
	for {
		notification, err := connection.WaitForNotification(ctx)
		if err != nil {
			return heard
		}
		if id, err := uuid.Parse(notification.Payload); err == nil {
			s.agents.forget(id)
		} else if notification.Payload == call {
			heard = true
			s.agents.hears(true)
		}
	}
}

func (s *Store) holdPresence(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	connection, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	_, err = connection.Exec(ctx, "SELECT pg_advisory_lock($1, $2)", presenceClass, s.owner)
	if err == nil {
		_, err = connection.Exec(ctx, "LISTEN "+agentChannel)
	}
	if err != nil {
		_ = connection.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return connection, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
