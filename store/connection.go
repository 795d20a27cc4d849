package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Limits bound how long a call waits for the database. Zero means no limit.
type Limits struct {
	Queue       time.Duration // for the batch that a call is put into; then the database is too slow for the calls that come
	Acquire     time.Duration // for a connection, including connecting and the check of an idle one
	Statement   time.Duration // for one statement, and for one batch of statements
	Transaction time.Duration
	Call        time.Duration // for all that a call waits for: see CallTime
}

// CallTime is how long one call of a server waits in all, before its payment is settled and again after that. The limits of single
// statements add up otherwise, because a call has several. It is the deadline of the context of a call.
const CallTime = 4200 * time.Millisecond

// Serving are the limits of a server. Commands of the operator may take longer.
var Serving = Limits{Queue: 700 * time.Millisecond, Acquire: 700 * time.Millisecond, Statement: 2500 * time.Millisecond,
	Transaction: 3500 * time.Millisecond, Call: CallTime}

// LimitCall returns a context with the deadline of a call.
func (r *Reader) LimitCall(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, cmp.Or(r.limits.Call, batchTimeout))
}

const (
	// defaultConnections is how many connections a server opens at most, if it has no more processors and pool_max_conns is not set.
	// Transactions use half of them, and of the others at most half wait for locks.
	defaultConnections = 8
	// silence is how long the peer may leave sent data unacknowledged before the connection is given up.
	silence = 2500 * time.Millisecond
	// connecting bounds a TCP connection to one of the hosts.
	connecting = 500 * time.Millisecond
)

// keepAlive finds a connection whose peer disappeared while nothing was sent.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 3}

// CheckURL returns an error if the URL of a database is malformed. The error does not contain the URL, which has a password.
func CheckURL(url string) error {
	_, err := configure(url, nil)
	return err
}

// configure returns the configuration of a pool for the database at url. Calls on it have the limits of guard, unless that is nil.
func configure(url string, guard *guard, tracers ...pgx.QueryTracer) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		// The error of pgx contains the URL, and so the password.
		return nil, errors.New("the database URL is invalid; use the form postgres://user:password@host:5432/database")
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = max(defaultConnections, int32(runtime.NumCPU())) //nolint:gosec // a small number
	}
	dialer := &net.Dialer{Timeout: connecting, KeepAliveConfig: keepAlive, Control: giveUpAfter(silence)}
	config.ConnConfig.DialFunc = dialer.DialContext
	config.AfterConnect = registerUUID
	if guard == nil {
		return config, nil
	}
	if !strings.Contains(url, "connect_timeout") { // the default of pgx is two minutes
		config.ConnConfig.ConnectTimeout = guard.limits.Acquire
	}
	config.ConnConfig.Tracer = guard
	if len(tracers) > 0 {
		config.ConnConfig.Tracer = multitracer.New(append(tracers, guard)...)
	}
	prepare := guard.sessionLimits(config.ConnConfig.RuntimeParams)
	config.BeforeConnect = func(_ context.Context, connection *pgx.ConnConfig) error {
		var connected atomic.Bool
		dial := connection.DialFunc
		connection.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if connected.Load() {
				return nil, errNoCancel
			}
			return dial(ctx, network, address)
		}
		connection.AfterConnect = func(ctx context.Context, session *pgconn.PgConn) error {
			connected.Store(true)
			_, err := session.Exec(ctx, prepare).ReadAll()
			return err
		}
		return nil
	}
	config.PingTimeout = guard.limits.Acquire / 2
	if config.ConnConfig.ValidateConnect == nil {
		// A proxy may lead to a former leader, which is a standby now.
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	return config, nil
}

// guard gives each statement and each wait for a connection a deadline: pgx uses the context that a tracer returns. After a failed
// connection it closes the others, which lead to the same host: the next calls find out within the time of one connection attempt.
type guard struct {
	limits Limits

	mu       sync.Mutex
	pool     *pgxpool.Pool
	reset    time.Time // when the pool was reset last
	answered time.Time // when the database last answered a statement
}

