//go:build linux

package main

import (
	"context"
	"crypto/ecdsa"
	"encoding/hex"
	"fmt"
	"net/http"
	"os/exec"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store/storetest"
	"github.com/parley-chat/parley/x402/evm"
)

// agent is an account of the benchmark, with its API key and its wallet.
type agent struct {
	id     uuid.UUID
	key    string
	wallet *ecdsa.PrivateKey
}

const (
	perRole  = 256 // agents of each role; many, so that requests of one account seldom meet
	peers    = 4   // private chats of each writer
	rooms    = 16  // seeded groups of each reader
	behindBy = 12  // unread messages in each group of an agent that is behind

	rareWord     = "zugvogel" // in rareMessages messages of the archive and nowhere else
	rareMessages = 3
)

// dataset is one filled database, and the agents of the benchmark in it. The elements i of peers and rooms belong to the
// writer and the reader i%perRole.
type dataset struct {
	*bench
	name     string
	program  string // the build that made the schema and serves the dataset
	size     storetest.Seeding
	pool     *pgxpool.Pool
	writers  []agent     // each has private chats, and all are members of one group
	peers    []uuid.UUID // of the private chats
	group    uuid.UUID
	readers  []agent     // have nothing unread
	rooms    []uuid.UUID // groups of the readers
	behind   []agent     // have more than a page of unread messages
	archive  uuid.UUID
	archived int64
	texts    []string // of the messages that are sent
	channels map[uuid.UUID]*paymentChannel
}

func (d *dataset) url() string { return d.postgres.URL(d.name) }

// newDataset creates and fills a database for a build of Parley, which makes the schema. Statements here name only columns
// that compared builds have in common.
func (b *bench) newDataset(ctx context.Context, name, program string, scale float64) (*dataset, error) {
	d := &dataset{bench: b, name: name, program: program, size: size(scale), channels: map[uuid.UUID]*paymentChannel{},
		archived: int64(min(max(scale, 0.1), 1) * 100_000)}
	postgres, err := pgx.Connect(ctx, b.postgres.URL("postgres"))
	if err != nil {
		return nil, err
	}
	defer postgres.Close(ctx)
	if _, err := postgres.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, err
	}
	if output, err := exec.CommandContext(ctx, program, "migrate", "--database-url", d.url()).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s migrate: %w: %s", program, err, output)
	}
	if err := storetest.Seed(ctx, d.url(), d.size, func(step string) { note("%s: seeding, %s", name, step) }); err != nil {
		return nil, err
	}
	if d.pool, err = pgxpool.New(ctx, d.url()); err != nil {
		return nil, err
	}
	b.datasets = append(b.datasets, d)
	note("%s: the agents and chats of the benchmark", name)
	return d, d.populate(ctx)
}

func (d *dataset) populate(ctx context.Context) (err error) {
	d.texts, err = column[string](ctx, d.pool,
		`SELECT content FROM messages WHERE char_length(content) BETWEEN 60 AND 200 ORDER BY id LIMIT $1`, texts)
	if err != nil {
		return err
	}
	d.peers, err = column[uuid.UUID](ctx, d.pool, `SELECT id FROM agents ORDER BY md5(username) LIMIT $1`, distinct)
	if err != nil {
		return err
	}
	if err := d.register(ctx); err != nil {
		return fmt.Errorf("register agents: %w", err)
	}
	if err := d.joinGroups(ctx, d.readers, 0); err != nil {
		return err
	}
	if err := d.joinGroups(ctx, d.behind, behindBy); err != nil {
		return err
	}
	d.rooms, err = column[uuid.UUID](ctx, d.pool, `
		SELECT m.conversation_id FROM unnest($1::uuid[]) WITH ORDINALITY a (id, n) JOIN memberships m ON m.agent_id = a.id
		ORDER BY row_number() OVER (PARTITION BY a.n ORDER BY m.conversation_id), a.n LIMIT $2`, ids(d.readers), distinct)
	if err != nil {
		return err
	}
	if d.group, err = d.createGroup(ctx, "the bench group", d.writers, 0); err != nil {
		return err
	}
	if d.archive, err = d.createGroup(ctx, "the archive", d.readers, d.archived); err != nil {
		return err
	}
	if err := d.fillArchive(ctx); err != nil {
		return fmt.Errorf("fill the archive: %w", err)
	}
	_, err = d.pool.Exec(ctx, `VACUUM (ANALYZE)`)
	return err
}

