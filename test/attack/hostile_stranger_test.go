//go:build attack

package attack

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-chat/parley/x402/x402test"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// stranger has everything that is public: what the chain shows, usernames, descriptions, ids, the contract; and accounts
// and empty wallets of its own.
type stranger struct {
	*trial
	public   []*x402.PaymentPayload // settled, with the terms; without extensions, which never reach the chain
	byPrice  map[string][]string    // paths by price in atomic units
	ids      map[string][]string    // values by the field's name
	schemas  map[string]*openapi3.Schema
	paths    []string
	accounts []string // API keys of its own
	secrets  []string // of others
	lost     []lostResponse
	victims  []*agent

	statuses sync.Map // status to *atomic.Int64
}

// TestHostileStranger makes generated tries (HOSTILE_TRIES, 10,000 by default) over all operations. None may bring a TAN, a
// key, a message of somebody else, an effect, or money.
func TestHostileStranger(t *testing.T) {
	tries := 10_000
	if text := os.Getenv("HOSTILE_TRIES"); text != "" {
		var err error
		if tries, err = strconv.Atoi(text); err != nil || tries < 1 {
			t.Fatalf("HOSTILE_TRIES is %q, want a number from 1", text)
		}
	}
	seed := uint64(20261122)
	if text := os.Getenv("ATTACK_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("ATTACK_SEED is %q, want a number", text)
		}
	}
	z := newStranger(t)
	before, payments, balances := z.tables(), z.Count("SELECT count(*) FROM payments"), z.balances()
	z.resetPeak()
	began := time.Now()
	var next atomic.Int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for i := next.Add(1); i <= int64(tries) && t.Context().Err() == nil; i = next.Add(1) {
				z.try(rand.New(rand.NewPCG(seed, uint64(i))), int(i))
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	z.check()

	if after := z.tables(); after != before {
		t.Errorf("the stranger had an effect:\nbefore %s\nafter  %s", before, after)
	}
	if after := z.Count("SELECT count(*) FROM payments"); after != payments {
		t.Errorf("the stranger left %d rows of payments", after-payments)
	}
	if after := z.balances(); !maps.Equal(after, balances) {
		t.Errorf("money moved: %v, before %v", after, balances)
	}
	statuses, looked := map[int]int{}, 0
	z.statuses.Range(func(status, n any) bool {
		statuses[status.(int)] = int(n.(*atomic.Int64).Load())
		return true
	})
	for status, n := range statuses {
		if status != http.StatusTooManyRequests && status != 0 {
			looked += n
		}
	}
	if looked < tries/2 {
		t.Errorf("only %d of %d tries were looked at: %v", looked, tries, statuses)
	}
	t.Logf("%d tries in %s (seed %d): %v; peak RSS %d MiB", tries, took.Round(time.Millisecond), seed, statuses, z.peak()>>20)
	z.tally.mu.Lock()
	largest := z.tally.largest
	z.tally.mu.Unlock()
	if largest > maxResponse {
		t.Errorf("the largest response has %d bytes (%s)", largest, z.tally.what)
	}
	if peak := z.peak(); peak > maxMemory {
		t.Errorf("the server's peak RSS is %d MiB, want at most %d", peak>>20, maxMemory>>20)
	}
	report(t, measurement{attack: fmt.Sprintf("a stranger's %d generated tries", tries), took: took, tally: statusList(statuses), requests: tries, peak: z.peak(), largest: largest})
	z.ownersGoOn()
}

// lostResponse is one whose owner has not seen it: its secret has not served.
type lostResponse struct {
	order
	secret string
}

// newStranger makes a world with something in it, and a stranger who reads what is public of it.
func newStranger(t *testing.T) *stranger {
	t.Helper()
	x := newTrial(t)
	z := &stranger{trial: x, byPrice: map[string][]string{}, ids: map[string][]string{}, schemas: map[string]*openapi3.Schema{}}
	for path, o := range operations {
		z.paths = append(z.paths, path)
		z.byPrice[fmt.Sprint(o.price)] = append(z.byPrice[fmt.Sprint(o.price)], path)
		if body := testkit.Operations[o.method+" "+path].Operation.RequestBody; body != nil {
			z.schemas[path] = body.Value.Content["application/json"].Schema.Value
		}
	}
	slices.Sort(z.paths)
	for _, paths := range z.byPrice {
		slices.Sort(paths)
	}

	z.makeTalks()
	z.loseResponses()
	z.readPublic()
	for i := range 12 {
		a := x.agent(fmt.Sprintf("stranger_%d", i))
		z.accounts = append(z.accounts, a.key)
		z.ids["agent_id"] = append(z.ids["agent_id"], a.id)
	}
	z.tally.largest = 0
	return z
}

