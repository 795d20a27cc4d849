package store_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"gorm.io/gorm/schema"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

// openStore opens a database until the test ends.
func openStore(t testing.TB, url string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), url, store.Limits{})
	testkit.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// connect is a connection of the test's own to a database.
func connect(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), url)
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close(context.Background()) })
	return connection
}

// agent creates an account as registration does.
func agent(t *testing.T, s *store.Store, name string) uuid.UUID {
	t.Helper()
	id := uuid.Must(uuid.NewV7())
	ctx := t.Context()
	if err := s.Transaction(ctx, func(tx *store.Tx) error {
		return tx.RequestAccount(ctx, name, "0xpayer", store.HashKey("TAN"), uuid.New())
	}); err != nil {
		t.Fatal(err)
	}
	created := store.Agent{ID: id, Username: name, IsDiscoverable: true, KeyHash: store.HashKey(name), CreatedAt: time.Now()}
	if err := s.Transaction(ctx, func(tx *store.Tx) error {
		return tx.CreateAccount(ctx, created, [][]byte{store.HashKey("TAN")}, uuid.New())
	}); err != nil {
		t.Fatal(err)
	}
	return id
}

// private is a message from one agent to another.
func private(from, to uuid.UUID, content string) store.OutgoingMessage {
	return store.OutgoingMessage{Kind: store.KindPrivate, To: to, Sender: from, ID: uuid.Must(uuid.NewV7()), Content: content}
}

// toGroup is a message from an agent to a group chat.
func toGroup(from, group uuid.UUID, content string) store.OutgoingMessage {
	return store.OutgoingMessage{Kind: store.KindGroup, To: group, Sender: from, ID: uuid.Must(uuid.NewV7()), Content: content}
}

