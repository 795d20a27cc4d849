//go:build attack

package attack

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/test/consistency"
	"github.com/parley-chat/parley/x402/evm"
)

const (
	actors = 24
	// settleDown is how long the servers have to finish what is open when the faults end. A payment whose first attempt
	// was lost and whose payer has no money stays open until it expires, 60 seconds later, and is then looked at once
	// more, after a pause of half its age.
	settleDown = 100 * time.Second
)

// TestRandomised lets many actors with plenty of money, little and none do anything, in good faith and in bad, on three
// servers, while the facilitator and the chain's endpoint fail in every way, servers are
// killed every few seconds and the database drops its connections. Then the faults end, and the books must be right to
// the unit.
//
// ATTACK_TIME is how long it acts (10m), ATTACK_SEED what it acts by (else chosen and printed). From the seed follow what
// each actor wants to do in each of its steps, the keys, nonces and texts, what becomes of each attempt to settle each
// payment, and the order of the kills. What comes when, and so which server replies what, is up to the scheduler: the
// same seed makes the same trouble, not the same run.
//
// It is not parallel: the machine is to be busy with this alone.
func TestRandomised(t *testing.T) {
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("ATTACK_TIME"), "10m"))
	if err != nil {
		t.Fatalf("ATTACK_TIME: %v", err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("ATTACK_SEED"), fmt.Sprint(rand.Uint32())), 10, 64)
	if err != nil {
		t.Fatalf("ATTACK_SEED: %v", err)
	}
	t.Logf("ATTACK_SEED=%d ATTACK_TIME=%s", seed, duration)
	r := newRandomRun(t, seed)
	players := r.enter()
	began := time.Now()
	r.calm.Store(false)
	until, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	var acting sync.WaitGroup
	for _, a := range players {
		acting.Go(func() {
			for number := 1; until.Err() == nil; number++ {
				a.step(number)
			}
		})
	}
	acting.Go(func() { r.changeDialects(until, duration) })
	r.disturb(until)
	acting.Wait()
	acted := time.Since(began)
	r.endFaults()
	r.comeBack()
	r.awaitEnd()
	r.repeatSome()
	r.closeChannels()
	r.checkBooks()
	t.Logf("\n%s", r.summary(acted))
}

// randomRun is one run, and all that the actors know together.
type randomRun struct {
	*world
	seed   uint64
	client *http.Client
	// recorder is the client's transport.
	recorder *consistency.Recorder
	logs     string // the folder with all that the servers print

	speakers []*testkit.Speaker // of all dialects, in the order in which the facilitator speaks them
	spoken   atomic.Int64       // how many of them it has spoken

	calm   atomic.Bool   // no faults
	calmed chan struct{} // closed when the faults end: whoever hangs lets go
	mute   atomic.Bool   // the facilitator takes calls and replies none

	mu       sync.Mutex // guards all that follows, and the actors' knowledge of accounts and conversations
	made     []*account // all accounts whose keys are known
	accounts []*account // those whose ids are known, too
	talks    []*talk
	payments []*payment
	purses   []*purse
	samples  []sample                 // replies that are asked for once more at the end
	settles  map[string]int           // calls of /settle by nonce
	proofs   map[[2]string][]*request // by wallet and operation: sent with payments that only proved the wallet
	calls    map[string]counts        // replies by operation
	faults   counts
	kills    counts
	retried  counts
	tans     map[string]bool
	offences counts // by kind
}

type counts map[string]int

// sample is a payment that returned 200.
type sample struct {
	payment *payment
	request *request
}

func newRandomRun(t *testing.T, seed uint64) *randomRun {
	r := &randomRun{
		world: newWorld(t), seed: seed, logs: t.ArtifactDir(), calmed: make(chan struct{}),
		settles: map[string]int{}, proofs: map[[2]string][]*request{}, calls: map[string]counts{}, faults: counts{}, kills: counts{},
		retried: counts{}, offences: counts{},
		tans: map[string]bool{},
	}
	r.calm.Store(true)
	r.recorder = consistency.NewRecorder(&http.Transport{MaxIdleConnsPerHost: 2 * actors})
	r.client = &http.Client{Transport: r.recorder}
	t.Cleanup(r.client.CloseIdleConnections)
	for _, i := range r.chance("dialects", 0).Perm(len(testkit.Dialects)) {
		r.speakers = append(r.speakers, testkit.Dialects[i].Over(r.Facilitator, 10*time.Second))
	}
	r.proxy.breakWith(r.fault)
	chain := httptest.NewServer(http.HandlerFunc(r.chain))
	t.Cleanup(chain.Close)
	for i := range 3 {
		s := r.newServer(append(r.channelFlags(), "--rpc-url", chain.URL, "--channel-withdraw-delay", randomDelay.String(),
			"--channel-claim-sum", "0.02")...) // claims are made all the time
		log, err := os.Create(filepath.Join(r.logs, fmt.Sprintf("server%d.log", i)))
		testkit.NoError(t, err)
		t.Cleanup(func() { _ = log.Close() })
		s.output.Watch = r.watch(s.url, log)
		s.start("")
	}
	return r
}

