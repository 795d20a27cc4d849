//go:build attack

package attack

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// wide is a message as long as the contract allows, of characters of four bytes.
func wide(number int) string { return fmt.Sprintf("%08d", number) + strings.Repeat("𝕏", 16_384-8) }

// wallets are the empty wallets that an attack made.
type wallets struct {
	mu        sync.Mutex
	addresses []string // lower case
}

func (l *wallets) add(o order) order {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.addresses = append(l.addresses, strings.ToLower(o.payment.Payload.Authorization.From))
	return o
}

// leftNothing checks what empty wallets cost: no call of /settle, few other calls, no row that stays.
func (x *trial) leftNothing(l *wallets, took time.Duration, before int) {
	x.t.Helper()
	if n := x.watch.settlesOf(l.addresses...); n > 0 {
		x.t.Errorf("%d of %d empty wallets' payments were sent to /settle, want none", n, len(l.addresses))
	}
	x.watch.mu.Lock()
	verifies := 0
	for _, wallet := range l.addresses {
		verifies += x.watch.verifies[wallet]
	}
	x.watch.mu.Unlock()
	if most := x.bound(took); verifies > most || x.chain > most {
		x.t.Errorf("%d calls of /verify and %d of the chain's endpoint for empty wallets in %s, want at most %d each", verifies, x.chain, took, most)
	}
	if n := x.Count("SELECT count(*) FROM payments WHERE payer = ANY($1)", l.addresses); n > 0 {
		x.t.Errorf("%d rows of payments are left of %d empty wallets, want none", n, len(l.addresses))
	}
	if n := x.Count("SELECT count(*) FROM registrations"); n > before {
		x.t.Errorf("%d registrations are left by empty wallets", n-before)
	}
}

// bound is how many calls to the outside one attacker's address may cause: a burst, and then a hundred a second.
func (x *trial) bound(took time.Duration) int { return 2000 + int(100*took.Seconds()) }

// TestHostileBodies: a wrong body costs little and is replied briefly, however much is wrong with it.
func TestHostileBodies(t *testing.T) {
	x := newTrial(t)
	const size = 240_000
	elements := func(element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", size/(len(element)+1)), ",") + "]"
	}
	fields := func() string {
		var text strings.Builder
		for n := 0; text.Len() < size-20; n++ {
			fmt.Fprintf(&text, `,"f%d":0`, n)
		}
		return text.String()
	}()
	bodies := map[string]string{}
	for _, field := range []string{"initial_member_ids", "add_member_ids", "remove_member_ids", "ban_member_ids", "unban_agent_ids", "unpin_message_ids", "content", "query", "username"} {
		for name, element := range map[string]string{"empty texts": `""`, "numbers": "0", "nulls": "null", "ids of nothing": `"agent_x"`, "lists": "[]", "objects": "{}"} {
			bodies[name+" in "+field] = fmt.Sprintf(`{%q:%s}`, field, elements(element))
		}
	}
	bodies["unknown fields"] = "{" + fields[1:] + "}"
	bodies["one long unknown field"] = fmt.Sprintf(`{"%s":0}`, strings.Repeat("x", size))
	bodies["a long text"] = fmt.Sprintf(`{"content":%q,"query":%q}`, strings.Repeat("\x01", size/14), strings.Repeat("\x01", size/14))
	bodies["deep lists"] = strings.Repeat("[", size/2) + strings.Repeat("]", size/2)
	bodies["deep objects"] = strings.Repeat(`{"a":`, size/6) + "0" + strings.Repeat("}", size/6)
	bodies["a list"] = elements("0")
	bodies["a long number"] = `{"page":` + strings.Repeat("9", size) + `}`
	bodies["no JSON"] = strings.Repeat("\xff", size)
	paths := []string{"/chat/group/create", "/chat/group/edit", "/channel/edit", sendPath, requestPath, "/search/agents", "/chat/private/messages"}
	check := func(what string, r testkit.Reply) {
		t.Helper()
		switch r.Status {
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusTooManyRequests, http.StatusServiceUnavailable:
		default:
			t.Errorf("%s: %d, want 400, 413, 429 or 503", what, r.Status)
		}
		var reply struct{ Details []any }
		_ = json.Unmarshal(r.Body, &reply)
		if len(reply.Details) > 20 || len(r.Body) >= 16<<10 {
			t.Errorf("%s: %d details and %d bytes, want at most 20 in less than 16 KiB", what, len(reply.Details), len(r.Body))
		}
	}
	looksPaid := []string{x402.HeaderPaymentSignature, "x"} // without a payment, long bodies are not looked at
	var names []string
	for name := range bodies {
		names = append(names, name)
	}
	for i, name := range names {
		path := paths[i%len(paths)]
		if _, field, ok := strings.Cut(name, " in "); ok {
			switch {
			case field == "initial_member_ids":
				path = "/chat/group/create"
			case strings.HasSuffix(field, "_ids"):
				path = "/chat/group/edit"
			}
		}
		check(name+" at "+path, x.ask(http.MethodPost, path, bodies[name], looksPaid...))
	}
	if r := x.ask(http.MethodPost, sendPath, strings.Repeat(" ", 300<<10)+"{}"); r.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("300 KiB of body: %d, want 413", r.Status)
	}
	if t.Failed() {
		return // eight of these at full speed would only take all memory
	}
	attacker := x.attacker()
	x.measure("bodies of 240 KB with an error in each element", func(ctx context.Context) {
		flood(ctx, 8, 5_000, func(ctx context.Context, worker, round int) {
			name := names[(worker+8*round)%len(names)]
			if r, err := attacker.do(ctx, http.MethodPost, x.s.url+paths[round%2], bodies[name], looksPaid...); err == nil && ctx.Err() == nil {
				check(name, r)
			}
		})
	})
	x.check()
}

