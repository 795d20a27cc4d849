//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

	parley "github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
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
	if err := d.compare("Waiting", fmt.Sprintf("send %d messages a second", wakeRate), []int{wakeClients}, d.rounds, sides...); err != nil {
		return err
	}
	for i, server := range servers {
		of := sides[i+1].name
		slices.Sort(wakes[i])
		d.fact("%s: from the time of a message to its response take p50 %.0f ms, p99 %.0f ms.", of, ms(wakes[i][len(wakes[i])/2]),
			ms(wakes[i][len(wakes[i])*99/100]))
		if err := d.peakMemory("the server while "+of, server); err != nil {
			return err
		}
	}
	return nil
}

// newWaiters creates agents that can wait, and the signer of a message to each.
func (d *dataset) newWaiters(ctx context.Context, n int, url string) (w *waiters, sender *signer, err error) {
	w = &waiters{responses: map[int]int{}}
	server, err := d.serve(ctx)
	if err != nil {
		return nil, nil, err
	}
	writer := func(i int) []uuid.UUID { return []uuid.UUID{d.writers[i%perRole].id} }
	if w.agents, err = d.newAgents(ctx, server.url, "waiter", n, writer); err != nil {
		return nil, nil, fmt.Errorf("register agents: %w", err)
	}
	if _, err := d.pool.Exec(ctx, `VACUUM (ANALYZE)`); err != nil {
		return nil, nil, err
	}
	note("waiting: payment channels")
	poll, send := operation{name: "wait", method: http.MethodGet}, operation{name: "wake", method: http.MethodPost}
	for i, a := range w.agents {
		poll.requests = append(poll.requests, request{caller: a, target: "/agent/unread"})
		body, err := json.Marshal(map[string]any{"recipient_agent_id": parley.AgentID(a.id), "content": d.texts[i%texts]})
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