// offence reports what must not be. The first few of each kind are enough to know.
func (r *randomRun) offence(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.offend(format, args...)
}

// offend is offence for who holds the lock.
func (r *randomRun) offend(format string, args ...any) {
	if r.counted(format) {
		r.T.Errorf(format, args...)
	}
}

// counted counts an offence of some kind, and reports whether it is worth telling. The caller holds the lock.
func (r *randomRun) counted(kind string) bool {
	r.offences[kind]++
	return r.offences[kind] <= 5
}

// chance is the randomness of one thing, by the seed and the thing's name.
func (r *randomRun) chance(name string, number int) *rand.Rand {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(name))
	return rand.New(rand.NewPCG(r.seed^sum.Sum64(), uint64(number))) //nolint:gosec // a plan, not a secret
}

// weighted is a choice with its weight among others.
type weighted[T any] struct {
	weight int
	choice T
}

func pick[T any](chance *rand.Rand, choices []weighted[T]) (chosen T) {
	sum := 0
	for _, c := range choices {
		sum += c.weight
	}
	at := chance.IntN(sum)
	for _, c := range choices {
		if at -= c.weight; at < 0 {
			return c.choice
		}
	}
	return chosen
}

// namedFault is a fault as the summary counts it.
type namedFault struct {
	name string
	do   fault
}

const (
	page    = "<html><body>Bad Gateway</body></html>"
	pending = `{"success":false,"errorReason":"settlement_pending","transaction":"0x` +
		`1111111111111111111111111111111111111111111111111111111111111111","network":"eip155:84532","payer":""}`
	refusal = `{"success":false,"errorReason":"invalid_exact_evm_transaction_simulation_failed","transaction":"",` +
		`"network":"eip155:84532","payer":""}`
)