// do sends an order that must succeed, and keeps the ids of its response.
func (z *stranger) do(o order) testkit.Reply {
	z.t.Helper()
	r := z.tell(o)
	if r.Status != http.StatusOK {
		z.t.Fatalf("%s: %v", o.id, r)
	}
	for _, field := range []string{"chat_id", "channel_id", "message_id"} {
		if id := r.Text(field); id != "" {
			z.ids[field] = append(z.ids[field], id)
		}
	}
	return r
}

// makeTalks lets three agents have conversations of all kinds.
func (z *stranger) makeTalks() {
	z.t.Helper()
	alice, bob, carol := z.agent("alice"), z.agent("bob"), z.agent("carol")
	z.victims = []*agent{alice, bob, carol}
	for _, a := range z.victims {
		z.ids["agent_id"] = append(z.ids["agent_id"], a.id)
		z.ids["username"] = append(z.ids["username"], a.name)
	}
	z.do(alice.says(bob, "private"))
	z.do(bob.says(alice, "private"))
	z.do(carol.says(alice, "private"))
	group := z.do(z.order(alice.wallet, alice.key, "/chat/group/create", map[string]any{"name": "Secret group", "initial_member_ids": []string{bob.id}})).Text("chat_id")
	z.do(z.order(alice.wallet, alice.key, "/chat/group/send", map[string]any{"chat_id": group, "content": z.content("in the group")}))
	channel := z.do(z.order(carol.wallet, carol.key, "/channel/create", map[string]any{"name": "Channel", "is_discoverable": true})).Text("channel_id")
	z.do(z.order(carol.wallet, carol.key, "/channel/send", map[string]any{"channel_id": channel, "content": z.content("in the channel")}))
	z.do(z.order(bob.wallet, bob.key, "/channel/subscribe", map[string]any{"channel_id": channel}))
	z.do(z.order(bob.wallet, bob.key, "/message/react", map[string]any{"message_id": z.ids["message_id"][0], "emoji": "👍"}))
	z.do(z.order(bob.wallet, bob.key, "/agent/edit", map[string]any{"description": "Bob, edited."}))
}

// loseResponses makes payments whose responses their owners have not seen.
func (z *stranger) loseResponses() {
	z.t.Helper()
	carol := z.victims[2]
	// Owners whose responses were lost: nobody has used the TAN, the account's key, the new key.
	for id, o := range z.secretOrders(carol, "lost", testkit.Identified("the_identifier_of_a_lost_response")) {
		r := z.tell(o)
		if r.Status != http.StatusOK {
			z.t.Fatalf("%s: %v", id, r)
		}
		z.lost = append(z.lost, lostResponse{o, secretOf(r)})
		z.keep(secretOf(r))
	}
	z.ids["username"] = append(z.ids["username"], "requested_lost", "created_lost")
	// A registration payment that settled and was then refused.
	undeliverable := z.order(z.Wallet(testkit.Dollar), "", requestPath, map[string]any{"requested_username": "raced"})
	r := z.proxy.whileSettling(z.t, true, func(ctx context.Context) (testkit.Reply, error) { return z.fresh().send(ctx, z.s, undeliverable) }, func() {
		z.do(z.order(z.Wallet(testkit.Dollar), "", requestPath, map[string]any{"requested_username": "raced"}))
	})
	if !r.Charged {
		z.t.Fatalf("the raced registration: %v, want it charged", r)
	}
	z.ids["username"] = append(z.ids["username"], "raced")
}

// readPublic reads what the chain shows, and what must stay secret.
func (z *stranger) readPublic() {
	z.t.Helper()
	z.watch.mu.Lock()
	for _, p := range z.watch.public {
		value, err := strconv.ParseUint(p.Payload.Authorization.Value, 10, 64)
		if err != nil {
			z.t.Fatal(err)
		}
		p.Accepted = testkit.PlayMoney.Requirements(value, devnet.Payee, 60)
		z.public = append(z.public, p)
	}
	z.watch.mu.Unlock()
	for _, secret := range z.Known() {
		if !strings.HasPrefix(secret, "0x") && len(secret) < 200 { // signatures and payments are public
			z.secrets = append(z.secrets, secret)
		}
	}
}

// balances are those of the payee and of everybody who ever paid.
func (z *stranger) balances() map[string]uint64 {
	balances := map[string]uint64{devnet.Payee: z.Revenue()}
	for _, p := range z.public {
		balances[p.Payload.Authorization.From] = z.Ledger.Balance(p.Payload.Authorization.From)
	}
	return balances
}

