//go:build attack

package attack

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
)

const (
	maxMemory   = 400 << 20              // peak RSS of the server under any attack
	maxResponse = 64 << 10               // to a caller that did not pay, headers included
	noiseFloor  = 250 * time.Millisecond // a p99 below it passes: the machine is shared
	medianFloor = 25 * time.Millisecond  // and a median

	attackerAddress = "127.0.0.66"
	otherAddress    = "127.0.0.2"
	elsewhere       = "another address" // where an honest caller is

	honestRate = 20 // calls a second of each honest caller
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
		Transport: &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 512, DisableCompression: true,
			TLSClientConfig: anyCertificate},
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
	s      *server
	tally  *tally
	honest []*honest
	// Calls of /verify and of the chain's endpoint during the last attack, but for the look at the transaction of each settlement.
	unsettled int

	medians    bool // the medians of honest callers count too
	moves      int
	address    string // the attacker's
	reader     *agent // of the chat that several attacks share
	chat       string
	complaints sync.Map // by kind
}

// newTrial starts a server. Trials run one after another: they measure.
func newTrial(t *testing.T) *trial {
	t.Helper()
	x := &trial{world: newWorld(t), address: attackerAddress, tally: &tally{statuses: map[int]int{}, codes: map[string]int{}}}
	x.s = x.serve()
	return x
}

// moveOn makes the trial one of another test, with an attacker at an address that has all its tokens.
func (x *trial) moveOn(t *testing.T) {
	x.World = x.ForTest(t)
	x.moves++
	x.address = fmt.Sprintf("127.0.0.%d", 100+x.moves)
	x.honest = nil
}

// attacker is a client at the attacker's address.
func (x *trial) attacker() *caller {
	c := newCaller(x.address, x.tally)
	x.T.Cleanup(c.http.CloseIdleConnections)
	return c
}