// register creates the agents and the writers' private chats over HTTP. These payments also give the ledger the
// statistics of a server in use: for an empty ledger PostgreSQL plans scans, until autovacuum analyzes it.
func (d *dataset) register(ctx context.Context) error {
	server, err := d.serve(ctx)
	if err != nil {
		return err
	}
	defer d.stopServers()
	for role, agents := range map[string]*[]agent{"writer": &d.writers, "reader": &d.readers, "behind": &d.behind} {
		*agents, err = d.newAgents(ctx, server.url, role, perRole, func(i int) (peers []uuid.UUID) {
			for k := i; role == "writer" && k < len(d.peers); k += perRole {
				peers = append(peers, d.peers[k])
			}
			return peers
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// newAgents creates accounts, each with a private chat with each of its peers.
func (d *dataset) newAgents(ctx context.Context, url, role string, n int, peers func(i int) []uuid.UUID) ([]agent, error) {
	agents := make([]agent, n)
	creating, ctx := errgroup.WithContext(ctx)
	creating.SetLimit(16)
	for i := range agents {
		creating.Go(func() error {
			return d.newAgent(ctx, url, fmt.Sprintf("bench_%s_%d", role, i), &agents[i], peers(i)...)
		})
	}
	return agents, creating.Wait()
}

// newAgent creates an account with a funded wallet, and a private chat with each peer.
func (d *dataset) newAgent(ctx context.Context, url, name string, a *agent, peers ...uuid.UUID) (err error) {
	if a.wallet, err = evm.GenerateKey(); err != nil {
		return err
	}
	payer, err := client.NewPayer(hex.EncodeToString(evm.FromECDSA(a.wallet)), client.Limits{PerCall: 1e7, Total: 1e8})
	if err != nil {
		return err
	}
	payer.Channels = nil // the accounts of a data set leave no payment channels in the user's configuration
	if err := d.mint(ctx, payer.Address()); err != nil {
		return err
	}
	api, err := client.New(url, payer, client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("X-API-KEY", a.key) // once the account has one
		return nil
	}))
	if err != nil {
		return err
	}
	requested, err := api.RequestAccountWithResponse(ctx, client.RequestAccountRequest{RequestedUsername: name})
	if err != nil || requested.JSON200 == nil {
		return fmt.Errorf("request account: %w %+v", err, requested)
	}
	created, err := api.CreateAccountWithResponse(ctx,
		client.CreateAccountRequest{Username: name, TAN: requested.JSON200.TAN, Description: "I measure."})
	if err != nil || created.JSON200 == nil {
		return fmt.Errorf("create account: %w %+v", err, created)
	}
	a.key = created.JSON200.APIKey
	for _, peer := range peers {
		sent, err := api.SendPrivateMessageWithResponse(ctx,
			client.SendPrivateMessageRequest{RecipientAgentID: server.AgentID(peer), Content: "Hello."})
		if err != nil || sent.JSON200 == nil {
			return fmt.Errorf("send: %w %+v", err, sent)
		}
	}
	return d.pool.QueryRow(ctx, `SELECT id FROM agents WHERE username = $1`, name).Scan(&a.id)
}

func ids(agents []agent) (ids []uuid.UUID) {
	for _, agent := range agents {
		ids = append(ids, agent.id)
	}
	return ids
}

// joinGroups makes each agent a member of some of the seeded groups that have a page of messages, with so many unread in
// each.
func (d *dataset) joinGroups(ctx context.Context, agents []agent, unread int) error {
	_, err := d.pool.Exec(ctx, `
		WITH room AS (
			SELECT id, last_number, row_number() OVER (ORDER BY md5(id::text)) - 1 AS n, count(*) OVER () AS count
			FROM conversations WHERE kind = 'group' AND last_number >= 60
		), joined AS (
			INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
			SELECT r.id, a.id, 'member', r.last_number - $2, 0, now()
			FROM unnest($1::uuid[]) WITH ORDINALITY a (id, n) CROSS JOIN generate_series(1, $3) k JOIN room r ON r.n = (a.n * $3 + k) % r.count
			RETURNING conversation_id
		)
		UPDATE conversations c SET member_count = member_count + j.n
		FROM (SELECT conversation_id, count(*) AS n FROM joined GROUP BY conversation_id) j WHERE j.conversation_id = c.id`,
		ids(agents), unread, rooms)
	if err != nil {
		return fmt.Errorf("join groups: %w", err)
	}
	return nil
}

// rewind makes all messages unread that an operation is about to confirm, so that it never runs out of them.
func (d *dataset) rewind(ctx context.Context, o operation) error {
	if !o.confirms {
		return nil
	}
	_, err := d.pool.Exec(ctx, `
		UPDATE memberships m SET read_number = c.last_number - $2 FROM conversations c
		WHERE c.id = m.conversation_id AND m.agent_id = ANY($1::uuid[]) AND m.read_number > c.last_number - $2`, ids(d.behind), behindBy)
	return err
}

// createGroup creates a group with these members, who have read all of its messages; the first is its admin. There are
// more members than the API takes at once.
func (d *dataset) createGroup(ctx context.Context, name string, members []agent, messages int64) (id uuid.UUID, err error) {
	err = d.pool.QueryRow(ctx, `
		WITH created AS (
			INSERT INTO conversations (id, kind, name, description, admin_id, member_count, created_at, last_number, last_message_at)
			VALUES ($1, 'group', $2, '', ($3::uuid[])[1], cardinality($3::uuid[]), now(), $4::bigint,
				CASE WHEN $4::bigint > 0 THEN now() END)
			RETURNING id
		), joined AS (
			INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
			SELECT created.id, agent_id, 'member', $4::bigint, 0, now() FROM created, unnest($3::uuid[]) agent_id
		)
		SELECT id FROM created`, uuid.Must(uuid.NewV7()), name, ids(members), messages).Scan(&id)
	if err != nil {
		return id, fmt.Errorf("create %s: %w", name, err)
	}
	return id, nil
}

// fillArchive copies the texts of seeded messages into the archive, and adds the rare word to a few.
func (d *dataset) fillArchive(ctx context.Context) error {
	_, err := d.pool.Exec(ctx, `
		INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
		SELECT $1, number, gen_random_uuid(), $2,
			CASE WHEN number % ($3 / $4) = $3 / $4 / 2 THEN 'A ' || $5::text || ' over the harbour. ' ELSE '' END || content,
			now() - ($3 - number) * interval '1 second'
		FROM (SELECT row_number() OVER () AS number, content FROM (SELECT content FROM messages LIMIT $3) seeded) numbered`,
		d.archive, d.readers[0].id, d.archived, rareMessages, rareWord)
	return err
}

// column returns the only column of a query's rows.
func column[T any](ctx context.Context, pool *pgxpool.Pool, query string, arguments ...any) ([]T, error) {
	rows, err := pool.Query(ctx, query, arguments...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}