// errNoCancel refuses to connect for a cancel request. pgx sends one when a deadline ends a statement. If the statement waits for a
// synchronous standby to have its COMMIT, PostgreSQL then stops waiting, and shows others what no standby has: a repeated call would be
// acknowledged, and lost with the leader. The limit of PostgreSQL itself ends a statement that the caller gave up, but no COMMIT.
var errNoCancel = errors.New("statements are not cancelled")

// sessionLimits returns the statement that sets PostgreSQL's own limits, unless the database URL sets them. statement_timeout ends
// what is left of a statement that reached its deadline here. idle_in_transaction_session_timeout ends the transaction, and with it
// the locks, of a server that was cut off or stands still. The keepalives end its idle sessions, and with them the lock that shows
// that it is alive, after twenty seconds; without them PostgreSQL waits for two hours. They are not among the
// parameters of the connection, because poolers refuse those that they do not know.
func (g *guard) sessionLimits(given map[string]string) string {
	text := ""
	for name, limit := range map[string]int64{
		"statement_timeout":                   (g.limits.Statement + 500*time.Millisecond).Milliseconds(),
		"idle_in_transaction_session_timeout": g.limits.Transaction.Milliseconds(),
		"tcp_keepalives_idle":                 8, "tcp_keepalives_interval": 4, "tcp_keepalives_count": 3,
	} {
		if _, set := given[name]; !set {
			text += fmt.Sprintf("SET %s = %d;", name, limit)
		}
	}
	return text
}

// alive reports whether the database answered a statement within the last second.
func (g *guard) alive() bool {
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Since(g.answered) < time.Second
}

// watch sets the pool whose connections are closed.
func (g *guard) watch(pool *pgxpool.Pool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pool = pool
}

var (
	_ pgx.QueryTracer       = (*guard)(nil)
	_ pgx.BatchTracer       = (*guard)(nil)
	_ pgxpool.AcquireTracer = (*guard)(nil)
)

// limitKey is the key of the context value that holds the function that releases the deadline.
type limitKey struct{}

func withLimit(ctx context.Context, limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, limit)
	return context.WithValue(ctx, limitKey{}, cancel)
}

func releaseLimit(ctx context.Context) {
	if cancel, ok := ctx.Value(limitKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

// ended closes all connections after an error of one, at most once in a second. A statement that reaches its deadline while the
// database answers others is slow, or waits for a lock: that is no reason to close connections.
func (g *guard) ended(ctx context.Context, err error) {
	var network net.Error
	failed := errors.As(err, &network)
	silent := (errors.Is(ctx.Err(), context.DeadlineExceeded) || failed && network.Timeout()) && !pgconn.SafeToRetry(err) // it was sent
	releaseLimit(ctx)
	said, refused := errors.AsType[*pgconn.PgError](err)
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	broken := failed && !network.Timeout() || errors.Is(err, io.ErrUnexpectedEOF) || refused && said.Code == "25006"
	switch {
	case err == nil, refused && !broken:
		g.answered = now
		return
	case !broken && (!silent || now.Sub(g.answered) < time.Second), now.Sub(g.reset) < time.Second:
		return
	}
	g.reset = now
	g.pool.Reset()
}

// The methods of the tracers limit a statement, a batch or the wait for a connection when it begins, and release the limit when it ends.

func (g *guard) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return withLimit(ctx, g.limits.Statement)
}

func (g *guard) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	g.ended(ctx, data.Err)
}

func (g *guard) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return withLimit(ctx, g.limits.Statement)
}

// TraceBatchQuery does nothing: the limit is that of the batch.
func (g *guard) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (g *guard) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	g.ended(ctx, data.Err)
}

func (g *guard) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return withLimit(ctx, g.limits.Acquire)
}

func (g *guard) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	releaseLimit(ctx)
}
