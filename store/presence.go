package store

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// presenceClass keeps the advisory locks of living servers apart from all others: "PARL" in ASCII.
const presenceClass = 0x5041524c

// newOwner picks the number under which this process works on payments. Of two equal ones the second would not get its
// lock and stay silent, which is what being gone looks like; leases still hold then.
func newOwner() int32 { return rand.Int32N(1<<31-1) + 1 } //nolint:gosec // a name, not a secret

// BePresent shows the other servers on this database that the present one lives, until ctx ends: it holds an advisory
// lock on a connection of its own, which PostgreSQL gives back the moment the process is gone. A lost connection is
// made anew. ready is called when the lock is held for the first time, or could not be had at once.
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
		watch(ctx, connection)
		_ = connection.Close(context.WithoutCancel(ctx))
	}
}

// heartbeat is how often the connection is asked whether it lives, and how long its response may take.
const heartbeat = 5 * time.Second

// watch returns when the connection is broken or ctx ends. It waits for notifications, which nobody sends, so that a
// connection that PostgreSQL closes is noticed at once; the ping finds one that is dead without a word.
func watch(ctx context.Context, connection *pgx.Conn) {
	for ctx.Err() == nil {
		waiting, cancel := context.WithTimeout(ctx, heartbeat)
		_, _ = connection.WaitForNotification(waiting)
		cancel()
		asking, cancel := context.WithTimeout(ctx, heartbeat)
		err := connection.Ping(asking)
		cancel()
		if err != nil {
			return
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