// TestModelsAreTheSchema: every column has its field and every field its column.
func TestModelsAreTheSchema(t *testing.T) {
	t.Parallel()
	connection := connect(t, storetest.URL(t))
	models := map[string]any{
		"agents": store.Agent{}, "registrations": store.Registration{}, "conversations": store.Conversation{},
		"private_pairs": store.PrivatePair{},
		"memberships":   store.Membership{}, "messages": store.Message{}, "payments": store.Payment{}, "blocks": store.Block{},
		"reactions":        store.Reaction{},
		"payment_channels": store.PaymentChannel{}, "payment_channel_transactions": store.PaymentChannelTransaction{}, "notices": store.Notice{},
		"payment_records": store.PaymentRecord{}, "removed_vouchers": store.RemovedVouchers{},
		"suspensions": store.Suspension{}, "audit": store.AuditEntry{}, "refunds": store.Refund{},
		"reserved_usernames":    store.ReservedUsername{},
		"conversation_removals": store.ConversationRemoval{}, "tan_tries": store.TANTries{},
	}
	rows, err := connection.Query(t.Context(), `SELECT table_name, column_name FROM information_schema.columns
		WHERE table_schema = 'public' AND table_name NOT IN ('goose_db_version', 'schema_compat',
			'payment_channel_scans', 'payment_channel_sums')`)
	testkit.NoError(t, err)
	columns := map[string][]string{}
	var table, column string
	if _, err := pgx.ForEachRow(rows, []any{&table, &column}, func() error {
		columns[table] = append(columns[table], column)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	fields := map[string][]string{}
	for table, model := range models {
		parsed, err := schema.Parse(model, &sync.Map{}, schema.NamingStrategy{})
		testkit.NoError(t, err)
		if parsed.Table != table {
			t.Errorf("%v is kept in %s, want %s", reflect.TypeOf(model), parsed.Table, table)
		}
		fields[table] = slices.Clone(parsed.DBNames)
	}
	for _, names := range []map[string][]string{columns, fields} {
		for table := range names {
			sort.Strings(names[table])
		}
	}
	if diff := cmp.Diff(columns, fields); diff != "" {
		t.Errorf("models and schema differ (-schema +models):\n%s", diff)
	}
}

func TestMigrateTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	if err := s.CheckSchema(t.Context()); err != nil {
		t.Errorf("after migrating: %v", err)
	}
	if n, err := s.Migrate(t.Context(), nil); err != nil || n != 0 {
		t.Errorf("migrated again: %d migrations, %v", n, err)
	}
}

// TestNumbersHaveNoGaps: many agents write at once, both ways and to a new chat; some give up. Every message has its
// number, none is missing, and there is one chat.
func TestNumbersHaveNoGaps(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	alice, bob := agent(t, s, "alice"), agent(t, s, "bob")
	const senders, each = 8, 25
	giveUp := errors.New("give up")
	var group sync.WaitGroup
	for i := range senders {
		group.Go(func() {
			from, to := alice, bob
			if i%2 == 0 {
				from, to = bob, alice
			}
			for n := range each {
				err := s.Transaction(t.Context(), func(tx *store.Tx) error {
					if _, err := tx.SendMessage(t.Context(), private(from, to, fmt.Sprintf("%d of %d", n, i))); err != nil {
						return err
					}
					if n%5 == 4 {
						return giveUp
					}
					return nil
				})
				if err != nil && !errors.Is(err, giveUp) {
					t.Errorf("send: %v", err)
				}
			}
		})
	}
	group.Wait()
	conversations, err := s.AgentConversations(t.Context(), alice)
	if err != nil || len(conversations) != 1 {
		t.Fatalf("alice has %d chats (%v), want one", len(conversations), err)
	}
	view, err := s.ConversationView(t.Context(), store.KindPrivate, conversations[0].ID, alice)
	testkit.NoError(t, err)
	page, err := s.Messages(t.Context(), view, 1000, 1, nil, store.LongPage)
	testkit.NoError(t, err)
	messages := page.Messages
	if want := senders * each * 4 / 5; len(messages) != want || view.LastNumber != int64(want) {
		t.Fatalf("there are %d messages and the counter says %d, want %d", len(messages), view.LastNumber, want)
	}
	for i, message := range messages {
		if message.Number != int64(len(messages)-i) {
			t.Fatalf("the message at %d from the end has number %d", i, message.Number)
		}
		if i > 0 && message.CreatedAt.After(messages[i-1].CreatedAt) {
			t.Errorf("number %d is younger than number %d", message.Number, messages[i-1].Number)
		}
	}
}

// TestCallersThatLeave: some callers leave before or between the statements of their transactions, while others write. Nobody
// who leaves touches a connection that another has by then, so that all that was written is there.
func TestCallersThatLeave(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	alice, bob := agent(t, s, "alice"), agent(t, s, "bob")
	const leavers, writers, each = 4, 4, 100
	var group sync.WaitGroup
	for range leavers {
		group.Go(func() {
			for n := range each {
				ctx, leave := context.WithCancel(t.Context())
				err := s.Transaction(ctx, func(tx *store.Tx) error {
					if n%2 == 0 {
						if err := tx.LockConversation(ctx, uuid.New()); err != nil {
							return err
						}
					}
					leave()
					return tx.LockConversation(ctx, uuid.New())
				})
				if err == nil {
					t.Error("a transaction was committed for a caller that had left")
				}
			}
		})
	}
	for range writers {
		group.Go(func() {
			for range each {
				err := s.Transaction(t.Context(), func(tx *store.Tx) error {
					if err := tx.LockConversation(t.Context(), uuid.New()); err != nil {
						return err
					}
					_, err := tx.SendMessage(t.Context(), private(alice, bob, "still here"))
					return err
				})
				if err != nil {
					t.Errorf("send: %v", err)
				}
			}
		})
	}
	group.Wait()
	unread, err := s.Unread(t.Context(), bob, longPage(1, 1))
	if err != nil || unread.Total != writers*each {
		t.Errorf("%v messages are there (%v), want %d", unread, err, writers*each)
	}
}

// TestFailedStatementIsNotCommitted: who overlooks that a statement has failed hears of it when the transaction ends.
func TestFailedStatementIsNotCommitted(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	alice, bob := agent(t, s, "alice"), agent(t, s, "bob")
	if err := s.Transaction(t.Context(), func(tx *store.Tx) error {
		if _, err := tx.SendMessage(t.Context(), private(alice, bob, "one")); err != nil {
			return err
		}
		if err := tx.CreateConversation(t.Context(), store.KindGroup, uuid.New(), uuid.New(), "a group of nobody", nil, false); err == nil {
			t.Error("a group of nobody was created")
		}
		return nil
	}); err == nil {
		t.Error("the transaction claims to be committed")
	}
	if conversations, err := s.AgentConversations(t.Context(), alice); err != nil || len(conversations) != 0 {
		t.Errorf("alice has %d chats (%v), want none", len(conversations), err)
	}
}

func TestMarkerNeverMovesBack(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	alice, bob := agent(t, s, "alice"), agent(t, s, "bob")
	sent, err := alone(t.Context(), s, func(tx *store.Tx) (*store.Sent, error) {
		return tx.SendMessage(t.Context(), private(alice, bob, "hello"))
	})
	testkit.NoError(t, err)
	for range 6 {
		if _, err := alone(t.Context(), s, func(tx *store.Tx) (*store.Sent, error) {
			return tx.SendMessage(t.Context(), private(alice, bob, "and on"))
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, number := range []int64{3, 6, 5} {
		if err := s.Transaction(t.Context(), func(tx *store.Tx) error {
			return tx.MarkRead(t.Context(), bob, store.ReadRange{Conversation: sent.ConversationID, Oldest: 1, Newest: number})
		}); err != nil {
			t.Fatal(err)
		}
	}
	view, err := s.ConversationView(t.Context(), store.KindPrivate, sent.ConversationID, bob)
	if err != nil || view.ReadNumber != 6 {
		t.Errorf("the marker stands at %d (%v), want 6", view.ReadNumber, err)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx := t.Context()
	alice := agent(t, s, "alice")
	_, toSelf := alone(ctx, s, func(tx *store.Tx) (*store.Sent, error) { return tx.SendMessage(ctx, private(alice, alice, "me")) })
	_, toNobody := alone(ctx, s, func(tx *store.Tx) (*store.Sent, error) {
		return tx.SendMessage(ctx, private(alice, uuid.New(), "you?"))
	})
	_, noChat := s.ConversationView(ctx, store.KindPrivate, uuid.New(), alice)
	for _, test := range []struct {
		name string
		err  error
		want *store.Refusal
	}{
		{"a message to oneself", toSelf, store.ErrNothingToSelf},
		{"a message to nobody", toNobody, store.ErrAgentNotFound},
		{"a chat that is not there", noChat, store.ErrChatNotFound},
		{"a taken username", s.Transaction(ctx, func(tx *store.Tx) error {
			return tx.RequestAccount(ctx, "alice", "0xpayer", store.HashKey("TAN"), uuid.New())
		}), store.ErrUsernameTaken},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, test.err, test.want)
		}
	}
	if conversations, err := s.AgentConversations(ctx, alice); err != nil || len(conversations) != 0 {
		t.Errorf("rejected messages left %d chats (%v)", len(conversations), err)
	}
}

// TestDryRunLeavesNothing: a dry run changes nothing, and its error is the handler's.
func TestDryRunLeavesNothing(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ctx := t.Context()
	alice, bob := agent(t, s, "alice"), agent(t, s, "bob")
	dryRun := func(run func(do store.Actions) error) error {
		return s.DryRun(ctx, sharing(func(_ context.Context, do store.Actions) error { return run(do) }))
	}
	message := private(alice, bob, "only a dry run")
	for _, work := range []store.Work{sending(message), sendingAlone(message)} {
		testkit.NoError(t, s.DryRun(ctx, work))
	}
	if conversations, err := s.AgentConversations(ctx, alice); err != nil || len(conversations) != 0 {
		t.Errorf("the dry run left %d chats (%v)", len(conversations), err)
	}
	sent, err := alone(ctx, s, func(tx *store.Tx) (*store.Sent, error) { return tx.SendMessage(ctx, private(alice, bob, "hello")) })
	testkit.NoError(t, err)
	unknown := uuid.New()
	if err := dryRun(func(do store.Actions) error {
		_, err := do.Messages(ctx, &store.ConversationView{Conversation: store.Conversation{ID: sent.ConversationID, LastNumber: 1}}, 1, 1,
			&unknown, store.LongPage)
		return err
	}); !errors.Is(err, store.ErrMessageNotFound) {
		t.Errorf("the dry run of a page before an unknown message ends with %v, want ErrMessageNotFound", err)
	}
	if err := dryRun(func(do store.Actions) error {
		_, err := do.ReadUnread(ctx, bob, longPage(1, 10))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if unread, err := s.Unread(ctx, bob, longPage(1, 10)); err != nil || unread.Total != 1 {
		t.Errorf("after the dry run of a poll %+v (%v) is unread, want the message", unread, err)
	}
	rejected := dryRun(func(store.Actions) error { return store.ErrNotMember })
	if !errors.Is(rejected, store.ErrNotMember) {
		t.Errorf("the dry run's refusal comes back as %v", rejected)
	}
}

// TestConstraints: what must always hold is held by the database, whoever writes.
func TestConstraints(t *testing.T) {
	t.Parallel()
	s, connection := openBeside(t)
	alice, bob := agent(t, s, "alice"), agent(t, s, "bob")
	sent, err := alone(t.Context(), s, func(tx *store.Tx) (*store.Sent, error) {
		return tx.SendMessage(t.Context(), private(alice, bob, "hello"))
	})
	testkit.NoError(t, err)
	payment := func(columns, values string) string {
		return `INSERT INTO payments (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, operation,
			fingerprint,
			signature_hash, lease_until, created_at, updated_at, ` + columns +
			`) VALUES (gen_random_uuid(), 2, 'exact', 'eip155:8453', '0xa', '0xb', '0xc', '0xd', 1, now(), 'x',
			sha256('x'), sha256('x'), now(), now(), now(), ` + values + `)`
	}
	other := func(columns, values string) string { // each has an authorization of its own
		return strings.Replace(payment(columns, values), "'0xc'", "gen_random_uuid()::text", 1)
	}
	channel := func(charged, signed, claimed, balance int, state, payment string) string {
		since := "NULL"
		if claimed < min(charged, balance) {
			since = "now()"
		}
		return fmt.Sprintf(`INSERT INTO payment_channels (id, payer, payer_authorizer, network, asset, pay_to, receiver_authorizer,
			withdraw_delay, salt, charged, signed_max,
			signature, claimed, balance, withdraw_requested_at, refund_nonce, synced_at, state, payment_id, unclaimed_since, used_at, created_at)
			VALUES ('0x' || repeat('a', 64), '0xb', '0xb', 'eip155:8453', '0xa', '0xd', '0xe', 86400, '0x0', %d, %d, '', %d, %d, 0, 0, now(), '%s',
			%s, %s, now(), now())`, charged, signed, claimed, balance, state, payment, since)
	}
	transaction := func(kind string, claimed, paid int) string {
		return fmt.Sprintf(`INSERT INTO payment_channel_transactions (id, kind, network, asset, pay_to, payment_channel_ids, claimed, paid,
			transaction, created_at)
			VALUES (gen_random_uuid(), '%s', 'eip155:8453', '0xa', '0xd', '{}', %d, %d, '', now())`, kind, claimed, paid)
	}
	notice := func(kind, name, by string) string {
		return `INSERT INTO notices (agent_id, type, conversation_id, source_name, actor_id, created_at) VALUES ('` + alice.String() + `', '` +
			kind + `', '` +
			sent.ConversationID.String() + `', ` + name + `, ` + by + `, now())`
	}
	chat, low, high := sent.ConversationID.String(), min(alice.String(), bob.String()), max(alice.String(), bob.String())
	for name, statement := range map[string]string{
		"a username in capitals": `UPDATE agents SET username = 'Alice' WHERE username = 'alice'`,
		"two agents of one name": `UPDATE agents SET username = 'alice' WHERE username = 'bob'`,
		"a second chat of one pair": `INSERT INTO private_pairs (low_agent, high_agent, conversation_id) VALUES ('` + low + `', '` +
			high + `', '` + chat + `')`,
		"a chat with oneself": `INSERT INTO private_pairs (low_agent, high_agent, conversation_id) VALUES ('` + low + `', '` +
			low + `', '` + chat + `')`,
		"a pair the wrong way round": `INSERT INTO private_pairs (low_agent, high_agent, conversation_id) VALUES ('` + high + `', '` +
			low + `', '` + chat + `')`,
		"two messages of one number": `INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at) VALUES ('` +
			chat + `', 1, gen_random_uuid(), '` + low + `', 'x', now())`,
		"an empty message": `INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at) VALUES ('` +
			chat + `', 2, gen_random_uuid(), '` + low + `', '', now())`,
		"a message of nobody": `INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at) VALUES ('` +
			chat + `', 2, gen_random_uuid(), gen_random_uuid(), 'x', now())`,
		"an unheard-of notice":               notice("invited", "'x'", "'"+bob.String()+"'"),
		"a notice without a name":            notice("added", "''", "'"+bob.String()+"'"),
		"a notice by nobody":                 notice("added", "'x'", "gen_random_uuid()"),
		"six pins":                           `UPDATE conversations SET pinned = ARRAY(SELECT gen_random_uuid() FROM generate_series(1, 6))`,
		"an admin of a private chat":         `UPDATE conversations SET admin_id = '` + low + `'`,
		"a settling payment without payload": payment("state, request", `'settling', 'x'`),
		"a delivered payment with payload":   payment("state, request, payload", `'delivered', 'x', 'x'`),
		"an unheard-of state":                payment("state", `'paid'`),
		"a deposit of scheme exact":          payment("state, deposit_amount", `'delivered', 1`),
		"a payment channel of scheme exact":  payment("state, payment_channel_id, cumulative_amount", `'delivered', '0xc', 1`),
		"a deposited payment of nothing":     payment("state", `'deposited'`),
		"more claimed than charged":          channel(1, 2, 2, 3, "open", "NULL"),
		"more claimed than deposited":        channel(3, 3, 3, 2, "open", "NULL"),
		"more charged than signed":           channel(2, 1, 0, 3, "open", "NULL"),
		"a negative charge":                  channel(-1, 0, -1, 3, "open", "NULL"),
		"a claim that pays":                  transaction("claim", 1, 1),
		"a payout that claims":               transaction("settle", 1, 1),
		"a negative claim":                   transaction("claim", -1, 0),
		"an unheard-of transaction":          transaction("deposit", 0, 1),
		"a deposit that nobody settles":      channel(1, 1, 0, 3, "depositing", "NULL"),
		"an open channel with a deposit":     channel(1, 1, 0, 3, "open", "gen_random_uuid()"),
		"something unclaimed of no age":      strings.Replace(channel(1, 1, 0, 3, "open", "NULL"), "NULL, now()", "NULL, NULL", 1),
	} {
		if _, err := connection.Exec(t.Context(), statement); err == nil {
			t.Errorf("the database allows %s", name)
		}
	}
	if _, err := connection.Exec(t.Context(), notice("added", "'x'", "'"+bob.String()+"'")); err != nil {
		t.Fatalf("a good notice: %v", err)
	}
	if _, err := connection.Exec(t.Context(), channel(2, 2, 1, 3, "open", "NULL")); err != nil {
		t.Fatalf("a good payment channel: %v", err)
	}
	if _, err := connection.Exec(t.Context(), transaction("refund", 1, 2)); err != nil {
		t.Fatalf("a good refund: %v", err)
	}
	for what, good := range map[string]string{
		"payments_authorization":   payment("state, request, payload", `'settling', 'x', 'x'`),
		"payments_identifier":      other("state, payment_identifier", `'delivered', 'x'`),
		"payments_idempotency_key": other("state, idempotency_key", `'delivered', 'x'`),
	} {
		if _, err := connection.Exec(t.Context(), good); err != nil {
			t.Fatalf("a good payment: %v", err)
		}
		if _, err := connection.Exec(t.Context(), good); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("the same authorization or name twice: %v, want a violation of %s", err, what)
		}
	}
}

func TestOpenKeepsThePasswordToItself(t *testing.T) {
	t.Parallel()
	_, err := store.Open(t.Context(), "postgres://parley:hunter2@[bad", store.Limits{})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a bad URL: %v, want an error without the password", err)
	}
}

func TestUnavailable(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), "postgres://parley@127.0.0.1:1/none?connect_timeout=2", store.Limits{})
	if err != nil {
		t.Fatalf("open without a database: %v, want the server to boot", err)
	}
	defer s.Close()
	_, err = s.AgentByUsername(t.Context(), "alice")
	if !store.Unavailable(err) {
		t.Errorf("a database that is unavailable: %v is not told from other errors", err)
	}
	if store.Unavailable(errors.New("a bug")) || store.Unavailable(store.ErrNotMember) || store.Unavailable(nil) {
		t.Error("other errors are taken for a database that is unavailable")
	}
}
