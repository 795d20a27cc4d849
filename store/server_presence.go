package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// presenceClass separates the advisory locks of running servers from all other advisory locks. It is "PARL" in ASCII.
const presenceClass = 0x5041524c

// BePresent shows other servers on this database that this server is alive, until ctx ends. It holds an advisory lock
// on a separate connection. PostgreSQL releases the lock as soon as the process ends. BePresent replaces a lost
// connection. It calls ready after the first attempt to get the lock, successful or not. On the same connection it reads the
// database's clock, for Now.
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
		s.watch(ctx, connection)
		_ = connection.Close(context.WithoutCancel(ctx))
	}
}

// heartbeat is how often watch checks the connection, and how long a check may take.
const heartbeat = 5 * time.Second

// watch returns when the connection is broken or ctx ends. It passes on what other servers announce, and notices at once when PostgreSQL
// closes the connection. Reading the clock also finds a connection that died without being closed.
func (s *Store) watch(ctx context.Context, connection *pgx.Conn) {
	for ctx.Err() == nil {
		waiting, cancel := context.WithTimeout(ctx, heartbeat)
		for {
			notification, err := connection.WaitForNotification(waiting)
			if err != nil {
				break
			}
			s.hear(notification.Payload)
		}
		cancel()
		asking, cancel := context.WithTimeout(ctx, heartbeat)
		err := s.clock.read(asking, connection)
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
	free := false
	if err = s.clock.read(ctx, connection); err == nil {
		// It does not wait for the lock: PostgreSQL may need minutes to notice that a former connection of this server is lost.
		err = connection.QueryRow(ctx, "SELECT pg_try_advisory_lock(@class, @owner)", named{"class": presenceClass, "owner": s.owner}).Scan(&free)
	}
	if err == nil && !free {
		err = errors.New("another connection has the lock of this server")
	}
	if err == nil {
		_, err = connection.Exec(ctx, "LISTEN "+newsChannel)
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