// TestHostileEmptyWalletSends: eight senders whose wallets are empty, each wallet new, send the longest messages.
func TestHostileEmptyWalletSends(t *testing.T) {
	x := newTrial(t)
	sender, to := x.agent("sender"), x.agent("recipient")
	x.withHonest()
	attacker, made, before := x.attacker(), &wallets{}, x.Count("SELECT count(*) FROM registrations")
	body := fmt.Sprintf(`{"recipient_agent_id":%q,"content":%q}`, to.id, wide(0))
	orders := prepared(5_000, func(int) order { return made.add(forged(testkit.NewKey(), sender.key, sendPath, body)) })
	began := time.Now()
	x.measure("empty wallets send 16,384 characters of four bytes", func(ctx context.Context) {
		flood(ctx, 8, 20_000, func(ctx context.Context, worker, round int) {
			r, err := attacker.send(ctx, x.s, orders[(worker+8*round)%len(orders)])
			if err == nil && r.Status == http.StatusOK {
				x.complain("an empty wallet sent a message", "%v", r)
			}
		})
	})
	x.leftNothing(made, time.Since(began), before)
	x.check()
}

// TestHostileUnpaidReads: 24 readers whose wallets are empty ask for the largest page.
func TestHostileUnpaidReads(t *testing.T) {
	x := newTrial(t)
	reader, chat := x.largeChat(250, wide)
	x.withHonest()
	attacker, made, before := x.attacker(), &wallets{}, x.Count("SELECT count(*) FROM registrations")
	body := fmt.Sprintf(`{"chat_id":%q,"n":250}`, chat)
	orders := prepared(5_000, func(int) order { return made.add(forged(testkit.NewKey(), reader.key, "/chat/private/messages", body)) })
	began := time.Now()
	x.measure("24 unpaid reads of a page of 16 MB", func(ctx context.Context) {
		flood(ctx, 24, 2_000, func(ctx context.Context, worker, round int) {
			r, err := attacker.send(ctx, x.s, orders[(worker+24*round)%len(orders)])
			if err == nil && r.Status == http.StatusOK {
				x.complain("an empty wallet read", "%d bytes", len(r.Body))
			}
		})
	})
	x.leftNothing(made, time.Since(began), before)
	x.check()
}

// largeChat makes a chat of n messages.
func (x *trial) largeChat(n int, content func(number int) string) (reader *agent, chat string) {
	x.t.Helper()
	reader, writer := x.agent("large_reader"), x.agent("large_writer")
	paying := newCaller("127.0.0.9", nil)
	for number := range n {
		text := content(number)
		x.mu.Lock()
		x.contents[text] = true
		x.mu.Unlock()
		raw, err := json.Marshal(map[string]any{"recipient_agent_id": reader.id, "content": text})
		if err != nil {
			x.t.Fatal(err)
		}
		r, err := paying.send(x.t.Context(), x.s, forged(writer.wallet, writer.key, sendPath, string(raw)))
		if err != nil || r.Status != http.StatusOK {
			x.t.Fatalf("message %d: %.300v %v", number, r, err)
		}
		chat = r.Text("chat_id")
	}
	return reader, chat
}

