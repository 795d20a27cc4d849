//go:build linux

package main

import (
	"bufio"
	"bytes"
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
	"runtime"
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
	wakeRate      = 500 // messages per second, each to another agent
	wakeFor       = waitingAgents / wakeRate * time.Second
	wakeClients   = 64  // that send them
	beginRate     = 500 // agents that begin to wait, per second
	pollsAhead    = 3   // signed before an agent begins, so that none is signed while messages arrive
)

// manyWait are the settings of a server at which many calls wait.
var manyWait = []string{"PARLEY_LIMIT_CONNECTIONS=16384", "PARLEY_TRUSTED_PROXIES=127.0.0.1", "GOMEMLIMIT=560MiB"}

// waiters are agents that poll with wait and read_through, each on a connection of its own and from a payment channel of its own.
type waiters struct {
	signer *signer
	agents []agent
	polls  *errgroup.Group
	stop   context.CancelFunc

	mu        sync.Mutex
	since     time.Time
	last      time.Time       // when a poll got a response
	wakes     []time.Duration // from the time of a message, sent since then, to its response
	responses map[int]int     // by status
}

// waiting sends messages at one rate to agents that wait for none, wait at the same server, or at another one. It measures how long a
// message takes to its agent, what each costs with the poll that returns it, and the memory of the server at which they wait.
func (d *dataset) waiting(ctx context.Context) error {
	var servers []*process
	for range 2 { // both offer the same resource, so a payment is good for either
		server, err := d.serve(ctx, append(manyWait, d.withChannels(), "PARLEY_BASE_URL=http://parley.test")...)
		if err != nil {
			return err
		}
		servers = append(servers, server)
	}
	w, sender, err := d.newWaiters(ctx, waitingAgents, servers[0].url)
	if err != nil {
		return err
	}
	sender.every = time.Second / wakeRate
	sides := []side{{"nobody waits", func(clients int) (result, error) { return d.wake(ctx, sender, clients, servers) }}}
	wakes := make([][]time.Duration, len(servers))
	for i, server := range servers {
		sides = append(sides, side{fmt.Sprintf("%d agents wait at %s", waitingAgents, []string{"this server", "another server"}[i]),
			func(clients int) (result, error) {
				if err := w.begin(ctx, server); err != nil {
					return result{}, err
				}
				defer w.end()
				seen, err := d.wake(ctx, sender, clients, servers)
				w.settle()
				w.mu.Lock()
				defer w.mu.Unlock()
				note("responses to polls by status: %v", w.responses)
				if err == nil && len(w.wakes) < waitingAgents {
					err = fmt.Errorf("%d of %d messages arrived", len(w.wakes), waitingAgents)
				}
				wakes[i] = append(wakes[i], w.wakes...)
				return seen, err
			}})
	}
	if _, err := d.compare("Waiting", fmt.Sprintf("send %d messages a second", wakeRate), []int{wakeClients}, d.rounds, sides...); err != nil {
		return err
	}
	for i, server := range servers {
		of := sides[i+1].name
		d.goal("rate of sends while "+of, middle(d.comparisons[len(d.comparisons)-1].ratios(i+1, perSecond)), atLeast, 0.95)
		slices.Sort(wakes[i])
		d.fact("%s: from the time of a message to its response take p50 %.0f ms, p99 %.0f ms.", of, ms(wakes[i][len(wakes[i])/2]),
			ms(wakes[i][len(wakes[i])*99/100]))
		d.goal("from a message to its response while "+of+", p50, ms", ms(wakes[i][len(wakes[i])/2]), atMost, 300)
		status, err := server.stats.NewStatus()
		if err != nil {
			return err
		}
		d.goal("peak memory of the server while "+of+", MiB", float64(status.VmHWM)/(1<<20), atMost, 600)
	}
	return nil
}

// newWaiters creates agents that can wait, and the signer of a message to each.
func (d *dataset) newWaiters(ctx context.Context, n int, url string) (w *waiters, sender *signer, err error) {
	w = &waiters{agents: make([]agent, n), responses: map[int]int{}}
	if err := d.insertWaiters(ctx, w.agents); err != nil {
		return nil, nil, fmt.Errorf("insert agents: %w", err)
	}
	note("waiting: payment channels")
	poll, send := operation{name: "wait", method: http.MethodGet}, operation{name: "wake", method: http.MethodPost}
	for i, a := range w.agents {
		poll.requests = append(poll.requests, request{caller: a, target: "/agent/unread"})
		body, err := json.Marshal(map[string]any{"recipient_agent_id": typeID("agent_", a.id), "content": d.texts[i%texts]})
		if err != nil {
			return nil, nil, err
		}
		send.requests = append(send.requests, request{caller: d.writers[i%perRole], target: "/chat/private/send", body: body})
	}
	if w.signer, err = d.newSigner(ctx, url, poll); err != nil {
		return nil, nil, err
	}
	for i := range poll.requests { // the calls that opened the payment channels did not wait
		poll.requests[i].target = "/agent/unread?wait=60&" + firstCursor
	}
	sender, err = d.newSigner(ctx, url, send)
	return w, sender, err
}

