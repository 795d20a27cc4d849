//go:build attack

package attack

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

const (
	maxMemory   = 400 << 20              // peak RSS of the server under any attack
	maxResponse = 64 << 10               // to a caller that did not pay, headers included
	noiseFloor  = 250 * time.Millisecond // a p99 below it passes: the machine is shared

	attackerAddress = "127.0.0.66"
	otherAddress    = "127.0.0.2"
)

// hostileTime is how long each attack lasts: HOSTILE_TIME, 15 seconds by default.
func hostileTime(t testing.TB) time.Duration {
	t.Helper()
	text := os.Getenv("HOSTILE_TIME")
	if text == "" {
		return 15 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < time.Second {
		t.Fatalf("HOSTILE_TIME is %q, want a duration from 1s", text)
	}
	return d
}

// watch stands in front of the facilitator's proxy and counts what a server asks.
type watch struct {
	url   string
	proxy *proxy

	mu       sync.Mutex
	verifies int
	settles  map[string]int // by wallet, lower case
	chain    int
}

func newWatch(t testing.TB, w *world) *watch {
	t.Helper()
	o := &watch{proxy: w.proxy, settles: map[string]int{}}
	address := testkit.FreeAddress(t)
	o.url = "http://" + address
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	front := &http.Server{Handler: o, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = front.Serve(listener) }()
	t.Cleanup(func() { _ = front.Close() })
	return o
}

func (o *watch) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var asked struct {
		PaymentPayload struct{ Payload x402.ExactPayload }
	}
	_ = json.Unmarshal(body, &asked)
	o.mu.Lock()
	switch r.URL.Path {
	case "/rpc":
		o.chain++ // the server sends no JSON-RPC batch
	case "/verify":
		o.verifies++
	case "/settle":
		o.settles[strings.ToLower(asked.PaymentPayload.Payload.Authorization.From)]++
	}
	o.mu.Unlock()
	o.proxy.ServeHTTP(w, r)
}

// asked counts what the server asked the facilitator and the chain so far.
func (o *watch) asked() (verifies, settles, chain int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.settles {
		settles += n
	}
	return o.verifies, settles, o.chain
}

// settlesOf counts the calls of /settle for wallets.
func (o *watch) settlesOf(wallets ...string) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, wallet := range wallets {
		n += o.settles[strings.ToLower(wallet)]
	}
	return n
}

// tally is what the calls of an attack came to.
type tally struct {
	mu       sync.Mutex
	requests int
	statuses map[int]int // 0: the connection was refused or cut
	codes    map[string]int
	largest  int // response to an unpaid request, with headers
	what     string
}

func (y *tally) add(status int, code string, size int, what string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.requests++
	y.statuses[status]++
	y.codes[code]++
	if size > y.largest {
		y.largest, y.what = size, what
	}
}

// status counts the responses with a status.
func (y *tally) status(status int) int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.statuses[status]
}

func (y *tally) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	return fmt.Sprintf("%d requests: %v %v, largest response %d bytes (%s)", y.requests, y.statuses, y.codes, y.largest, y.what)
}

// caller is a client at an address of its own.
type caller struct {
	address string
	http    *http.Client
	tally   *tally // nil: not counted
	paying  bool   // its 200s are paid, so that they may be large
}