// TestHostileUnpaidRegistrations: wallets without money ask for usernames at full speed.
func TestHostileUnpaidRegistrations(t *testing.T) {
	x := newTrial(t)
	x.withHonest()
	attacker, made, before := x.attacker(), &wallets{}, x.Count("SELECT count(*) FROM registrations")
	orders := prepared(10_000, func(i int) order {
		return made.add(forged(testkit.NewKey(), "", requestPath, fmt.Sprintf(`{"requested_username":"flood_%d"}`, i)))
	})
	began := time.Now()
	x.measure("empty wallets ask for usernames", func(ctx context.Context) {
		flood(ctx, 8, 20_000, func(ctx context.Context, worker, round int) {
			r, err := attacker.send(ctx, x.s, orders[(worker+8*round)%len(orders)])
			if err == nil && r.Status == http.StatusOK {
				x.complain("an empty wallet got a TAN", "%v", r)
			}
		})
	})
	x.leftNothing(made, time.Since(began), before)
	x.check()
}

// TestHostileManyEmptyWallets: one account pays each call from another empty wallet.
func TestHostileManyEmptyWallets(t *testing.T) {
	x := newTrial(t)
	sender, to := x.agent("sender"), x.agent("recipient")
	x.withHonest()
	attacker, made, before := x.attacker(), &wallets{}, x.Count("SELECT count(*) FROM registrations")
	began := time.Now()
	x.measure("one account, 300 empty wallets", func(ctx context.Context) {
		flood(ctx, 10, 30, func(ctx context.Context, worker, round int) {
			content := fmt.Sprintf("free of charge, %d of %d", round, worker)
			body := fmt.Sprintf(`{"recipient_agent_id":%q,"content":%q}`, to.id, content)
			r, err := attacker.send(ctx, x.s, made.add(forged(testkit.NewKey(), sender.key, sendPath, body)))
			if err == nil && r.Status == http.StatusOK {
				x.complain("a free call", "%v", r)
			}
		})
		<-ctx.Done()
	})
	x.leftNothing(made, time.Since(began), before)
	if n := x.Count("SELECT count(*) FROM messages WHERE content LIKE 'free of charge%'"); n > 0 {
		t.Errorf("%d messages were sent free of charge", n)
	}
	x.check()
}

// TestHostilePages: a page holds at most 1 MiB of content and says where it goes on, and nothing is lost on the way.
func TestHostilePages(t *testing.T) {
	x := newTrial(t)
	const limit = 1 << 20
	reader, chat := x.largeChat(100, wide)
	type page struct {
		Messages []struct {
			MessageID string `json:"message_id"`
			Content   string
		}
		Next string `json:"next_before_message_id"`
	}
	read := func(what, path string, body map[string]any) (p page, o order) {
		t.Helper()
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		if body == nil {
			raw = nil
		}
		o = forged(reader.wallet, reader.key, path, string(raw))
		r, err := newCaller("127.0.0.9", nil).send(t.Context(), x.s, o)
		if err != nil || r.Status != http.StatusOK {
			t.Fatalf("%s: %.300v %v, want 200", what, r, err)
		}
		if err := json.Unmarshal(r.Body, &p); err != nil {
			t.Fatal(err)
		}
		size := 0
		for _, m := range p.Messages {
			size += len(m.Content)
		}
		if size > limit || size == 0 {
			t.Errorf("%s: %d bytes of content in %d messages, want at most %d", what, size, len(p.Messages), limit)
		}
		return p, o
	}
	ledger := func() int { return x.Count("SELECT pg_total_relation_size('payments')") }
	before := ledger()
	read("unread", "/agent/unread?page_size=250&mark_read=false", nil) // before reading the history marks all of it
	seen := map[string]bool{}
	body := map[string]any{"chat_id": chat, "n": 250}
	pages := 0
	for next := "first"; next != ""; pages++ {
		p, _ := read("history", "/chat/private/messages", body)
		for _, m := range p.Messages {
			if seen[m.Content] {
				t.Errorf("%.8s is on two pages", m.Content)
			}
			seen[m.Content] = true
		}
		next = p.Next
		body["before_message_id"] = next
		if pages > 200 {
			t.Fatal("the pages have no end")
		}
	}
	if len(seen) != 100 || pages < 5 {
		t.Errorf("%d pages hold %d messages, want all 100 on more than 5 pages", pages, len(seen))
	}
	read("search", "/chat/private/search", map[string]any{"chat_id": chat, "query": "𝕏"})
	if grown := ledger() - before; grown > pages*128<<10 {
		t.Errorf("the ledger grew by %d KiB for %d reads, want at most 128 KiB each", grown>>10, pages+2)
	}

	// A payment's page again and again, which is free: it must cost no more than a page at a time.
	_, o := read("once more", "/chat/private/messages", map[string]any{"chat_id": chat, "n": 250})
	attacker := x.attacker()
	attacker.paying = true // it paid once
	x.withHonest()
	x.measure("one paid page, repeated by 24", func(ctx context.Context) {
		flood(ctx, 24, 2_000, func(ctx context.Context, _, _ int) { _, _ = attacker.send(ctx, x.s, o) })
	})
	x.check()
}