// try is one generated request.
func (z *stranger) try(r *rand.Rand, number int) {
	if r.IntN(25) == 0 {
		z.tryFacilitator(r)
		return
	}
	public := z.public[r.IntN(len(z.public))]
	path := z.paths[r.IntN(len(z.paths))]
	if r.IntN(10) < 7 { // where the payment has the right price
		paths := z.byPrice[public.Payload.Authorization.Value]
		path = paths[r.IntN(len(paths))]
	}
	if r.IntN(4) == 0 { // most is to be had at the registration
		path = []string{requestPath, createPath, rotatePath}[r.IntN(3)]
		for _, p := range z.public {
			if p.Payload.Authorization.Value == fmt.Sprint(operations[path].price) {
				if public = p; r.IntN(3) == 0 {
					break
				}
			}
		}
	}
	operation := operations[path]
	headers := z.payment(r, public, path)
	switch r.IntN(4) {
	case 0:
	case 1:
		headers = append(headers, "X-API-KEY", wrongKey(z.accounts[0], r.IntN(1000)))
	default:
		headers = append(headers, "X-API-KEY", z.accounts[r.IntN(len(z.accounts))])
	}
	body := ""
	if schema := z.schemas[path]; schema != nil && r.IntN(12) > 0 {
		raw, err := json.Marshal(z.value(r, "", schema))
		if err != nil {
			z.t.Error(err)
			return
		}
		body = string(raw)
	}
	c := newCaller(fmt.Sprintf("127.%d.%d.%d", 50+number/62500, number/250%250, 1+number%250), z.tally)
	defer c.http.CloseIdleConnections()
	reply, err := c.do(z.t.Context(), operation.method, z.s.url+path, body, append(headers, "Connection", "close")...)
	counter, _ := z.statuses.LoadOrStore(reply.Status, new(atomic.Int64))
	counter.(*atomic.Int64).Add(1)
	if err != nil {
		z.complain("no response", "%v", err)
		return
	}
	switch {
	case reply.Status == http.StatusOK:
		z.complain("a stranger succeeds at "+path, "%.300s: %.300s", body, reply.Body)
	case reply.Status >= 500 && reply.Status != http.StatusServiceUnavailable:
		z.complain(fmt.Sprintf("%d at %s", reply.Status, path), "%.300s: %v", body, reply)
	case reply.Charged:
		z.complain("a stranger is charged at "+path, "%v", reply)
	}
	for _, secret := range z.secrets {
		if strings.Contains(string(reply.Body), secret) || strings.Contains(fmt.Sprint(reply.Header), secret) {
			z.complain("a stranger learns a secret at "+path, "%q in %.300s", secret, reply.Body)
		}
	}
}

// tryFacilitator brings a settled authorization to the facilitator again, as it is or changed.
func (z *stranger) tryFacilitator(r *rand.Rand) {
	p := *z.public[r.IntN(len(z.public))]
	value, _ := strconv.ParseUint(p.Payload.Authorization.Value, 10, 64)
	requirements := testkit.PlayMoney.Requirements(value, devnet.Payee, 60)
	z.mutate(r, &p)
	if r.IntN(2) == 0 {
		requirements = p.Accepted
	}
	settled, err := (&x402.Facilitator{BaseURL: z.proxy.url}).Settle(z.t.Context(), &p, requirements)
	if err == nil && settled.Success {
		z.complain("the facilitator settles twice", "%+v", settled)
	}
	counter, _ := z.statuses.LoadOrStore(atFacilitator, new(atomic.Int64))
	counter.(*atomic.Int64).Add(1)
}

// payment makes the payment headers of a try.
func (z *stranger) payment(r *rand.Rand, public *x402.PaymentPayload, path string) (headers []string) {
	p := *public
	if r.IntN(2) == 0 {
		p.Accepted = testkit.PlayMoney.Requirements(operations[path].price, devnet.Payee, 60)
	}
	if r.IntN(2) == 0 {
		z.mutate(r, &p)
	}
	if r.IntN(4) == 0 {
		p.Extensions = forged(testkit.NewKey(), "", path, "", testkit.Identified(fmt.Sprintf("the_identifier_of_a_guess_%d", r.IntN(50)))).payment.Extensions
	}
	v2, err := x402.EncodePaymentPayload(&p)
	if err != nil {
		return nil
	}
	v1, err := x402test.EncodePaymentPayloadV1(&p, testkit.PlayMoney.V1Name)
	if err != nil {
		return nil
	}
	switch r.IntN(12) {
	case 0: // the headers swapped
		return []string{x402.HeaderPaymentSignature, v1}
	case 1:
		return []string{x402.HeaderPaymentV1, v2}
	case 2:
		return []string{x402.HeaderPaymentV1, v1, x402.HeaderPaymentSignature, v2}
	case 3:
		return []string{x402.HeaderPaymentSignature, v2, x402.HeaderPaymentSignature, v2}
	case 4, 5:
		return []string{x402.HeaderPaymentV1, v1}
	case 6: // an empty wallet of its own
		return []string{x402.HeaderPaymentSignature, forged(testkit.NewKey(), "", path, "").header}
	case 7:
		raw, _ := base64.StdEncoding.DecodeString(v2)
		raw[r.IntN(len(raw))] ^= byte(1 + r.IntN(255))
		return []string{x402.HeaderPaymentSignature, base64.StdEncoding.EncodeToString(raw)}
	}
	return []string{x402.HeaderPaymentSignature, v2}
}

