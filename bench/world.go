//go:build linux

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/parley-chat/parley/devnet"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/embedded"
	"github.com/parley-chat/parley/x402"
)

// agent is an account that the benchmark can use: its key and its wallet are known.
type agent struct {
	id     uuid.UUID
	key    string
	wallet *ecdsa.PrivateKey
}

const (
	// perRole is how many agents there are of each kind; many, so that requests of one account seldom meet.
	perRole = 256
	// peers is how many private chats each writer has.
	peers = 4
	// rooms is how many seeded groups each reader sits in.
	rooms = 16
	// behindBy is how many messages of each of its groups an agent that is behind has not read.
	behindBy = 12
	// rareWord stands in rareMessages messages of the archive and nowhere else.
	rareWord     = "zugvogel"
	rareMessages = 3
)

// machine is the PostgreSQL and the payment network, which all measurements share.
type machine struct {
	folder      string // for scripts and logs
	postgres    *embedded.Server
	ledger      *devnet.Ledger
	facilitator *httptest.Server
	raised      []string // flags for every server
	houses      []*house
}

func newMachine(ctx context.Context, programs ...string) (_ *machine, err error) {
	m := &machine{}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if m.raised, err = raisedFor(ctx, programs...); err != nil {
		return nil, err
	}
	if m.folder, err = os.MkdirTemp("", "parley-bench-"); err != nil {
		return nil, err
	}
	if err := os.Chmod(m.folder, 0o755); err != nil { // as root PostgreSQL runs as another user, who must be able to pass
		return nil, err
	}
	// Not volatile: what is measured here is on disk when it is answered.
	m.postgres, err = embedded.Start(ctx, embedded.Options{Folder: filepath.Join(m.folder, "postgres"), Progress: os.Stderr})
	if err != nil {
		return nil, err
	}
	if m.ledger, err = devnet.OpenLedger(""); err != nil {
		return nil, err
	}
	m.facilitator = httptest.NewServer(m.settler())
	return m, nil
}

func (m *machine) close() error {
	var problems []error
	if m.facilitator != nil {
		m.facilitator.Close()
	}
	if m.postgres != nil {
		problems = append(problems, m.postgres.Stop(), os.RemoveAll(m.postgres.Folder()))
	}
	return errors.Join(append(problems, os.RemoveAll(m.folder))...)
}

// address is the folder of PostgreSQL's socket, and its port.
func (m *machine) address() (host, port string) {
	config, err := pgx.ParseConfig(m.postgres.URL("postgres"))
	if err != nil {
		panic(err) // our own address
	}
	return config.Host, fmt.Sprint(config.Port)
}

// escape writes a path as it stands in a URL's query.
func escape(path string) string { return strings.ReplaceAll(url.QueryEscape(path), "+", "%20") }

// settler is a facilitator that answers at once: it moves the money on the dev network's ledger, but does not check again
// what Parley has checked, because its time is not Parley's and is spent on the same machine.
func (m *machine) settler() http.Handler {
	all := http.NewServeMux()
	all.Handle("/", devnet.NewFacilitator(m.ledger))
	all.HandleFunc("POST /settle", func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			PaymentPayload struct {
				Payload x402.ExactPayload `json:"payload"`
			} `json:"paymentPayload"`
		}
		if err := json.UnmarshalRead(r.Body, &request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a := request.PaymentPayload.Payload.Authorization
		amount, err := strconv.ParseUint(a.Value, 10, 64)
		if err == nil {
			err = m.ledger.Transfer(a.From, a.To, amount, a.Nonce, a.Nonce)
		}
		verdict := x402.SettleResponse{Success: err == nil, Transaction: a.Nonce, Network: devnet.NetworkID, Payer: a.From}
		if err != nil {
			verdict.ErrorReason = err.Error()
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.MarshalWrite(w, verdict) // a caller that is gone asks again
	})
	return all
}

// house is one database of a size, with everybody who is in it.
type house struct {
	*machine
	name     string
	program  string // the build that made the schema and serves on it
	size     store.Seeding
	pool     *pgxpool.Pool
	writers  []agent // each has private chats, and all are members of one group
	peers    [][]uuid.UUID
	group    uuid.UUID
	readers  []agent // all that they could read is read
	rooms    [][]uuid.UUID
	behind   []agent // these have a page of unread messages and more
	archive  uuid.UUID
	archived int64
	said     []string // what agents say
}

func (h *house) url() string { return h.postgres.URL(h.name) }