// TestHostilePayingClients: 64 clients of one address that pay for what they ask are never limited, also those that ask
// for the price each time.
func TestHostilePayingClients(t *testing.T) {
	x := newTrial(t)
	senders := make([]*agent, 16)
	for i := range senders {
		senders[i] = x.agent(fmt.Sprintf("paying_%d", i))
	}
	attacker := x.attacker()
	attacker.paying = true
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), hostileTime(t))
	defer cancel()
	flood(ctx, 64, 20_000, func(_ context.Context, worker, round int) {
		sender, to := senders[worker%16], senders[(worker+1)%16]
		if worker%2 == 0 {
			if r, err := attacker.do(t.Context(), http.MethodPost, x.s.url+sendPath, ""); err != nil || r.Status != http.StatusPaymentRequired {
				x.complain("the price", "%v %v, want 402", r, err)
			}
		}
		content := fmt.Sprintf("paid, %d of %d", round, worker)
		x.mu.Lock()
		x.contents[content] = true
		x.mu.Unlock()
		r, err := attacker.send(t.Context(), x.s, forged(sender.wallet, sender.key, sendPath, fmt.Sprintf(`{"recipient_agent_id":%q,"content":%q}`, to.id, content)))
		if err != nil || r.Status != http.StatusOK {
			x.complain("a paid call", "%v %v, want 200", r, err)
		}
	})
	t.Logf("64 paying clients: %s in %s", x.tally, time.Since(began))
	x.check()
}

// limited checks what a 429 says, once.
func (x *trial) limited(once *sync.Once, r testkit.Reply) {
	if r.Status != http.StatusTooManyRequests {
		return
	}
	once.Do(func() {
		if r.Code != "rate_limited" || r.Charged {
			x.t.Errorf("429: %v, want rate_limited, not charged", r)
		}
		for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy"} {
			if r.Header.Get(name) == "" {
				x.t.Errorf("429 without %s: %v", name, r.Header)
			}
		}
	})
}

// TestHostilePriceInquiries: a client that only asks for prices is limited, whatever it says about where it comes from.
func TestHostilePriceInquiries(t *testing.T) {
	x := newTrial(t)
	x.withHonest()
	attacker := x.attacker()
	var once sync.Once
	x.measure("1,000 price inquiries a second", func(ctx context.Context) {
		paced(ctx, 1000, func(ctx context.Context, round int) {
			claimed := fmt.Sprintf("198.51.%d.%d", round/250%250, round%250)
			r, err := attacker.do(ctx, http.MethodPost, x.s.url+sendPath, "", "X-Forwarded-For", claimed, "Forwarded", "for="+claimed,
				"X-Real-Ip", claimed, "Cf-Connecting-Ip", claimed, "True-Client-Ip", claimed)
			if err != nil || ctx.Err() != nil {
				return
			}
			if r.Status != http.StatusPaymentRequired && r.Status != http.StatusTooManyRequests {
				x.complain("a price inquiry", "%v, want 402 or 429", r)
			}
			x.limited(&once, r)
		})
	})
	if x.tally.status(http.StatusTooManyRequests) == 0 {
		t.Errorf("nobody limited %s", x.tally)
	}
	x.ask(http.MethodPost, sendPath, "").Want(t, "the price for another address", 402)
	x.check()
}

// TestHostileFreeOperations: what is free is limited, too.
func TestHostileFreeOperations(t *testing.T) {
	x := newTrial(t)
	x.withHonest()
	attacker := x.attacker()
	attacker.paying = true // the contract is larger than 64 KiB, and for everybody
	paths := []string{"/", "/health", "/skill", "/openapi.json", "/openapi.yaml", "/llms.txt", "/skill.md", "/.well-known/agent-card.json", "/nowhere"}
	var once sync.Once
	x.measure("free operations, 1,000 a second", func(ctx context.Context) {
		paced(ctx, 1000, func(ctx context.Context, round int) {
			if r, err := attacker.do(ctx, http.MethodGet, x.s.url+paths[round%len(paths)], ""); err == nil && ctx.Err() == nil {
				x.limited(&once, r)
			}
		})
	})
	if x.tally.status(http.StatusTooManyRequests) == 0 {
		t.Errorf("nobody limited %s", x.tally)
	}
	x.check()
}

