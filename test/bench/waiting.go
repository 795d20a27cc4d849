//go:build linux

package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math/big"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

const (
	waitingAgents = 10_000
	wakeRate      = 500 // messages per second, each to another agent that waits
	wakeFor       = 10 * time.Second
	beginRate     = 500 // agents that begin to wait, per second
)

// waiters are agents that poll with wait and read_through, each on a connection of its own and from a payment channel of its own.
type waiters struct {
	signer *signer
	agents []agent

	mu    sync.Mutex
	wakes []time.Duration // from the time of a message to its response
	polls *errgroup.Group
	stop  context.CancelFunc
}

// waiting measures the memory of a server at which many agents wait, how long a message takes to such an agent, and what the waiting costs
// those who send.
func (d *dataset) waiting(ctx context.Context) error {
	server, err := d.serve(ctx, d.withChannels(), "PARLEY_LIMIT_CONNECTIONS=16384", "PARLEY_TRUSTED_PROXIES=127.0.0.1",
		"GOMEMLIMIT=540MiB")
	if err != nil {
		return err
	}
	w := &waiters{agents: make([]agent, waitingAgents)}
	if err := d.insertWaiters(ctx, w.agents); err != nil {
		return fmt.Errorf("insert agents: %w", err)
	}
	note("waiting: payment channels")
	poll := operation{name: "wait", method: http.MethodGet}
	for _, a := range w.agents {
		poll.requests = append(poll.requests, request{caller: a, target: "/agent/unread"})
	}
	if w.signer, err = d.newSigner(ctx, server.url, poll); err != nil {
		return err
	}
	alone := d.calls(ctx, "nobody waits", d.named(sendMany), server)
	beside := side{fmt.Sprintf("%d agents wait", waitingAgents), func(clients int) (result, error) {
		w.begin(ctx)
		defer w.end()
		return alone.measure(clients)
	}}
	if _, err := d.compare("Waiting", sendMany, []int{16}, 2*d.rounds, alone, beside); err != nil {
		return err
	}
	d.goal("rate of sends while 10,000 agents wait", middle(d.comparisons[len(d.comparisons)-1].ratios(1, perSecond)), atLeast, 0.95)
	return d.wake(ctx, w, server)
}

// wake sends messages to agents that wait.
func (d *dataset) wake(ctx context.Context, w *waiters, server *process) error {
	send := operation{name: "wake", method: http.MethodPost}
	for i, to := range w.agents {
		body, err := json.Marshal(map[string]any{"recipient_agent_id": typeID("agent_", to.id), "content": d.texts[i%texts]})
		if err != nil {
			return err
		}
		send.requests = append(send.requests, request{caller: d.writers[i%perRole], target: "/chat/private/send", body: body})
	}
	s, err := d.newSigner(ctx, server.url, send)
	if err != nil {
		return err
	}
	signed, err := s.sign(ctx, int(wakeRate*wakeFor.Seconds()))
	if err != nil {
		return err
	}
	w.begin(ctx)
	defer w.end()
	const clients = 64 // the messages of a writer are sent by one of them, in order
	began := time.Now()
	sending, ctx := errgroup.WithContext(ctx)
	for client := range clients {
		sending.Go(func() error {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.hosts[0])
			if err != nil {
				return err
			}
			defer connection.Close() //nolint:errcheck // nothing is lost
			responses := bufio.NewReader(connection)
			for i := client; i < len(signed) && err == nil; i += clients {
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / wakeRate)))
				for tries := 1; ; tries++ { // a server that is too busy gets the same payment again
					if _, err = connection.Write(signed[i]); err == nil {
						err = readResponse(responses)
					}
					if err == nil || tries == 20 || !strings.HasPrefix(err.Error(), "status 503") {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
			}
			return err
		})
	}
	if err := sending.Wait(); err != nil {
		return err
	}
	took := time.Since(began)
	time.Sleep(2 * time.Second) // for the last messages
	status, err := server.stats.NewStatus()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.wakes)
	if len(w.wakes) < len(signed) {
		return fmt.Errorf("%d of %d messages arrived", len(w.wakes), len(signed))
	}
	d.fact("While %d agents wait, %d messages were sent in %.0f s. To the response of the agent a message takes %.0f ms (p99 %.0f ms).",
		waitingAgents, len(signed), took.Seconds(), ms(w.wakes[len(w.wakes)/2]), ms(w.wakes[len(w.wakes)*99/100]))
	d.goal("from a message to the response of an agent that waits, p50, ms", ms(w.wakes[len(w.wakes)/2]), atMost, 300)
	d.goal("memory of the server at which 10,000 agents wait, MiB", float64(status.VmHWM)/(1<<20), atMost, 600)
	return nil
}

// begin lets all agents poll until end, and returns when they wait.
func (w *waiters) begin(ctx context.Context) {
	ctx, w.stop = context.WithCancel(ctx)
	w.polls, w.wakes = &errgroup.Group{}, nil
	for i := range w.agents {
		time.Sleep(time.Second / beginRate)
		w.polls.Go(func() error { return w.poll(ctx, i) })
	}
	time.Sleep(3 * time.Second)
}