// furnish creates and fills a database for a build of Parley. That one makes the schema; what fills it must do without
// columns that only one of two compared builds has.
func furnish(ctx context.Context, m *machine, name, program string, scale float64) (*house, error) {
	h := &house{machine: m, name: name, program: program, size: size(scale), archived: archived(scale)}
	server, err := pgx.Connect(ctx, m.postgres.URL("postgres"))
	if err != nil {
		return nil, err
	}
	defer server.Close(ctx)
	if _, err := server.Exec(ctx, `CREATE DATABASE `+pgx.Identifier{name}.Sanitize()); err != nil {
		return nil, err
	}
	if said, err := exec.CommandContext(ctx, program, "migrate", "--database-url", h.url()).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s migrate: %w: %s", program, err, said)
	}
	database, err := store.Open(ctx, h.url())
	if err != nil {
		return nil, err
	}
	defer database.Close()
	began := time.Now()
	if _, err := database.Seed(ctx, h.size, func(step string) { note("%s: seeding, %s (%.0f s)", name, step, time.Since(began).Seconds()) }); err != nil {
		return nil, err
	}
	if h.pool, err = pgxpool.New(ctx, h.url()); err != nil {
		return nil, err
	}
	note("%s: the benchmark's own agents and chats", name)
	if err := h.populate(ctx, database); err != nil {
		h.pool.Close()
		return nil, err
	}
	m.houses = append(m.houses, h)
	note("%s: ready after %.0f s", name, time.Since(began).Seconds())
	return h, nil
}

func (h *house) populate(ctx context.Context, database *store.Store) error {
	var err error
	for _, role := range []struct {
		name string
		all  *[]agent
	}{{"writer", &h.writers}, {"reader", &h.readers}, {"behind", &h.behind}} {
		if *role.all, err = h.register(ctx, "bench_"+role.name); err != nil {
			return fmt.Errorf("register: %w", err)
		}
	}
	if h.said, err = column[string](ctx, h.pool, `SELECT content FROM messages WHERE char_length(content) BETWEEN 60 AND 200 ORDER BY id LIMIT $1`, texts); err != nil {
		return err
	}
	if err := h.openChats(ctx, database); err != nil {
		return fmt.Errorf("open private chats: %w", err)
	}
	if h.group, err = h.found(ctx, "the bench group", h.writers); err != nil {
		return err
	}
	if h.archive, err = h.found(ctx, "the archive", h.readers); err != nil {
		return err
	}
	if err := h.file(ctx); err != nil {
		return fmt.Errorf("fill the archive: %w", err)
	}
	if h.rooms, err = h.seat(ctx, h.readers, 0); err != nil {
		return err
	}
	if _, err := h.seat(ctx, h.behind, behindBy); err != nil {
		return err
	}
	if err := h.breakIn(ctx); err != nil {
		return fmt.Errorf("break in: %w", err)
	}
	_, err = h.pool.Exec(ctx, `VACUUM (ANALYZE)`)
	return err
}

// breakIn takes some thousand payments, for PostgreSQL to count. A server that begins with an empty ledger keeps the plans
// for a tiny table, which are scans, until autovacuum comes by a minute later.
func (h *house) breakIn(ctx context.Context) error {
	server, err := h.serve(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	_, err = h.drive(ctx, []*process{server}, h.named(nothingNew)[0], load{clients: 16, time: 2 * time.Second, status: http.StatusOK})
	return err
}

// register makes accounts with known keys and funded wallets.
func (h *house) register(ctx context.Context, name string) ([]agent, error) {
	agents := make([]agent, perRole)
	rows := make([][]any, perRole)
	for i := range agents {
		wallet, err := crypto.GenerateKey()
		if err != nil {
			return nil, err
		}
		if err := h.ledger.Mint(crypto.PubkeyToAddress(wallet.PublicKey).Hex(), 1e12); err != nil {
			return nil, err
		}
		agents[i] = agent{id: uuid.Must(uuid.NewV7()), key: newKey(), wallet: wallet}
		rows[i] = []any{agents[i].id, fmt.Sprintf("%s_%d", name, i), "I measure.", false, store.HashKey(agents[i].key), time.Now()}
	}
	_, err := h.pool.CopyFrom(ctx, pgx.Identifier{"agents"}, []string{"id", "username", "description", "is_discoverable", "key_hash", "created_at"}, pgx.CopyFromRows(rows))
	return agents, err
}

// newKey makes an API key as the server does: the checksum is what it looks at first.
func newKey() string {
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	body := "parley_" + base62(new(big.Int).SetBytes(secret[:]), 43)
	return body + base62(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(body)))), 6)
}

// base62 writes digits, upper case, lower case; big.Int has the two cases the other way round.
func base62(number *big.Int, length int) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return r
	}, fmt.Sprintf("%0*s", length, number.Text(62)))
}

