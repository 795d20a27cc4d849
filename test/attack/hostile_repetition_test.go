//go:build attack

package attack

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// worked is the processor time of the server so far.
func (x *trial) worked() time.Duration {
	x.t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", x.s.life.Cmd.Process.Pid))
	if err != nil {
		x.t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the name can contain spaces
	fields := strings.Fields(after)
	var ticks int
	for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(field)
		if err != nil {
			x.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// costly is the body of a search whose expression takes the matcher long and finds nothing in a chat of long messages.
func costly(chat string) string {
	return fmt.Sprintf(`{"chat_id":%q,"query":"(\\w?){100}[z]{3}|(x|xx)*(y|yy)*[q]{2}"}`, chat)
}

// TestHostileRepeatedSearch: one costly search that was paid once, one whose payment was cancelled, and one that somebody else paid for,
// each repeated by 24 clients.
func TestHostileRepeatedSearch(t *testing.T) {
	x := newTrial(t)
	reader, chat := x.largeChat(100, wide)
	stranger := x.agent("stranger")
	body := costly(chat)
	paid := forged(reader.wallet, reader.key, searchPath, body)
	if r := x.tell(paid); r.Status != http.StatusOK {
		t.Fatalf("a search: %v", r)
	}
	cancelled := forged(x.Wallet(testkit.Dollar), reader.key, searchPath, body)
	if err := x.Ledger.Cancel(cancelled.payment.Payload.Authorization.From, cancelled.payment.Payload.Authorization.Nonce); err != nil {
		t.Fatal(err)
	}
	public := paid
	public.headers = []string{"X-API-KEY", stranger.key}
	for name, o := range map[string]order{"a paid search": paid, "a search with a cancelled payment": cancelled, "a search with a public payment": public} {
		attacker := x.attacker()
		attacker.paying = true
		before := x.worked()
		x.measure(name+", repeated by 24", func(ctx context.Context) {
			flood(ctx, 24, 2_000, func(ctx context.Context, _, _ int) { _, _ = attacker.send(ctx, x.s, o) })
		})
		// The honest calls before and meanwhile count too, so this is an upper bound.
		each := (x.worked() - before) / time.Duration(max(x.tally.requests, 1))
		t.Logf("%s: at most %s of processor time for each of %d requests", name, each, x.tally.requests)
		if each > 5*time.Millisecond {
			t.Errorf("%s costs %s of processor time for each of %d requests, want at most 5ms", name, each, x.tally.requests)
		}
	}
	x.check()
}

// TestHostileRecentPayer: at an address without tokens an attacker names a wallet that paid lately, with a signature of its own making or
// one that the wallet has made public.
func TestHostileRecentPayer(t *testing.T) {
	x := newTrial(t)
	payer := x.agent("recent")
	x.withHonest()
	junk := prepared(2_000, func(i int) order {
		return forged(payer.wallet, testkit.UnknownKey(i), mePath, "", func(p *x402.PaymentPayload) { p.Payload.Signature = "0x" + strings.Repeat("11", 65) })
	})
	public := forged(payer.wallet, payer.key, mePath, "")
	x.tell(public)
	attacker := x.attacker()
	transactions := func() int {
		time.Sleep(2 * time.Second) // connections report what they did once a second
		return x.Count(`SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()`)
	}
	name := func(ctx context.Context, worker, round int) {
		o := junk[(worker+8*round)%len(junk)]
		if worker%2 == 0 { // enough to use up the bucket of recent payers
			o = public
			o.headers = []string{"X-API-KEY", testkit.UnknownKey(round)}
		}
		_, _ = attacker.send(ctx, x.s, o)
	}
	x.measure("a recent payer is named", func(ctx context.Context) { flood(ctx, 8, 20_000, name) })
	// Once more without the honest callers, whose transactions would count too. Buckets refill by a hundred a second.
	requests, before := x.tally.requests, transactions()
	flood(t.Context(), 8, 1_000, name)
	requests, caused := x.tally.requests-requests, transactions()-before
	t.Logf("%d transactions of the database for %d requests at an address without tokens", caused, requests)
	// Two for each request without the limit. What the buckets admit meanwhile counts here: 200 calls a second.
	if caused > requests/2 {
		t.Errorf("%d transactions of the database for %d requests at an address without tokens, want less than 0.5 each", caused, requests)
	}
	x.check()
}

// TestHostileMadeUpVouchers: one address sends 40 vouchers a second of payment channels that do not exist. Whoever deposited on the chain
// is found all the same.
func TestHostileMadeUpVouchers(t *testing.T) {
	x := newTrial(t)
	w := &channelWorld{world: x.world, delay: day}
	x.s.kill()
	x.s = x.another(x.channelFlags()...)
	w.s, w.alice, w.bob = x.s, x.agent("alice"), x.agent("bob")
	mallory := x.agent("mallory")
	x.withHonest()
	made := prepared(2_000, func(i int) order {
		signer, err := x402.NewChannelSigner(x402.NewKeySigner(mallory.wallet), fmt.Sprintf("0x%064x", i+1), channelOffer(sendPath, day))
		if err != nil {
			panic(err)
		}
		p := &channelPayer{w: w, agent: mallory, signer: signer}
		o := mallory.says(w.bob, "made up")
		payment, err := signer.Sign(context.Background(), sendPrice, 0, x.Ledger.Now())
		if err != nil {
			panic(err)
		}
		o = p.encoded(o, payment)
		return o
	})
	var waiting []*channelPayer
	for n := range 3 {
		p := w.payerWith(w.alice, fmt.Sprintf("0x%064x", 1000+n))
		if err := x.Ledger.DepositIntoChannel(p.signer.Config, testkit.Dollar); err != nil {
			t.Fatal(err)
		}
		waiting = append(waiting, p)
	}
	attacker, adopted := x.attacker(), 0
	x.measure("40 made-up vouchers a second", func(ctx context.Context) {
		found := make(chan int)
		go func() {
			n := 0
			for _, p := range waiting {
				time.Sleep(min(time.Second, hostileTime(t)/4))
				if r, err := newCaller("127.0.0.7", nil).send(t.Context(), x.s, p.says("from the chain", sendPrice, 0)); err == nil && r.Status == http.StatusOK {
					n++
				}
			}
			found <- n
		}()
		paced(ctx, 40, func(ctx context.Context, round int) { _, _ = attacker.send(ctx, x.s, made[round%len(made)]) })
		adopted += <-found
		waiting = nil // adopted once; a further measurement needs none
	})
	if adopted != 3 {
		t.Errorf("%d of 3 payment channels on the chain were found, want all", adopted)
	}
	x.check()
}