// end makes them hang up.
func (w *waiters) end() {
	w.stop()
	_ = w.polls.Wait()          // what an agent misses, wake counts
	time.Sleep(3 * time.Second) // the server has noticed
}

var (
	createdAt = regexp.MustCompile(`"created_at":(\d+\.?\d*)`)
	cursor    = regexp.MustCompile(`"cursor":"([^"]+)"`)
)

// poll polls until ctx ends.
func (w *waiters) poll(ctx context.Context, i int) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.signer.hosts[0])
	if err != nil {
		return err
	}
	defer connection.Close()                                          //nolint:errcheck // nothing is lost
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })() //nolint:errcheck // as above
	channel, responses := w.signer.channels[i], bufio.NewReaderSize(connection, 1<<10)
	target := "/agent/unread?wait=60&mark_read=false"
	for ctx.Err() == nil {
		wire, err := w.signer.write(ctx, request{caller: w.agents[i], target: target},
			&voucher{channel: channel, due: channel.charged + w.signer.price})
		if err != nil {
			return err
		}
		if _, err := connection.Write(wire); err != nil {
			return err
		}
		response, err := http.ReadResponse(responses, nil) //nolint:bodyclose // the connection is closed
		if err != nil {
			return err
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		now := time.Now()
		switch response.StatusCode {
		case http.StatusOK:
			channel.charged += w.signer.price
			if cursor := cursor.FindSubmatch(body); cursor != nil {
				target = "/agent/unread?wait=60&read_through=" + string(cursor[1])
			}
		case http.StatusPaymentRequired: // a poll that was cut off was charged
			required, err := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
			if err != nil {
				return err
			}
			if state, _, ok := x402.Correction(required.Accepts[0]); ok {
				channel.charged, _ = strconv.ParseUint(state.ChargedCumulativeAmount, 10, 63)
			}
		default:
			time.Sleep(time.Second)
		}
		w.mu.Lock()
		for _, at := range createdAt.FindAllSubmatch(body, -1) {
			seconds, _ := strconv.ParseFloat(string(at[1]), 64)
			w.wakes = append(w.wakes, now.Sub(time.UnixMilli(int64(seconds*1000))))
		}
		w.mu.Unlock()
	}
	return nil
}

// insertWaiters creates accounts with funded wallets, and for each a private chat with one of the writers.
func (d *dataset) insertWaiters(ctx context.Context, agents []agent) (err error) {
	names, hashes, writers := make([]string, len(agents)), make([][]byte, len(agents)), make([]uuid.UUID, len(agents))
	for i := range agents {
		a := &agents[i]
		if a.wallet, err = evm.GenerateKey(); err != nil {
			return err
		}
		if err := d.ledger.Mint(evm.PubkeyToAddress(a.wallet.PublicKey).Hex(), 1e12); err != nil {
			return err
		}
		a.id, a.key = uuid.Must(uuid.NewV7()), apiKey()
		names[i], hashes[i], writers[i] = fmt.Sprintf("bench_waiter_%d", i), store.HashKey(a.key), d.writers[i%perRole].id
	}
	_, err = d.pool.Exec(ctx, `
		WITH agent AS (
			INSERT INTO agents (id, username, description, is_discoverable, key_hash, created_at)
			SELECT id, name, '', false, hash, now() FROM unnest($1::uuid[], $2::text[], $3::bytea[]) a (id, name, hash)
		), pair AS MATERIALIZED (
			SELECT gen_random_uuid() AS chat, agent, writer FROM unnest($1::uuid[], $4::uuid[]) p (agent, writer)
		), chat AS (
			INSERT INTO conversations (id, kind, member_count, created_at) SELECT chat, 'private', 2, now() FROM pair
		), pairs AS (
			INSERT INTO private_pairs (low_agent, high_agent, conversation_id) SELECT least(agent, writer), greatest(agent, writer), chat FROM pair
		)
		INSERT INTO memberships (conversation_id, agent_id, status, read_number, joined_number, joined_at)
		SELECT chat, member, 'member', 0, 0, now() FROM pair CROSS JOIN LATERAL unnest(ARRAY[agent, writer]) member`,
		ids(agents), names, hashes, writers)
	if err == nil {
		_, err = d.pool.Exec(ctx, `VACUUM (ANALYZE)`)
	}
	return err
}

// apiKey makes up a key as the server does (server/authenticate.go).
func apiKey() string {
	const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	encode := func(number *big.Int, length int) string {
		text := make([]byte, length)
		for i, digit := length-1, new(big.Int); i >= 0; i-- {
			number.DivMod(number, big.NewInt(int64(len(base62))), digit)
			text[i] = base62[digit.Int64()]
		}
		return string(text)
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	key := "parley_" + encode(new(big.Int).SetBytes(secret[:]), 43)
	return key + encode(big.NewInt(int64(crc32.ChecksumIEEE([]byte(key)))), 6)
}
