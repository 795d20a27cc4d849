//go:build failover

package failover

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/test/consistency"
	"github.com/parley-chat/parley/x402"
)

const (
	// maxResponse is the longest that a caller waits for a response.
	maxResponse = 5 * time.Second
	// maxOpen is how long a payment stays open after everything is back.
	maxOpen = 2 * time.Minute
)

// books is what was found at the end. The counts are of messages.
type books struct {
	acked, lost, doubled, contradicted int
	other                              []string // everything else that must not be
	histories                          consistency.Report
}

func (b *books) wrong(format string, details ...any) {
	b.other = append(b.other, fmt.Sprintf(format, details...))
}

// offences returns what must not be, in words.
func (b *books) offences() []string {
	all := b.other
	for _, count := range []struct {
		n    int
		what string
	}{{b.lost, "acknowledged messages are lost"}, {b.doubled, "messages are there twice"}, {b.contradicted, "answers contradict the ledger"}} {
		if count.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", count.n, count.what))
		}
	}
	return all
}

// stored is a message in the database.
type stored struct {
	conversation, sender string
	times                int
	at                   time.Time
}

// check compares the answers, the database and the chain, after everything was mended and all clients stopped.
func (l *load) check(ctx context.Context, databaseURL string) (*books, error) {
	b := &books{}
	database, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	defer func() { _ = database.Close(ctx) }()
	if err := b.awaitClosed(ctx, database, l.maxOpen); err != nil {
		return nil, err
	}
	messages, err := l.messages(ctx, database)
	if err != nil {
		return nil, err
	}
	for _, a := range l.agents {
		for _, c := range a.calls {
			b.compare(c, messages[c.content])
		}
	}
	if err := b.checkRead(ctx, l, database, messages); err != nil {
		return nil, err
	}
	facts, err := consistency.Load(ctx, databaseURL, time.Time{})
	if err != nil {
		return nil, err
	}
	b.histories.Check(l.transport.base.Partitions(facts, consistency.Scope{Rights: true, Unread: true, Complete: true}))
	b.other = append(b.other, b.histories.Wrong()...)
	b.checkTimes(l.transport.all)
	for what, query := range invariants {
		var n int
		if err := database.QueryRow(ctx, query).Scan(&n); err != nil {
			return nil, err
		}
		if n != 0 {
			b.wrong("%d %s", n, what)
		}
	}
	return b, b.checkMoney(ctx, l, database, databaseURL)
}

// awaitClosed waits until no payment is open.
func (b *books) awaitClosed(ctx context.Context, database *pgx.Conn, maxOpen time.Duration) error {
	var open string
	var failed error
	if !testkit.Eventually(maxOpen, func() bool {
		failed = database.QueryRow(ctx, `SELECT coalesce(string_agg(format('%s %s %s', operation, state, created_at), ', '), '') FROM payments
			WHERE state IN ('settling', 'unknown')`).Scan(&open)
		return failed == nil && open == ""
	}) {
		b.wrong("%s after everything was mended payments are still open: %s", maxOpen, open)
	}
	return failed
}

// messages returns all messages by content.
func (l *load) messages(ctx context.Context, database *pgx.Conn) (map[string]*stored, error) {
	rows, err := database.Query(ctx, `SELECT m.conversation_id::text, a.username, m.created_at, m.content FROM messages m
		JOIN agents a ON a.id = m.sender_id`)
	if err != nil {
		return nil, err
	}
	all := map[string]*stored{}
	var one stored
	var content string
	_, err = pgx.ForEachRow(rows, []any{&one.conversation, &one.sender, &one.at, &content}, func() error {
		if known := all[content]; known != nil {
			known.times++
			return nil
		}
		message := one
		message.times = 1
		all[content] = &message
		return nil
	})
	return all, err
}

// compare checks the answers of one call against the database; message is nil if it is not there.
func (b *books) compare(c *call, message *stored) {
	switch {
	case message == nil && c.acked:
		b.acked++
		b.lost++
	case message == nil:
	case message.times > 1:
		b.doubled++
	case c.refused():
		b.contradicted++
	default:
		if c.acked {
			b.acked++
		}
		b.contradicted += btoi(c.deniedAfter(message.at))
	}
}