func newCaller(address string, y *tally) *caller {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: 10 * time.Second}
	return &caller{address: address, tally: y, http: &http.Client{
		Transport:     &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 512, DisableCompression: true, TLSClientConfig: anyCertificate},
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// do sends a request as it is; headers are pairs. The error is a connection that was refused or cut.
func (c *caller) do(ctx context.Context, method, url, body string, headers ...string) (testkit.Reply, error) {
	r, err := testkit.Request(ctx, c.http, method, url, body, headers...)
	if c.tally == nil || r.Status == 0 && ctx.Err() != nil {
		return r, err
	}
	size := len(r.Body)
	for name, values := range r.Header {
		size += len(name) + len(strings.Join(values, "")) + 4
	}
	if c.paying && r.Status == http.StatusOK {
		size = 0
	}
	_, path, _ := strings.Cut(url, "://")
	_, path, _ = strings.Cut(path, "/")
	path, _, _ = strings.Cut(path, "?")
	c.tally.add(r.Status, r.Code, size, fmt.Sprintf("%s /%s: %d", method, path, r.Status))
	return r, err
}

// send sends an order, with headers on top.
func (c *caller) send(ctx context.Context, s *server, o order, headers ...string) (testkit.Reply, error) {
	return c.do(ctx, o.method, s.url+o.path, o.body, o.withPayment(headers...)...)
}

// trial is one server, at its defaults, that is attacked.
type trial struct {
	*world
	t      *testing.T
	s      *server
	watch  *watch
	tally  *tally
	honest []*honest
	rate   int // calls a second of each honest caller
	chain  int // calls of the chain's endpoint during the last attack

	moves      int
	address    string // the attacker's
	reader     *agent // of the chat that several attacks share
	chat       string
	complaints sync.Map // how often, by kind
}

// newTrial starts a server. Trials run one after another: they measure.
func newTrial(t *testing.T) *trial {
	t.Helper()
	x := &trial{world: newWorld(t), t: t, rate: 20, address: attackerAddress, tally: &tally{statuses: map[int]int{}, codes: map[string]int{}}}
	if os.Getenv("ATTACK_PROGRAM") != "" { // of another version, perhaps: its schema may be newer
		path, err := program()
		if err != nil {
			t.Fatal(err)
		}
		if said, err := exec.CommandContext(t.Context(), path, "migrate", "--database-url", x.DatabaseURL).CombinedOutput(); err != nil {
			t.Fatalf("migrate: %v: %s", err, said)
		}
	}
	x.watch = newWatch(t, x.world)
	x.s = x.another()
	return x
}

// moveOn makes the trial one of another test, with an attacker at an address that has all its tokens.
func (x *trial) moveOn(t *testing.T) {
	x.t, x.World = t, x.ForTest(t)
	x.moves++
	x.address = fmt.Sprintf("127.0.0.%d", 100+x.moves)
	x.honest = nil
}

// anyCertificate lets clients of the tests connect to their own servers.
var anyCertificate = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above

// secure restarts the server with TLS.
func (x *trial) secure() {
	x.t.Helper()
	folder := x.t.TempDir()
	x.certificate(folder, time.Hour)
	x.s.url = "https://" + x.s.listen
	x.s.flags = append(x.s.flags, "--base-url", x.s.url,
		"--tls-certificate-file", filepath.Join(folder, "certificate.pem"), "--tls-key-file", filepath.Join(folder, "key.pem"))
	x.s.restart("")
}

// another starts a further server on the same database.
func (x *trial) another(flags ...string) *server {
	x.t.Helper()
	return x.serve(append([]string{"--facilitator-url", x.watch.url, "--rpc-url", x.watch.url + "/rpc"}, flags...)...)
}

// attacker is a client at the attacker's address.
func (x *trial) attacker() *caller {
	c := newCaller(x.address, x.tally)
	x.t.Cleanup(c.http.CloseIdleConnections)
	return c
}

// complain fails the test, with words only for the first of each kind.
func (x *trial) complain(kind, format string, arguments ...any) {
	x.t.Helper()
	if _, before := x.complaints.LoadOrStore(kind, true); before {
		x.t.Fail()
		return
	}
	x.t.Errorf(kind+": "+format, arguments...)
}

// honest is an agent that pays for what it sends, at a steady modest rate, and measures how long each call takes.
type honest struct {
	where  string
	agent  *agent
	to     *agent
	caller *caller

	mu        sync.Mutex
	latencies []time.Duration
	failures  []string
}

// work sends until ctx ends, without waiting for the responses before. Every fourth call opens a connection.
func (h *honest) work(ctx context.Context, s *server, rate int) {
	var group sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			group.Wait()
			return
		case <-tick.C:
		}
		o := h.agent.says(h.to, "honest")
		began := time.Now()
		group.Go(func() {
			var headers []string
			if n%4 == 0 {
				headers = []string{"Connection", "close"}
			}
			r, err := h.caller.send(context.WithoutCancel(ctx), s, o, headers...)
			took := time.Since(began)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.latencies = append(h.latencies, took)
			if err != nil || r.Status != http.StatusOK {
				h.failures = append(h.failures, fmt.Sprintf("%v %v", r, err))
			}
		})
	}
}

// percentiles returns p50 and p99 of what was measured since the last call.
func (h *honest) percentiles() (p50, p99 time.Duration, failures []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.Sort(h.latencies)
	if n := len(h.latencies); n > 0 {
		p50, p99 = h.latencies[n/2], h.latencies[min(n-1, n*99/100)]
	}
	failures = h.failures
	h.latencies, h.failures = nil, nil
	return p50, p99, failures
}