// complain fails the test, with words only for the first of each kind.
func (x *trial) complain(kind, format string, arguments ...any) {
	x.T.Helper()
	if _, before := x.complaints.LoadOrStore(kind, true); before {
		x.T.Fail()
		return
	}
	x.T.Errorf(kind+": "+format, arguments...)
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
func (h *honest) work(ctx context.Context, s *server) {
	var group sync.WaitGroup
	tick := time.NewTicker(time.Second / honestRate)
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
	x.T.Helper()
	reader := x.s.agent(fmt.Sprintf("reader_%d", x.moves))
	for i, address := range []string{otherAddress, x.address} {
		name := fmt.Sprintf("honest_%d_%d", i, x.moves)
		h := &honest{where: []string{elsewhere, "the same address"}[i], agent: x.s.agent(name), to: reader, caller: newCaller(address, nil)}
		x.T.Cleanup(h.caller.http.CloseIdleConnections)
		x.honest = append(x.honest, h)
	}
}

// measurement is what an attack cost.
type measurement struct {
	attack           string
	took             time.Duration
	peak             int
	quiet50, quiet99 time.Duration
	other50, other99 time.Duration
	same50, same99   time.Duration
	asked            [3]int // calls of /verify, /settle and the chain's endpoint
}

// measureRounds is how often an attack is measured at most. Latencies alone are measured again: the machine may do other things
// at the same time, and only a server that keeps its callers waiting does so each time.
const measureRounds = 3

// measure lets the honest callers work alone, and then while the attack runs. The attack gets a context that ends after
// HOSTILE_TIME and returns soon after that.
func (x *trial) measure(attack string, run func(ctx context.Context)) {
	x.T.Helper()
	if x.honest == nil {
		x.withHonest()
	}
	for round := 1; ; round++ {
		slow := x.measureOnce(attack, run)
		if slow == "" {
			return
		}
		if round == measureRounds || x.T.Failed() {
			x.T.Errorf("%s (round %d)", slow, round)
			return
		}
		x.T.Logf("%s: measured again", slow)
	}
}

// honestWork lets the honest callers work until ctx ends; the function that it returns waits for that.
func (x *trial) honestWork(ctx context.Context) (wait func()) {
	var group sync.WaitGroup
	for _, h := range x.honest {
		group.Go(func() { h.work(ctx, x.s) })
	}
	return group.Wait
}

// measureQuiet lets the honest callers work alone.
func (x *trial) measureQuiet(line *measurement) {
	x.T.Helper()
	quiet, cancel := context.WithTimeout(x.T.Context(), min(hostileTime(x.T), 5*time.Second))
	defer cancel()
	x.honestWork(quiet)()
	for _, h := range x.honest {
		p50, p99, failures := h.percentiles()
		line.quiet50, line.quiet99 = max(line.quiet50, p50), max(line.quiet99, p99)
		if len(failures) > 0 {
			x.T.Errorf("quiet: %d honest calls failed: %s", len(failures), failures[0])
		}
	}
}

// asked counts what the server asked the facilitator and the chain so far.
func (x *trial) asked() [3]int {
	return [3]int{x.proxy.count("/verify"), x.proxy.count("/settle"), x.proxy.count("/rpc")}
}

// measureOnce measures an attack and returns what an honest caller had to wait for too long, "" if nothing.
func (x *trial) measureOnce(attack string, run func(ctx context.Context)) (slow string) {
	x.T.Helper()
	line := measurement{attack: attack}
	x.measureQuiet(&line)
	x.tally.mu.Lock() // what was tried before is not the attack's; its largest response counts all the same
	x.tally.requests, x.tally.statuses, x.tally.codes = 0, map[int]int{}, map[string]int{}
	x.tally.mu.Unlock()
	x.resetPeak()
	before, began := x.asked(), time.Now()
	ctx, cancel := context.WithTimeout(x.T.Context(), hostileTime(x.T))
	defer cancel()
	wait := x.honestWork(ctx)
	run(ctx)
	wait()
	line.took, line.peak, line.asked = time.Since(began), x.peak(), x.asked()
	for i := range before {
		line.asked[i] -= before[i]
	}
	x.unsettled = line.asked[0] + line.asked[2] - line.asked[1]
	allowed := max(10*line.quiet99, noiseFloor)
	for _, h := range x.honest {
		p50, p99, failures := h.percentiles()
		if h.where == elsewhere {
			line.other50, line.other99 = p50, p99
		} else {
			line.same50, line.same99 = p50, p99
		}
		if p99 > allowed {
			slow = fmt.Sprintf("%s: an honest caller of %s has p99 %s (p50 %s), want at most %s: ten times the quiet %s",
				attack, h.where, p99, p50, allowed, line.quiet99)
		}
		if most := max(2*line.quiet50, medianFloor); x.medians && p50 > most {
			slow = fmt.Sprintf("%s: an honest caller of %s has the median %s, want at most %s: twice the quiet %s", attack, h.where, p50, most,
				line.quiet50)
		}
		if len(failures) > 0 {
			x.T.Errorf("%s: %d calls of the honest caller of %s failed: %s", attack, len(failures), h.where, failures[0])
		}
	}
	x.judge(&line)
	return slow
}

// judge fails if the attack got a long response or took much memory, and adds a line to bin/hostile.md.
func (x *trial) judge(line *measurement) {
	x.T.Helper()
	x.T.Logf("%s: %s", line.attack, x.tally)
	if line.peak > maxMemory {
		x.T.Errorf("%s: the server's peak RSS is %d MiB, want at most %d", line.attack, line.peak>>20, maxMemory>>20)
	}
	x.tally.mu.Lock()
	defer x.tally.mu.Unlock()
	if x.tally.largest > maxResponse {
		x.T.Errorf("%s: a response to an unpaid request has %d bytes (%s), want at most %d", line.attack, x.tally.largest, x.tally.what,
			maxResponse)
	}
	file, err := os.OpenFile(filepath.Join("..", "..", "bin", "hostile.md"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	testkit.NoError(x.T, err)
	defer func() { _ = file.Close() }()
	if size, err := file.Seek(0, io.SeekEnd); err == nil && size == 0 {
		_, _ = io.WriteString(file, "| attack | requests | responses | peak RSS, MiB | p50/p99 quiet, ms | p50/p99 other address, ms | p50/p99 "+
			"same address, ms | "+
			"largest unpaid response, bytes | `/verify`, `/settle`, RPC calls |\n|---|---:|---|---:|---:|---:|---:|---:|---:|\n")
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	_, err = fmt.Fprintf(file, "| %s | %d in %.0f s | %v | %d | %.1f / %.1f | %.1f / %.1f | %.1f / %.1f | %d | %v |\n",
		line.attack, x.tally.requests, line.took.Seconds(), x.tally.statuses, line.peak>>20, ms(line.quiet50), ms(line.quiet99),
		ms(line.other50), ms(line.other99), ms(line.same50), ms(line.same99), x.tally.largest, line.asked)
	if err != nil {
		x.T.Error(err)
	}
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
	x.T.Helper()
	path := fmt.Sprintf("/proc/%d/clear_refs", x.s.life.Cmd.Process.Pid)
	if err := os.WriteFile(path, []byte("5"), 0); err != nil {
		x.T.Skipf("peak memory cannot be measured here: %v", err)
	}
}

// peak is the server's peak RSS in bytes since resetPeak.
func (x *trial) peak() int {
	x.T.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.s.life.Cmd.Process.Pid))
	if err != nil {
		x.T.Errorf("the server is gone: %v", err)
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")))
			testkit.NoError(x.T, err)
			return kilobytes << 10
		}
	}
	x.T.Fatal("/proc says nothing of VmHWM")
	return 0
}