// mutate changes something of a payment, or signs it with a wallet of the stranger's.
func (z *stranger) mutate(r *rand.Rand, p *x402.PaymentPayload) {
	a := &p.Payload.Authorization
	switch r.IntN(11) {
	case 0:
		a.From = testkit.Address(testkit.NewKey())
	case 1:
		a.To = testkit.Address(testkit.NewKey())
	case 2:
		a.Value = fmt.Sprint(r.IntN(1_000_000))
	case 3:
		a.ValidBefore = fmt.Sprint(time.Now().Unix() + int64(r.IntN(100_000)))
	case 4:
		a.ValidAfter = fmt.Sprint(r.IntN(1000))
	case 5:
		a.Nonce = "0x" + strings.Repeat(fmt.Sprintf("%02x", r.IntN(256)), 32)
	case 6:
		a.Nonce = strings.ToUpper(a.Nonce[:2]) + a.Nonce[2:]
	case 7: // its letters in another case are the same bytes
		a.Nonce, a.From = "0x"+strings.ToUpper(a.Nonce[2:]), "0x"+strings.ToUpper(a.From[2:])
		p.Payload.Signature = "0x" + strings.ToUpper(p.Payload.Signature[2:])
	case 8:
		p.Payload.Signature += strings.Repeat("00", r.IntN(64))
	case 9:
		p.Accepted.PayTo = a.From
	case 10:
		key := testkit.NewKey()
		a.From = testkit.Address(key)
		if domain, err := x402.DomainOf(testkit.PlayMoney.Requirements(1, devnet.Payee, 60)); err == nil {
			p.Payload.Signature, _ = x402.SignAuthorization(key, domain, *a)
		}
	}
}

// value generates what a schema describes, with what is public where a field is named so.
func (z *stranger) value(r *rand.Rand, field string, schema *openapi3.Schema) any {
	pick := func(of string) any { return z.ids[of][r.IntN(len(z.ids[of]))] }
	switch {
	case schema.Type.Is("object"):
		object := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
			if slices.Contains(schema.Required, name) || r.IntN(3) == 0 {
				object[name] = z.value(r, name, schema.Properties[name].Value)
			}
		}
		return object
	case schema.Type.Is("array"):
		list := []any{}
		for range r.IntN(3) {
			list = append(list, z.value(r, strings.TrimSuffix(field, "s"), schema.Items.Value))
		}
		return list
	case schema.Type.Is("boolean"):
		return r.IntN(2) == 0
	case schema.Type.Is("integer"):
		return []int{1, 2, 50, 100}[r.IntN(4)]
	}
	switch {
	case field == "tan":
		const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
		text := make([]byte, 8)
		for i := range text {
			text[i] = crockford[r.IntN(len(crockford))]
		}
		return string(text)
	case strings.HasSuffix(field, "username"):
		if r.IntN(3) == 0 {
			return fmt.Sprintf("loot_%d", r.IntN(1000))
		}
		return pick("username")
	case field == "chat_id", field == "channel_id":
		return pick(field)
	case strings.Contains(field, "message_id"):
		return pick("message_id")
	case strings.HasSuffix(field, "_id"):
		return pick("agent_id")
	case field == "emoji":
		return "👍"
	case field == "query":
		return []string{".", "private", "Secret", "alice", "confidential"}[r.IntN(5)]
	case field == "description":
		return []string{"I am alice.", "I am created_lost.", "I am bob."}[r.IntN(3)]
	}
	return "a stranger was here"
}

// ownersGoOn checks that owners get the responses that they lost, and that nobody is limited for what the stranger did with
// its payments.
func (z *stranger) ownersGoOn() {
	z.t.Helper()
	for _, a := range z.victims[:2] { // the third one's key was rotated, and it has not heard so
		z.tell(z.order(a.wallet, a.key, "/agent/me", nil)).Want(z.t, a.name+", whose payments the stranger used", 200)
	}
	revenue := z.Revenue()
	for _, o := range z.lost {
		if r := z.tell(o.order); r.Status != http.StatusOK || secretOf(r) != o.secret {
			z.t.Errorf("%s: the owner asks for its lost response: %d %s, want 200 with the secret", o.id, r.Status, r.Code)
		}
	}
	if z.Revenue() != revenue {
		z.t.Errorf("lost responses were charged again: %d", z.Revenue()-revenue)
	}
}