// deniedAfter reports whether an attempt was told that it was not charged, although the message was sent and no later attempt can have
// sent it.
func (c *call) deniedAfter(sent time.Time) bool {
	const margin = 100 * time.Millisecond // between the clock of the database and that of the clients
	for i, a := range c.attempts {
		if !a.uncharged() {
			continue
		}
		later := false
		for _, next := range c.attempts[i+1:] {
			later = later || next.paid && next.from.Before(sent.Add(margin))
		}
		if !later {
			return true
		}
	}
	return false
}

// checkRead checks that every message was returned to every other member of its conversation as unread, that what was confirmed did not
// come again, and that each poll was paid once.
func (b *books) checkRead(ctx context.Context, l *load, database *pgx.Conn, messages map[string]*stored) error {
	rows, err := database.Query(ctx, "SELECT m.conversation_id::text, a.username FROM memberships m JOIN agents a ON a.id = m.agent_id "+
		"WHERE m.status = 'member'")
	if err != nil {
		return err
	}
	members := map[string][]string{}
	var conversation, name string
	if _, err = pgx.ForEachRow(rows, []any{&conversation, &name}, func() error {
		members[conversation] = append(members[conversation], name)
		return nil
	}); err != nil {
		return err
	}
	missing := 0
	for content, message := range messages {
		for _, name := range members[message.conversation] {
			missing += btoi(name != message.sender && !l.consumers.Seen(name, content))
		}
	}
	if missing > 0 {
		b.wrong("%d unread messages were never returned", missing)
	}
	var polls int
	err = database.QueryRow(ctx, "SELECT count(*) FROM payments WHERE operation = 'listUnreadMessages' AND state = 'delivered'").Scan(&polls)
	b.other = append(b.other, l.consumers.Wrong(polls)...)
	return err
}

// checkTimes checks how long callers waited, beside what they asked for. A stopped process responds to nobody.
func (b *books) checkTimes(attempts []*attempt) {
	slow := 0
	var longest *attempt
	for _, a := range attempts {
		if took := a.to.Sub(a.from) - a.wait; took > maxResponse && a.server.couldRespond(a.window) {
			slow++
			if longest == nil || took > longest.to.Sub(longest.from) {
				longest = a
			}
		}
	}
	if slow > 0 {
		b.wrong("%d calls took longer than %s, the longest %s at %s: status %d %s by %s", slow, maxResponse, longest.to.Sub(longest.from),
			longest.from.Format(time.TimeOnly), longest.status, longest.code, longest.server.route)
	}
}

// invariants are counts that must be 0.
var invariants = map[string]string{
	"conversations have gaps in their numbers": testkit.NumberGaps,
	"messages are older than the one before": `SELECT count(*) FROM (
		SELECT created_at < lag(created_at) OVER (PARTITION BY conversation_id ORDER BY number) AS back FROM messages) m WHERE back`,
	"kinds of messages have another number than delivered payments": `SELECT count(*) FROM (VALUES
		('sendPrivateMessage', 'private'), ('sendGroupMessage', 'group'), ('sendChannelMessage', 'channel')) k (operation, kind)
		WHERE (SELECT count(*) FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE c.kind = k.kind)
			<> (SELECT count(*) FROM payments p WHERE p.operation = k.operation AND p.state = 'delivered')`,
	"payments were taken for nothing": `SELECT count(*) FROM payments WHERE state = 'undeliverable'`,
}

// checkMoney compares the ledger with the chain: in sum, and payment by payment as an operator does.
func (b *books) checkMoney(ctx context.Context, l *load, database *pgx.Conn, databaseURL string) error {
	var paid uint64
	err := database.QueryRow(ctx, "SELECT coalesce(sum(amount), 0)::bigint FROM payments WHERE scheme = 'exact' AND state = "+
		"'delivered'").Scan(&paid)
	if err != nil {
		return err
	}
	if revenue := l.world.Revenue() - l.world.Ledger.Received(devnet.Payee).Settled; revenue != paid {
		b.wrong("single payments brought the payee %d, the ledger says %d", revenue, paid)
	}
	reconcile := exec.CommandContext(ctx, program, "payments", "reconcile", "--database-url", databaseURL, "--rpc-url", l.facilitator+"/rpc",
		"--network", x402.NetworkBaseSepolia, "--payee", devnet.Payee)
	output, err := reconcile.CombinedOutput()
	if err != nil {
		b.wrong("parley payments reconcile: %v\n%s", err, output)
	}
	return nil
}