// wake sends one message to each agent.
func (d *dataset) wake(ctx context.Context, s *signer, clients int, servers []*process) (result, error) {
	signed, err := s.sign(ctx, waitingAgents)
	if err != nil {
		return result{}, err
	}
	runtime.GC()
	return d.measure(ctx, servers, func() (sample, error) { return s.send(ctx, signed, clients, 3*wakeFor) })
}

// begin lets all agents poll at a server until end, and returns when they wait. Then each has a page that it has not confirmed, from the
// messages that came while nobody waited.
func (w *waiters) begin(ctx context.Context, server *process) error {
	w.signer.hosts[0] = strings.TrimPrefix(server.url, "http://")
	signed, err := w.signer.sign(ctx, pollsAhead*len(w.agents))
	if err != nil {
		return err
	}
	ctx, w.stop = context.WithCancel(ctx)
	w.polls = &errgroup.Group{}
	for i := range w.agents {
		time.Sleep(time.Second / beginRate)
		w.polls.Go(func() error { return w.poll(ctx, i, signed) })
	}
	w.settle()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.wakes, w.responses = time.Now(), nil, map[int]int{}
	return nil
}

// settle waits until all polls wait: no response came for longer than the Retry-After of a busy server.
func (w *waiters) settle() {
	for range 60 {
		time.Sleep(time.Second)
		w.mu.Lock()
		quiet := time.Since(w.last) > 7*time.Second
		w.mu.Unlock()
		if quiet {
			return
		}
	}
}

// end makes them hang up.
func (w *waiters) end() {
	w.stop()
	_ = w.polls.Wait()          // what an agent misses is counted
	time.Sleep(3 * time.Second) // the server has noticed
}

var (
	createdAt = regexp.MustCompile(`"created_at":(\d+\.?\d*)`)
	cursor    = regexp.MustCompile(`"cursor":"([^"]+)"`)
)

// poll polls as agent i until ctx ends, first with the requests that are signed.
func (w *waiters) poll(ctx context.Context, i int, signed [][]byte) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.signer.hosts[0])
	if err != nil {
		return err
	}
	defer connection.Close()                                          //nolint:errcheck // nothing is lost
	defer context.AfterFunc(ctx, func() { _ = connection.Close() })() //nolint:errcheck // as above
	channel, responses := w.signer.channels[i], bufio.NewReaderSize(connection, 1<<10)
	first, parameter := channel.charged, "mark_read=false"
	for ctx.Err() == nil {
		var wire []byte
		if charged := int((channel.charged - first) / w.signer.price); charged < pollsAhead { //nolint:gosec // small
			wire = signed[charged*len(w.agents)+i]
		} else if wire, err = w.signer.write(ctx, w.signer.operation.requests[i],
			&voucher{channel: channel, due: channel.charged + w.signer.price}); err != nil {
			return err
		}
		if _, err := connection.Write(bytes.Replace(wire, []byte(firstCursor), []byte(parameter), 1)); err != nil {
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
				parameter = "read_through=" + string(cursor[1])
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
			seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
			time.Sleep(time.Duration(max(seconds, 1)) * time.Second)
		}
		w.mu.Lock()
		w.last = now
		if w.responses[response.StatusCode]++; w.responses[response.StatusCode] == 1 && response.StatusCode >= http.StatusBadRequest {
			note("the first response with %d: %s", response.StatusCode, body)
		}
		for _, at := range createdAt.FindAllSubmatch(body, -1) {
			seconds, _ := strconv.ParseFloat(string(at[1]), 64)
			if sent := time.UnixMicro(int64(seconds * 1e6)); sent.After(w.since) {
				w.wakes = append(w.wakes, now.Sub(sent))
			}
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
		if err := d.mint(ctx, evm.PubkeyToAddress(a.wallet.PublicKey).Hex()); err != nil {
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
