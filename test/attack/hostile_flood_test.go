//go:build attack

package attack

import (
	"context"
	"crypto/ecdsa"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

const (
	requestPath = "/register/request_account"
	listPath    = "/chat/private/messages"
)

// flooding is an attack by many requests that its attacker has prepared.
type flooding struct {
	name    string
	workers int // at the same time
	orders  func(x *trial) []order
	empty   bool // the payments are good, and the wallets have no money
	free    bool // 200 is right
	limited bool // the attacker must be told to wait
}

var floodings = []flooding{
	{name: "bodies of 240 KB with an error in each element", workers: 8, orders: func(*trial) []order { return wrongBodies() }},
	{name: "empty wallets send 16,384 characters of four bytes", workers: 8, empty: true, orders: func(x *trial) []order {
		sender, to := x.s.agent("sender"), x.s.agent("recipient")
		body := fmt.Sprintf(`{"recipient_agent_id":%q,"content":%q}`, to.id, wide(0))
		return prepared(5_000, func(int) order { return forged(testkit.NewKey(), sender.key, sendPath, body) })
	}},
	{name: "24 unpaid reads of a page of 16 MB", workers: 24, empty: true, orders: func(x *trial) []order {
		reader, chat := x.wideChat()
		return prepared(5_000, func(int) order { return forged(testkit.NewKey(), reader.key, listPath, pageOf(chat)) })
	}},
	{name: "one paid page, repeated by 24", workers: 24, free: true, orders: func(x *trial) []order {
		reader, chat := x.wideChat()
		return []order{forged(reader.wallet, reader.key, listPath, pageOf(chat))}
	}},
	// The expression takes the matcher long and finds nothing in a chat of long messages.
	{name: "one paid search, repeated by 24", workers: 24, free: true, orders: func(x *trial) []order {
		reader, chat := x.wideChat()
		return []order{forged(reader.wallet, reader.key, searchPath,
			fmt.Sprintf(`{"chat_id":%q,"query":"(\\w?){100}[z]{3}|(x|xx)*(y|yy)*[q]{2}"}`, chat))}
	}},
	// Messages with all trigrams of a query that they do not match, which the database compares with sixteen long patterns each.
	{name: "searches that the index cannot answer", workers: 100, free: true, orders: func(x *trial) []order {
		reader, chat := x.largeChat(150, func(n int) string {
			return fmt.Sprintf("%06d ", n) + strings.Repeat(strings.Repeat("a", 240)+"b", 67)
		})
		wallet, body := x.Wallet(100*testkit.Dollar), fmt.Sprintf(`{"chat_id":%q,"query":%q}`, chat, "(a?a?a?a?)"+strings.Repeat("a", 241)+"b")
		return prepared(2_000, func(int) order { return forged(wallet, reader.key, searchPath, body) })
	}},
	// Each is tried with its locks and a row for each id, and refused in its last step.
	{name: "changes that are refused", workers: 100, limited: true, orders: func(x *trial) (orders []order) {
		others := make([]string, 50)
		for i := range others {
			others[i] = x.s.agent(fmt.Sprintf("banned_%d", i)).id
		}
		blocker := x.s.agent("blocker")
		for i := range 2 {
			admin := x.s.agent(fmt.Sprintf("admin_%d", i))
			group := x.s.pay(x.order(admin.wallet, admin.key, "/chat/group/create", map[string]any{"name": "x"})).Text("chat_id")
			x.s.pay(x.order(blocker.wallet, blocker.key, "/agent/block", map[string]any{"agent_id": admin.id}))
			orders = append(orders, x.order(admin.wallet, admin.key, "/chat/group/edit", map[string]any{"chat_id": group,
				"ban_agent_ids": others, "add_member_ids": []string{blocker.id}}))
		}
		return orders
	}},
	{name: "empty wallets ask for usernames", workers: 8, empty: true, orders: func(*trial) []order {
		return prepared(10_000, func(i int) order {
			return forged(testkit.NewKey(), "", requestPath, fmt.Sprintf(`{"requested_username":"flood_%d"}`, i))
		})
	}},
	{name: "price inquiries that claim to come from elsewhere", workers: 8, limited: true, orders: func(*trial) []order {
		orders := make([]order, 1000)
		for i := range orders {
			claimed := fmt.Sprintf("198.51.%d.%d", i/250, i%250)
			orders[i] = order{operation: operations[sendPath], headers: []string{"X-Forwarded-For", claimed, "Forwarded", "for=" + claimed,
				"X-Real-Ip", claimed, "Cf-Connecting-Ip", claimed, "True-Client-Ip", claimed}}
		}
		return orders
	}},
	{name: "free operations", workers: 8, free: true, limited: true, orders: func(*trial) (orders []order) {
		for _, path := range []string{"/", "/health", "/skill", "/openapi.json", "/openapi.yaml", "/llms.txt", "/skill.md",
			"/.well-known/agent-card.json", "/nowhere"} {
			orders = append(orders, order{operation: operation{method: http.MethodGet, path: path}})
		}
		return orders
	}},
	{name: "wrong API keys", workers: 8, limited: true, orders: func(x *trial) []order {
		keyed := x.s.agent("keyed")
		return prepared(5_000, func(i int) order {
			key := testkit.UnknownKey(i) // its checksum is right
			if i%2 == 0 {
				key = keyed.key[:20] + string(rune('A'+i%26)) + keyed.key[21:]
			}
			return forged(testkit.NewKey(), key, mePath, "")
		})
	}},
	{name: "a recent payer is named", workers: 8, orders: func(x *trial) []order {
		payer := x.s.agent("recent")
		return prepared(2_000, func(i int) order {
			return forged(payer.wallet, testkit.UnknownKey(i), mePath, "",
				func(p *x402.PaymentPayload) { p.Payload.Signature = "0x" + strings.Repeat("11", 65) })
		})
	}},
	// Only the facilitator can judge a contract's signature.
	{name: "contracts named as wallets", workers: 8, empty: true, limited: true, orders: func(*trial) []order {
		contracts := []string{x402.BatchSettlementContract, testkit.Offer(1).Accepts[0].Asset}
		return prepared(5_000, func(i int) order {
			return forged(testkit.NewKey(), "", requestPath, fmt.Sprintf(`{"requested_username":"contract_%d"}`, i),
				func(p *x402.PaymentPayload) { p.Payload.Authorization.From = contracts[i%len(contracts)] })
		})
	}},
	// Each may be a smart wallet's, which only the chain knows.
	{name: "junk signatures of 65 bytes", workers: 8, orders: func(*trial) []order {
		return prepared(10_000, func(i int) order { return junkSigned(rand.New(rand.NewPCG(11, uint64(i)))) }) //nolint:gosec // no secret
	}},
}

// TestHostileFloods: whatever an attacker sends without paying, or having paid once, honest callers do not wait for it,
// and it takes neither
// much memory nor many calls of the facilitator and of the chain's endpoint.
func TestHostileFloods(t *testing.T) {
	x := newTrial(t)
	for _, f := range floodings {
		t.Run(f.name, func(t *testing.T) {
			x.moveOn(t)
			registrations := x.Count("SELECT count(*) FROM registrations")
			orders := f.orders(x)
			attacker := x.attacker()
			attacker.paying = f.free
			began := time.Now()
			x.measure(f.name, func(ctx context.Context) {
				flood(ctx, f.workers, 20_000, func(ctx context.Context, worker, round int) {
					r, err := attacker.send(ctx, x.s, orders[(worker+f.workers*round)%len(orders)])
					switch {
					case err != nil || ctx.Err() != nil:
					case r.Status == http.StatusOK && !f.free:
						x.complain("not paid for", "%.300v", r)
					case r.Status == http.StatusTooManyRequests && (r.Code != "rate_limited" || r.Charged || r.Header.Get("Retry-After") == ""):
						x.complain("a 429", "%v %v, want rate_limited with Retry-After, not charged", r, r.Header)
					}
				})
			})
			if f.limited && x.tally.statuses[http.StatusTooManyRequests] == 0 {
				t.Errorf("nobody limited %s", x.tally)
			}
			if f.empty {
				x.leftNothing(orders)
			}
			if n := x.Count("SELECT count(*) FROM registrations") - registrations; n > 0 {
				t.Errorf("%d registrations are left", n)
			}
			// What strangers may cause is a burst, and then ten calls a second, which ask twice at most.
			if most := 200 + int(20*time.Since(began).Seconds()); x.unsettled > most {
				t.Errorf("%d calls of /verify and of the chain's endpoint beside those for settlements, want at most %d", x.unsettled, most)
			}
			x.check()
		})
	}
}

// leftNothing checks that payments of empty wallets were not sent to /settle and left no row.
func (x *trial) leftNothing(orders []order) {
	x.T.Helper()
	wallets, settles := make([]string, len(orders)), 0
	for i, o := range orders {
		wallets[i] = strings.ToLower(o.payment.Payload.Authorization.From)
		settles += x.proxy.count("/settle by " + wallets[i])
	}
	if settles > 0 {
		x.T.Errorf("%d calls of /settle for %d empty wallets, want none", settles, len(wallets))
	}
	if n := x.Count("SELECT count(*) FROM payments WHERE payer = ANY($1)", wallets); n > 0 {
		x.T.Errorf("%d rows of payments are left of %d empty wallets, want none", n, len(wallets))
	}
}

// wide is a message as long as the contract allows, of characters of four bytes.
func wide(number int) string { return fmt.Sprintf("%08d", number) + strings.Repeat("𝕏", 16_384-8) }

func pageOf(chat string) string { return fmt.Sprintf(`{"chat_id":%q,"n":250}`, chat) }

// wideChat is a chat of 250 messages as long as the contract allows. All attacks share it.
func (x *trial) wideChat() (reader *agent, chat string) {
	x.T.Helper()
	if x.reader == nil {
		x.reader, x.chat = x.largeChat(250, wide)
	}
	return x.reader, x.chat
}

// largeChat makes a chat of n messages.
func (x *trial) largeChat(n int, content func(number int) string) (reader *agent, chat string) {
	x.T.Helper()
	reader, writer := x.s.agent(fmt.Sprintf("reader_of_%d", n)), x.s.agent(fmt.Sprintf("writer_of_%d", n))
	paying := newCaller("127.0.0.9", nil)
	for number := range n {
		text := content(number)
		x.expect(text)
		raw, err := json.Marshal(map[string]any{"recipient_agent_id": reader.id, "content": text})
		testkit.NoError(x.T, err)
		r, err := paying.send(x.T.Context(), x.s, forged(writer.wallet, writer.key, sendPath, string(raw)))
		if err != nil || r.Status != http.StatusOK {
			x.T.Fatalf("message %d: %.300v %v", number, r, err)
		}
		chat = r.Text("chat_id")
	}
	return reader, chat
}

// wrongBodies are long bodies with many errors. They name a payment: without one, long bodies are not read.
func wrongBodies() (orders []order) {
	const size = 240_000
	elements := func(element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", size/(len(element)+1)), ",") + "]"
	}
	var fields strings.Builder
	for n := 0; fields.Len() < size-20; n++ {
		fmt.Fprintf(&fields, `,"f%d":0`, n)
	}
	bodies := []string{
		"{" + fields.String()[1:] + "}", fmt.Sprintf(`{"%s":0}`, strings.Repeat("x", size)), elements("0"), strings.Repeat("\xff", size),
		fmt.Sprintf(`{"content":%q}`, strings.Repeat("\x01", size/7)), `{"page":` + strings.Repeat("9", size) + `}`,
		strings.Repeat("[", size/2) + strings.Repeat("]", size/2), strings.Repeat(`{"a":`, size/6) + "0" + strings.Repeat("}", size/6),
	}
	for _, field := range []string{"initial_member_ids", "content"} {
		for _, element := range []string{`""`, "0", "null", `"agent_x"`, "[]", "{}"} {
			bodies = append(bodies, fmt.Sprintf(`{%q:%s}`, field, elements(element)))
		}
	}
	for _, path := range []string{"/chat/group/create", sendPath} {
		for _, body := range bodies {
			orders = append(orders, order{operation: operations[path], body: body, header: "x"})
		}
	}
	return orders
}

