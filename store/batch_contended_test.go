package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
)

// sender returns a function that sends the next message of one payer to the group through a server, paid with vouchers or with
// single payments.
func (g *ground) sender(s *store.Store, i int, vouchers bool) func(to uuid.UUID) error {
	from, charged := g.agents[i%len(g.agents)], int64(0)
	channel, payer := g.openChannel(i, 1000)
	return func(to uuid.UUID) error {
		message := toGroup(from, to, "contended")
		if vouchers {
			charged += voucherPrice
			return g.charge(g.t.Context(), s, chargeOf(channel, payer, charged, from), message)
		}
		payment := beginning(payer, from)
		if err := s.BeginSettlement(g.t.Context(), payment, time.Minute, nil); err != nil {
			return err
		}
		return commit(g.t.Context(), s, sending(message), deliveryOf(payment))
	}
}

// TestLockedConversationDelaysNoOther: while a transaction has locked a group chat and many calls wait to send to it, messages to
// other conversations are sent. The calls that waited are then sent together.
func TestLockedConversationDelaysNoOther(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	const senders = 12
	other := g.agents[1]
	var waiting []func(uuid.UUID) error
	for i := range senders {
		waiting = append(waiting, g.sender(g.Store, i, i%2 == 0))
	}
	channel, payer := g.openChannel(senders, 1)
	results := make(chan error, senders)
	sent := make(chan error, 1)
	err := g.Transaction(t.Context(), func(tx *store.Tx) error {
		if err := tx.LockConversation(t.Context(), g.group); err != nil {
			return err
		}
		for _, send := range waiting {
			go func() { results <- send(g.group) }()
			time.Sleep(10 * time.Millisecond) // a batch of its own for each
		}
		go func() {
			sent <- g.charge(t.Context(), g.Store, chargeOf(channel, payer, voucherPrice, g.agents[0]), private(g.agents[0], other, "meanwhile"))
		}()
		select {
		case err := <-sent:
			time.Sleep(time.Second / 2) // all senders wait by now
			return err
		case <-time.After(10 * time.Second):
			return errors.New("a message to another conversation is not sent")
		}
	})
	if err != nil {
		t.Error(err)
	}
	for range senders {
		if err := <-results; err != nil {
			t.Errorf("a message that waited: %v", err)
		}
	}
	if n := g.count(`SELECT count(DISTINCT CAST(xmin AS text)) FROM messages WHERE content = 'contended'`); n > senders/3 {
		t.Errorf("%d messages were sent in %d transactions", senders, n)
	}
	g.checkCounters(fmt.Sprintf("%d messages", senders+1))
}

// TestLongMessagesDelayNoOther: while the statement that sends a long message waits for a lock, short messages are sent.
func TestLongMessagesDelayNoOther(t *testing.T) {
	t.Parallel()
	g := newGround(t)
	slow, quick, reader := g.agents[0], g.agents[1], g.agents[2]
	send := func(i int, message store.OutgoingMessage) (sent chan error) {
		channel, payer := g.openChannel(i, 1)
		sent = make(chan error, 1)
		go func() {
			sent <- g.charge(t.Context(), g.Store, chargeOf(channel, payer, voucherPrice, message.Sender), message)
		}()
		return sent
	}
	lock, err := connect(t, g.connection.Config().ConnString()).Begin(t.Context())
	testkit.NoError(t, err)
	if _, err := lock.Exec(t.Context(), `SELECT FROM agents WHERE id = $1 FOR UPDATE`, slow); err != nil {
		t.Fatal(err)
	}
	long := send(0, private(slow, reader, strings.Repeat("long ", 2000)))
	g.query(func(c *pgx.Conn) error { waitForLocks(t, c, 1); return nil })
	err = <-send(1, private(quick, reader, "short")) // if it waited for the long one, that would end with an error: see batchTimeout
	if err := errors.Join(err, lock.Rollback(t.Context()), <-long); err != nil {
		t.Error(err)
	}
}
