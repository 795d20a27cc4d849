package tracing

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// maxStatement is how many bytes of a statement a span has.
const maxStatement = 400

// Database traces the statements of pgx, and so those of GORM. otelpgx does the same, but it records the texts of errors, which can
// quote values, and makes contexts for calls that are not sampled.
type Database struct{ tracer *Tracer }

// Database returns the tracer for pgx.
func (t *Tracer) Database() *Database { return &Database{t} }

type databaseKey struct{}

// start starts a span that only end ends: the context of an acquire or of a batch also reaches its statements.
func (d *Database) start(ctx context.Context, name string, attributes ...attribute.KeyValue) context.Context {
	if !sampled(ctx) {
		return ctx
	}
	ctx = d.tracer.client(ctx, name, append(attributes, attribute.String("db.system.name", "postgresql"))...)
	return context.WithValue(ctx, databaseKey{}, trace.SpanFromContext(ctx))
}

func (d *Database) end(ctx context.Context, err error) {
	span, ok := ctx.Value(databaseKey{}).(trace.Span)
	if !ok || !span.IsRecording() {
		return
	}
	if err != nil {
		span.SetStatus(codes.Error, "")
		if said, ok := errors.AsType[*pgconn.PgError](err); ok {
			span.SetAttributes(attribute.String("db.response.status_code", said.Code))
		}
	}
	span.End()
}

// statement is the beginning of a statement in one line. Parameters are not in it: GORM and pgx send them apart.
func statement(text string) string {
	line := strings.Join(strings.Fields(text[:min(len(text), 2*maxStatement)]), " ")
	return strings.ToValidUTF8(line[:min(len(line), maxStatement)], "")
}

// TraceQueryStart starts the span of a statement.
func (d *Database) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !sampled(ctx) {
		return ctx
	}
	text := statement(data.SQL)
	operation, _, _ := strings.Cut(text, " ")
	return d.start(ctx, "statement "+operation, attribute.String("db.query.text", text))
}

// TraceQueryEnd ends it.
func (d *Database) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	d.end(ctx, data.Err)
}

// TraceBatchStart starts the span of several statements in one round trip.
func (d *Database) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	if !sampled(ctx) {
		return ctx
	}
	texts := make([]string, len(data.Batch.QueuedQueries))
	for i, query := range data.Batch.QueuedQueries {
		texts[i] = statement(query.SQL)
	}
	return d.start(ctx, "statements", attribute.StringSlice("db.query.texts", texts))
}

// TraceBatchQuery does nothing: the span is that of the batch.
func (d *Database) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

// TraceBatchEnd ends it.
func (d *Database) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	d.end(ctx, data.Err)
}

// TraceAcquireStart starts the span of the wait for a connection.
func (d *Database) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return d.start(ctx, "wait for connection")
}

// TraceAcquireEnd ends it.
func (d *Database) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, data pgxpool.TraceAcquireEndData) {
	d.end(ctx, data.Err)
}