// junkSigned is an order whose signature no key made.
func junkSigned(random *rand.Rand) order {
	return forged(testkit.NewKey(), "", requestPath, fmt.Sprintf(`{"requested_username":"junk_%d"}`, random.Uint32()),
		func(p *x402.PaymentPayload) {
			p.Payload.Authorization.From = testkit.Address(testkit.NewKey())
			signature := make([]byte, 65)
			for i := range signature {
				signature[i] = byte(random.Uint32())
			}
			signature[0], signature[32], signature[64] = 1, 1, 27 // within the curve's order, low s
			p.Payload.Signature = "0x" + hex.EncodeToString(signature)
		})
}

// forged is an order that is good for six minutes and not noted as a secret: attacks make thousands.
func forged(wallet *ecdsa.PrivateKey, key, path, body string, changes ...func(*x402.PaymentPayload)) order {
	o := order{operation: operations[path], body: body}
	var err error
	o.payment, err = x402.Sign(context.Background(), x402.NewKeySigner(wallet), testkit.Offer(o.price).Accepts[0], nil, nil,
		time.Now().Add(5*time.Minute))
	if err != nil {
		panic(err)
	}
	for _, change := range changes {
		change(o.payment)
	}
	if o.header, err = x402.EncodePaymentPayload(o.payment); err != nil {
		panic(err)
	}
	if key != "" {
		o.headers = []string{"X-API-KEY", key}
	}
	return o
}