// openChats gives each writer private chats with seeded agents.
func (h *house) openChats(ctx context.Context, database *store.Store) error {
	others, err := column[uuid.UUID](ctx, h.pool, `SELECT id FROM agents WHERE username NOT LIKE 'bench\_%' ORDER BY md5(username) LIMIT $1`, perRole*peers)
	if err != nil {
		return err
	}
	if len(others) < perRole*peers {
		return errors.New("too few agents were seeded")
	}
	h.peers = make([][]uuid.UUID, perRole)
	sending, ctx := errgroup.WithContext(ctx)
	sending.SetLimit(4)
	for i, writer := range h.writers {
		h.peers[i] = others[i*peers : (i+1)*peers]
		sending.Go(func() error {
			for _, peer := range h.peers[i] {
				if _, err := database.SendMessage(ctx, store.OutgoingMessage{Kind: store.KindPrivate, To: peer, Sender: writer.id, ID: uuid.Must(uuid.NewV7()), Content: "Hello."}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return sending.Wait()
}

// found creates a group with these members, the first of them its admin.
func (h *house) found(ctx context.Context, name string, members []agent) (uuid.UUID, error) {
	id := uuid.Must(uuid.NewV7())
	_, err := h.pool.Exec(ctx, `
		INSERT INTO conversations (id, kind, name, description, admin_id, member_count, created_at)
		VALUES ($1, 'group', $2, '', $3, $4, now())`, id, name, members[0].id, len(members))
	if err == nil {
		_, err = h.pool.Exec(ctx, `
			INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
			SELECT $1, agent_id, 'member', 0, 0, now() FROM unnest($2::uuid[]) agent_id`, id, ids(members))
	}
	if err != nil {
		return id, fmt.Errorf("found %s: %w", name, err)
	}
	return id, nil
}

// file fills the archive with the texts of seeded messages, and a few with the rare word.
func (h *house) file(ctx context.Context) error {
	_, err := h.pool.Exec(ctx, `
		INSERT INTO messages (conversation_id, number, id, sender_id, content, created_at)
		SELECT $1, number, gen_random_uuid(), $2, CASE WHEN number % ($3 / $4) = $3 / $4 / 2 THEN 'A ' || $5::text || ' over the harbour. ' ELSE '' END || content,
			now() - ($3 - number) * interval '1 second'
		FROM (SELECT row_number() OVER () AS number, content FROM (SELECT content FROM messages LIMIT $3) said) numbered`,
		h.archive, h.readers[0].id, h.archived, rareMessages, rareWord)
	if err != nil {
		return err
	}
	_, err = h.pool.Exec(ctx, `
		WITH bumped AS (
			UPDATE conversations SET last_number = (SELECT count(*) FROM messages WHERE conversation_id = $1), last_message_at = now()
			WHERE id = $1 RETURNING id, last_number
		)
		UPDATE memberships m SET read_number = last_number FROM bumped WHERE m.conversation_id = bumped.id`, h.archive)
	return err
}

// seat puts each agent into some of the seeded groups that have a page of messages, with so many unread in each.
func (h *house) seat(ctx context.Context, agents []agent, unread int) ([][]uuid.UUID, error) {
	long, err := column[uuid.UUID](ctx, h.pool, `SELECT id FROM conversations WHERE kind = 'group' AND last_number >= 60 AND id NOT IN ($1, $2) ORDER BY md5(id::text)`, h.group, h.archive)
	if err != nil {
		return nil, err
	}
	if len(long) < rooms {
		return nil, errors.New("too few groups have a page of messages")
	}
	seats := make([][]uuid.UUID, len(agents))
	var who, where []uuid.UUID
	for i, agent := range agents {
		for k := range rooms {
			room := long[(i*rooms+k)%len(long)]
			seats[i], who, where = append(seats[i], room), append(who, agent.id), append(where, room)
		}
	}
	_, err = h.pool.Exec(ctx, `
		INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
		SELECT c.id, s.agent_id, 'member', c.last_number - $3, 0, now()
		FROM unnest($1::uuid[], $2::uuid[]) s (agent_id, conversation_id) JOIN conversations c ON c.id = s.conversation_id`, who, where, unread)
	if err == nil {
		_, err = h.pool.Exec(ctx, `
			UPDATE conversations c SET member_count = member_count + s.n FROM (SELECT id, count(*) AS n FROM unnest($1::uuid[]) id GROUP BY id) s WHERE s.id = c.id`, where)
	}
	if err != nil {
		return nil, fmt.Errorf("seat in groups: %w", err)
	}
	return seats, nil
}

func ids(agents []agent) []uuid.UUID {
	all := make([]uuid.UUID, len(agents))
	for i, agent := range agents {
		all[i] = agent.id
	}
	return all
}

// column returns the only column of a query's rows.
func column[T any](ctx context.Context, pool *pgxpool.Pool, query string, arguments ...any) ([]T, error) {
	rows, err := pool.Query(ctx, query, arguments...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[T])
}

// one returns the only value of a query.
func one[T any](ctx context.Context, pool *pgxpool.Pool, query string, arguments ...any) (value T, err error) {
	err = pool.QueryRow(ctx, query, arguments...).Scan(&value)
	return value, err
}

// typeID writes a UUID as the contract shows it (server/id.go).
func typeID(prefix string, id uuid.UUID) string {
	const digits, crockford = "0123456789abcdefghijklmnopqrstuv", "0123456789abcdefghjkmnpqrstvwxyz"
	return prefix + strings.Map(func(r rune) rune { return rune(crockford[strings.IndexRune(digits, r)]) },
		fmt.Sprintf("%026s", new(big.Int).SetBytes(id[:]).Text(32)))
}