// changeDialects lets the facilitator speak all dialects, one after another.
func (r *randomRun) changeDialects(until context.Context, duration time.Duration) {
	for tick := time.NewTicker(duration / time.Duration(len(r.speakers))); ; r.spoken.Add(1) {
		select {
		case <-until.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

// speak answers a call in the dialect of the moment.
func (r *randomRun) speak(c *call) {
	if r.calm.Load() {
		pass(c)
		return
	}
	request := c.r.Clone(c.r.Context())
	request.Body = io.NopCloser(bytes.NewReader(c.body))
	r.speakers[int(r.spoken.Load())%len(r.speakers)].ServeHTTP(c.w, request)
}

// fault decides what becomes of a call of the facilitator: by the payment's nonce and the number of the attempt.
func (r *randomRun) fault(c *call) {
	if c.path != "/settle" {
		r.speak(c)
		return
	}
	nonce := testkit.JSONText(c.body, "nonce")
	r.mu.Lock()
	r.settles[nonce]++
	number := r.settles[nonce]
	r.mu.Unlock()
	chance := r.chance(nonce, number)
	short, long := chance.IntN(120), 300+chance.IntN(4700)
	chosen := pick(chance, []weighted[namedFault]{
		{600, namedFault{"", r.speak}},
		{270, namedFault{"", r.late(short, r.speak)}},
		{15, namedFault{"dropped before", dropBefore}},
		{20, namedFault{"dropped after", dropAfter}},
		{15, namedFault{"cut", cutAfter}},
		{8, namedFault{"500 before", respond(500, "")}},
		{10, namedFault{"500 after", respondAfter(500, "")}},
		{6, namedFault{"HTML before", respond(502, page)}},
		{8, namedFault{"HTML after", respondAfter(200, page)}},
		{5, namedFault{"nothing before", respond(200, "")}},
		{6, namedFault{"nothing after", respondAfter(200, "")}},
		{6, namedFault{"pending before", respond(200, pending)}},
		{8, namedFault{"pending after", respondAfter(200, pending)}},
		{8, namedFault{"refused", respond(200, refusal)}},
		{10, namedFault{"late", r.late(long, pass)}},
		{3, namedFault{"late, then dropped", r.late(long, dropBefore)}},
		{2, namedFault{"silent, then dropped", r.late(4*long, dropAfter)}},
	})
	if r.calm.Load() {
		chosen = namedFault{"", pass}
	}
	if r.mute.Load() {
		chosen = namedFault{"mute", r.late(long, dropBefore)}
	}
	if chosen.name != "" {
		r.mu.Lock()
		r.faults[chosen.name]++
		r.mu.Unlock()
	}
	chosen.do(c)
}

// late waits some milliseconds, less if the faults end.
func (r *randomRun) late(milliseconds int, then fault) fault {
	return func(c *call) {
		select {
		case <-time.After(time.Duration(milliseconds) * time.Millisecond):
		case <-r.calmed:
		case <-c.p.idle:
		}
		then(c)
	}
}

// chain is the chain's endpoint, which is unavailable or busy now and then.
func (r *randomRun) chain(w http.ResponseWriter, request *http.Request) {
	if !r.calm.Load() {
		switch at := rand.IntN(100); { // not by the seed: there is no telling the calls apart
		case at < 2:
			w.WriteHeader(http.StatusTooManyRequests)
			return
		case at < 4:
			panic(http.ErrAbortHandler)
		}
	}
	inner := request.Clone(request.Context())
	inner.URL.Path = "/rpc"
	r.Facilitator.ServeHTTP(w, inner)
}

// disturb kills and restarts servers, and cuts them off, until the end. It leaves all of them running.
func (r *randomRun) disturb(until context.Context) {
	points := []string{
		"parsed", "dry-run", "begun", "settled", "committing", "delivered", "claimed", "resettled",
		"charged", "refunding", "refunded", "claiming", "claimed on chain", "paid out",
	}
	for number := 1; ; number++ {
		chance := r.chance("disturbance", number)
		pause := func(least, most int) bool {
			select {
			case <-until.Done():
				return false
			case <-time.After(time.Duration(least+chance.IntN(most-least)) * time.Millisecond):
				return true
			}
		}
		s := r.servers[chance.IntN(len(r.servers))]
		kind := pick(chance, []weighted[string]{
			{40, "killed"}, {30, "crashed"}, {8, "stopped"}, {5, "two killed"}, {7, "facilitator gone"}, {4, "facilitator mute"},
			{6, "database cut"},
		})
		if !pause(300, 3000) {
			return
		}
		switch kind {
		case "killed":
			s.kill()
			pause(0, 1500)
			s.start("")
		case "two killed":
			other := r.servers[(slices.Index(r.servers, s)+1)%len(r.servers)]
			s.kill()
			other.kill()
			pause(0, 1000)
			s.start("")
			other.start("")
		case "crashed":
			point := fmt.Sprintf("%s:%d", points[chance.IntN(len(points))], 1+chance.IntN(12))
			s.restart(point)
			select {
			case <-s.life.Ended:
			case <-until.Done():
			case <-time.After(5 * time.Second):
				kind = "crash point not reached, killed"
			}
			s.restart("")
		case "stopped":
			_ = s.life.Cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-s.life.Ended:
			case <-until.Done():
			case <-time.After(5 * time.Second):
				kind = "told to stop, then killed"
			}
			s.restart("")
		case "facilitator gone":
			r.proxy.close()
			pause(300, 3000)
			r.proxy.open()
		case "facilitator mute":
			r.mute.Store(true)
			pause(500, 3000)
			r.mute.Store(false)
		case "database cut":
			r.Count("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		}
		r.mu.Lock()
		r.kills[kind]++
		r.mu.Unlock()
	}
}

func (r *randomRun) endFaults() {
	r.calm.Store(true)
	close(r.calmed)
	for _, s := range r.servers {
		select {
		case <-s.life.Ended:
			r.offence("a server ended by itself:\n%s", lastLines(s.output.String(), 20))
			s.start("")
		default:
		}
	}
}

// awaitEnd waits until no payment is open.
func (r *randomRun) awaitEnd() {
	began := time.Now()
	if open := r.leftOpen(settleDown); open != "" {
		r.offence("%s after the faults ended payments are still open:\n%s", settleDown, open)
	}
	r.T.Logf("nothing was open any more %s after the faults had ended", time.Since(began).Round(time.Second))
}

// What is a secret wherever it stands, and words that might be a TAN.
var (
	secretForms = regexp.MustCompile(`confidential [0-9a-f]|parley_[0-9A-Za-z]{49}|0x[0-9a-fA-F]{130}|eyJ[0-9A-Za-z+/=]{40}`)
	tanForm     = regexp.MustCompile(`\b[0-9A-HJKMNP-TV-Z]{8}\b`)
)

// checkSecrecy looks for secrets in what a caller or an operator gets to see.
func (r *randomRun) checkSecrecy(place string, text []byte) {
	if found := secretForms.Find(text); found != nil {
		r.offence("%s holds a secret (%.12s…)", place, found)
	}
	for _, word := range tanForm.FindAll(text, -1) {
		r.mu.Lock()
		known := r.tans[string(word)]
		r.mu.Unlock()
		if known {
			r.offence("%s holds a TAN", place)
		}
	}
}

// watch sees what a server prints, line by line.
func (r *randomRun) watch(name string, log io.Writer) func([]byte) {
	var rest []byte
	return func(p []byte) {
		_, _ = log.Write(p)
		rest = append(rest, p...)
		for {
			line, after, whole := bytes.Cut(rest, []byte("\n"))
			if !whole {
				return
			}
			r.checkSecrecy("the output of "+name, line)
			if bytes.Contains(line, []byte(`"msg":"payment retried"`)) {
				was, end := testkit.JSONText(line, "was"), testkit.JSONText(line, "code")
				r.mu.Lock()
				r.retried[was+" → "+cmp.Or(end, "done")]++
				r.mu.Unlock()
			}
			if bytes.Contains(line, []byte("panic")) {
				r.offence("a server's output tells of a panic: %.3000s", line)
			}
			rest = slices.Clone(after)
		}
	}
}

// logged are the lines of the servers' logs about a payment.
func (r *randomRun) logged(needles ...string) string {
	var found []string
	for i := range r.servers {
		content, err := os.ReadFile(filepath.Join(r.logs, fmt.Sprintf("server%d.log", i)))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(content)) {
			if slices.ContainsFunc(needles, func(needle string) bool { return needle != "" && strings.Contains(line, needle) }) && len(found) < 20 {
				found = append(found, fmt.Sprintf("server%d: %s", i, strings.TrimSpace(line)))
			}
		}
	}
	return strings.Join(found, "\n")
}

// purse is a wallet of which the test knows all.
type purse struct {
	key      *ecdsa.PrivateKey
	address  string // lower case
	poor     bool   // its payments live for a minute at most, see settleDown
	minted   uint64 // atomic units that it was given
	moved    uint64 // that were moved away without a payment
	moves    int
	channels []*channel // its payment channels
}

// purse makes a wallet by the seed; the world must not be running yet.
func (r *randomRun) purse(name string, amount uint64, poor bool) *purse {
	var seed [8]byte
	binary.BigEndian.PutUint64(seed[:], r.seed)
	sum := sha256.Sum256(append(seed[:], name...))
	key, err := evm.ToECDSA(sum[:])
	testkit.NoError(r.T, err)
	p := &purse{key: key, address: strings.ToLower(testkit.Address(key)), poor: poor}
	r.give(p, amount)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.purses = append(r.purses, p)
	return p
}

// give mints money for a purse.
func (r *randomRun) give(p *purse, amount uint64) {
	if amount == 0 {
		return
	}
	if err := r.Ledger.Mint(p.address, amount); err != nil {
		r.offence("mint: %v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.minted += amount
}

// sink is where money goes that is moved away.
const sink = "0x00000000000000000000000000000000000051e4"

// rob moves a purse's money away, all that there is at the time.
func (r *randomRun) rob(p *purse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.moves++
	amount := r.Ledger.Balance(p.address)
	nonce := sha256.Sum256(fmt.Appendf(nil, "moved %s %d", p.address, p.moves))
	// A payment may be faster: then it is left as it is.
	if err := r.Ledger.Transfer(p.address, sink, amount, fmt.Sprintf("0x%x", nonce),
		fmt.Sprintf("0x%x", sha256.Sum256(nonce[:]))); err == nil {
		p.moved += amount
	}
}

// summary is the run on one screen.
func (r *randomRun) summary(acted time.Duration) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var text strings.Builder
	sum, states := counts{}, counts{}
	for _, id := range slices.Sorted(maps.Keys(r.calls)) {
		fmt.Fprintf(&text, "  %-24s%v\n", id, r.calls[id])
		for column, n := range r.calls[id] {
			sum[column] += n
		}
	}
	for _, p := range r.payments {
		if p.row != nil {
			states[p.row.state]++
		}
	}
	fmt.Fprintf(&text, "replies %v\nfaults %v\ndisturbances %v\nretried %v\npayments %v of %d that were signed; the payee has %d\n",
		sum, r.faults, r.kills, r.retried, states, len(r.payments), r.Revenue())
	fmt.Fprintf(&text, "%.0f paid calls a second, for %s; ATTACK_SEED=%d; offences %v\n",
		float64(states["delivered"])/acted.Seconds(), acted.Round(time.Second), r.seed, r.offences)
	return text.String()
}