// withHonest registers the honest callers: one at an address of its own, one at the attacker's.
func (x *trial) withHonest() {
	x.t.Helper()
	reader := x.s.agent(fmt.Sprintf("reader_%d", x.moves))
	for i, address := range []string{otherAddress, x.address} {
		name := fmt.Sprintf("honest_%d_%d", i, x.moves)
		h := &honest{where: []string{"another address", "the same address"}[i], agent: x.s.agent(name), to: reader, caller: newCaller(address, nil)}
		x.t.Cleanup(h.caller.http.CloseIdleConnections)
		x.honest = append(x.honest, h)
	}
}

// measurement is a line of the report.
type measurement struct {
	attack               string
	took                 time.Duration
	tally                string
	requests             int
	peak                 int
	quiet50, quiet99     time.Duration
	other50, other99     time.Duration
	same50, same99       time.Duration
	largest              int
	verifies, settles, n int
}

// measureRounds is how often an attack is measured at most. Latencies alone are measured again: the machine may do other things
// at the same time, and only a server that keeps its callers waiting does so each time.
const measureRounds = 3

// measure lets the honest callers work alone, and then while the attack runs. The attack gets a context that ends after
// HOSTILE_TIME and returns soon after that.
func (x *trial) measure(attack string, run func(ctx context.Context)) {
	x.t.Helper()
	if x.honest == nil {
		x.withHonest()
	}
	for round := 1; ; round++ {
		slow := x.measureOnce(attack, run)
		if slow == "" {
			return
		}
		if round == measureRounds || x.t.Failed() {
			x.t.Errorf("%s (round %d)", slow, round)
			return
		}
		x.t.Logf("%s: measured again", slow)
	}
}

// honestWork lets the honest callers work until ctx ends; the function that it returns waits for that.
func (x *trial) honestWork(ctx context.Context) (wait func()) {
	var group sync.WaitGroup
	for _, h := range x.honest {
		group.Go(func() { h.work(ctx, x.s, x.rate) })
	}
	return group.Wait
}

// measureQuiet lets the honest callers work alone.
func (x *trial) measureQuiet(line *measurement) {
	x.t.Helper()
	quiet, cancel := context.WithTimeout(x.t.Context(), min(hostileTime(x.t), 5*time.Second))
	defer cancel()
	x.honestWork(quiet)()
	for _, h := range x.honest {
		p50, p99, failures := h.percentiles()
		line.quiet50, line.quiet99 = max(line.quiet50, p50), max(line.quiet99, p99)
		if len(failures) > 0 {
			x.t.Errorf("quiet: %d honest calls failed: %s", len(failures), failures[0])
		}
	}
}

// measureOnce measures an attack and returns what an honest caller had to wait for too long, "" if nothing.
func (x *trial) measureOnce(attack string, run func(ctx context.Context)) (slow string) {
	x.t.Helper()
	line := measurement{attack: attack}
	x.measureQuiet(&line)
	x.tally.mu.Lock() // what was tried before is not the attack's; its largest response counts all the same
	x.tally.requests, x.tally.statuses, x.tally.codes = 0, map[int]int{}, map[string]int{}
	x.tally.mu.Unlock()
	x.resetPeak()
	verifies, settles, chain := x.watch.asked()
	began := time.Now()
	ctx, cancel := context.WithTimeout(x.t.Context(), hostileTime(x.t))
	defer cancel()
	wait := x.honestWork(ctx)
	run(ctx)
	wait()
	line.took = time.Since(began)
	line.peak = x.peak()
	line.verifies, line.settles, line.n = x.watch.asked()
	line.verifies, line.settles, line.n = line.verifies-verifies, line.settles-settles, line.n-chain
	x.chain = line.n
	allowed := max(10*line.quiet99, noiseFloor)
	for _, h := range x.honest {
		p50, p99, failures := h.percentiles()
		if h.where == "another address" {
			line.other50, line.other99 = p50, p99
		} else {
			line.same50, line.same99 = p50, p99
		}
		if p99 > allowed {
			slow = fmt.Sprintf("%s: an honest caller of %s has p99 %s (p50 %s), want at most %s: ten times the quiet %s", attack, h.where, p99, p50, allowed, line.quiet99)
		}
		if len(failures) > 0 {
			x.t.Errorf("%s: %d calls of the honest caller of %s failed: %s", attack, len(failures), h.where, failures[0])
		}
	}
	x.judge(&line)
	return slow
}