// TestHostileWrongKeys: keys that do not exist, well formed or not, from one address.
func TestHostileWrongKeys(t *testing.T) {
	x := newTrial(t)
	x.withHonest()
	real := x.agent("keyed")
	attacker := x.attacker()
	var once sync.Once
	orders := prepared(5_000, func(i int) order {
		return forged(testkit.NewKey(), wrongKey(real.key, i), "/agent/me", "")
	})
	x.measure("wrong API keys", func(ctx context.Context) {
		flood(ctx, 8, 20_000, func(ctx context.Context, worker, round int) {
			r, err := attacker.send(ctx, x.s, orders[(worker+8*round)%len(orders)])
			if err != nil || ctx.Err() != nil {
				return
			}
			if r.Status == http.StatusOK {
				x.complain("a wrong key opens", "%v", r)
			}
			x.limited(&once, r)
		})
	})
	if x.tally.status(http.StatusTooManyRequests) == 0 {
		t.Errorf("nobody limited %s", x.tally)
	}
	x.check()
}

// wrongKey is a key of the right form, checksum included, or one with a letter changed.
func wrongKey(real string, i int) string {
	if i%2 == 0 {
		return real[:20] + string(rune('A'+i%26)) + real[21:]
	}
	return testkit.UnknownKey(i)
}

// TestHostileJunkSignatures: a signature of 65 bytes that no key made may be a smart wallet's, which only the chain knows.
// Asking it is cached and bounded.
func TestHostileJunkSignatures(t *testing.T) {
	x := newTrial(t)
	x.withHonest()
	attacker := x.attacker()
	junk := func(random *rand.Rand, from string) order {
		return forged(testkit.NewKey(), "", requestPath, fmt.Sprintf(`{"requested_username":"junk_%d"}`, random.Uint32()), func(p *x402.PaymentPayload) {
			p.Payload.Authorization.From = from
			signature := make([]byte, 65)
			for i := range signature {
				signature[i] = byte(random.Uint32())
			}
			signature[0], signature[32], signature[64] = 1, 1, 27 // within the curve's order, low s
			p.Payload.Signature = "0x" + hex.EncodeToString(signature)
		})
	}
	from := testkit.Address(testkit.NewKey())
	before, random := x.watch.codeLookups(), rand.New(rand.NewPCG(11, 11))
	for range 100 {
		o := junk(random, from)
		if r := x.tell(o); r.Status == http.StatusOK {
			t.Errorf("a junk signature: %v", r)
		}
	}
	if n := x.watch.codeLookups() - before; n > 5 {
		t.Errorf("100 junk signatures of one wallet cost %d calls of eth_getCode, want at most 5", n)
	}
	before = x.watch.codeLookups()
	_, settles, _ := x.watch.asked()
	began := time.Now()
	orders := prepared(10_000, func(i int) order {
		return junk(rand.New(rand.NewPCG(11, uint64(i))), testkit.Address(testkit.NewKey()))
	})
	x.measure("junk signatures of 65 bytes", func(ctx context.Context) {
		flood(ctx, 8, 20_000, func(ctx context.Context, worker, round int) {
			_, _ = attacker.send(ctx, x.s, orders[(worker+8*round)%len(orders)])
		})
	})
	if n, most := x.watch.codeLookups()-before, x.bound(time.Since(began)); n > most {
		t.Errorf("%d calls of eth_getCode, want at most %d", n, most)
	}
	_, after, _ := x.watch.asked()
	if honest := x.Count("SELECT count(*) FROM payments WHERE operation = 'sendPrivateMessage'"); after-settles > honest {
		t.Errorf("%d calls of /settle for %d honest calls", after-settles, honest)
	}
	x.check()
}

// TestHostileHealth: 200 clients that ask how the service is, with a database that is 20 ms away. It is never degraded.
func TestHostileHealth(t *testing.T) {
	x := newTrial(t)
	database := newDatabaseProxy(t, x.DatabaseURL)
	database.delay = 20 * time.Millisecond
	x.s, x.rate = x.another("--database-url", database.url), 4
	x.withHonest()
	callers := make([]*caller, 200)
	for i := range callers {
		callers[i] = x.fresh()
	}
	x.measure("200 clients ask for /health", func(ctx context.Context) {
		flood(ctx, len(callers), 5_000, func(ctx context.Context, worker, _ int) {
			r, err := callers[worker].do(ctx, http.MethodGet, x.s.url+"/health", "")
			if err == nil && r.Status != http.StatusOK && r.Status != http.StatusTooManyRequests {
				x.complain("/health", "%v, want 200 or 429", r)
			}
		})
	})
	if x.tally.status(http.StatusOK) == 0 {
		t.Error("nobody learned how the service is")
	}
	x.check()
}