// judge fails if the attack got a long response or took much memory, and reports it.
func (x *trial) judge(line *measurement) {
	x.t.Helper()
	x.tally.mu.Lock()
	line.requests, line.largest = x.tally.requests, x.tally.largest
	line.tally = statusList(x.tally.statuses)
	what := x.tally.what
	x.tally.mu.Unlock()
	if line.largest > maxResponse {
		x.t.Errorf("%s: a response to an unpaid request has %d bytes (%s), want at most %d", line.attack, line.largest, what, maxResponse)
	}
	if line.peak > maxMemory {
		x.t.Errorf("%s: the server's peak RSS is %d MiB, want at most %d", line.attack, line.peak>>20, maxMemory>>20)
	}
	x.t.Logf("%s: %s in %s; peak RSS %d MiB; p50/p99 quiet %s/%s, other address %s/%s, same address %s/%s; %d verify, %d settle, %d chain calls",
		line.attack, x.tally, line.took.Round(time.Millisecond), line.peak>>20, line.quiet50, line.quiet99, line.other50, line.other99, line.same50, line.same99,
		line.verifies, line.settles, line.n)
	report(x.t, *line)
}

// atFacilitator counts, among statuses, the tries that went to the facilitator.
const atFacilitator = 1

func statusList(statuses map[int]int) string {
	var parts []string
	for _, status := range sortedKeys(statuses) {
		name := strconv.Itoa(status)
		switch status {
		case 0:
			name = "refused or cut"
		case atFacilitator:
			name = "by the facilitator"
		}
		parts = append(parts, fmt.Sprintf("%s × %d", name, statuses[status]))
	}
	return strings.Join(parts, ", ")
}

func sortedKeys(of map[int]int) []int {
	var keys []int
	for key := range of {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// floodRate bounds all calls of a flood, in a second: attacker, server, database and honest callers share one machine.
const floodRate = 2000

// flood calls from n goroutines, each as soon as its call before has ended, until ctx ends or each has called limit times.
func flood(ctx context.Context, n, limit int, call func(ctx context.Context, worker, round int)) {
	var group sync.WaitGroup
	began := time.Now()
	for worker := range n {
		group.Go(func() {
			for round := 0; ctx.Err() == nil && round < limit; round++ {
				time.Sleep(time.Until(began.Add(time.Duration(round*n) * time.Second / floodRate)))
				call(ctx, worker, round)
			}
		})
	}
	group.Wait()
}

// prepared signs n orders before an attack begins: making keys would take the time of those who are measured.
func prepared(n int, make func(i int) order) []order {
	orders := slices.Repeat([]order{{}}, n)
	flood := min(n, 4)
	var group sync.WaitGroup
	for worker := range flood {
		group.Go(func() {
			for i := worker; i < n; i += flood {
				orders[i] = make(i)
			}
		})
	}
	group.Wait()
	return orders
}

// resetPeak makes the kernel count the server's peak memory anew.
func (x *trial) resetPeak() {
	x.t.Helper()
	path := fmt.Sprintf("/proc/%d/clear_refs", x.s.life.Cmd.Process.Pid)
	if err := os.WriteFile(path, []byte("5"), 0); err != nil {
		x.t.Skipf("peak memory cannot be measured here: %v", err)
	}
}

// peak is the server's peak RSS in bytes since resetPeak.
func (x *trial) peak() int {
	x.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.s.life.Cmd.Process.Pid))
	if err != nil {
		x.t.Errorf("the server is gone: %v", err)
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")))
			if err != nil {
				x.t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	x.t.Fatal("/proc says nothing of VmHWM")
	return 0
}

var (
	measurements []measurement
	reporting    sync.Mutex
)

// report adds a line to bin/hostile.md.
func report(t testing.TB, line measurement) {
	t.Helper()
	reporting.Lock()
	defer reporting.Unlock()
	measurements = append(measurements, line)
	var text strings.Builder
	fmt.Fprintf(&text, "| attack | requests | responses | peak RSS, MiB | p50/p99 quiet, ms | p50/p99 other address, ms | p50/p99 same address, ms | largest unpaid response, bytes | `/verify`, `/settle`, RPC calls |\n")
	fmt.Fprintf(&text, "|---|---:|---|---:|---:|---:|---:|---:|---:|\n")
	ms := func(d time.Duration) string {
		if d == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000)
	}
	for _, r := range measurements {
		fmt.Fprintf(&text, "| %s | %d in %.0f s | %s | %d | %s / %s | %s / %s | %s / %s | %d | %d, %d, %d |\n", r.attack, r.requests, r.took.Seconds(), r.tally,
			r.peak>>20, ms(r.quiet50), ms(r.quiet99), ms(r.other50), ms(r.other99), ms(r.same50), ms(r.same99), r.largest, r.verifies, r.settles, r.n)
	}
	if err := os.WriteFile(filepath.Join("..", "..", "bin", "hostile.md"), []byte(text.String()), 0o644); err != nil {
		t.Error(err)
	}
}
