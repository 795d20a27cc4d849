//go:build attack

package attack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-chat/parley/x402/x402test"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// account is a registered agent.
type account struct {
	name   string
	id     string // "" until it was told
	key    string
	locked bool // a rotation of its key has no reply yet

	rotations map[*request]bool // whose replies were read
}

// talk is a private chat, a group chat or a channel, as far as the actors know.
type talk struct {
	kind, name, id string
	admin          string // a username
	seats          map[string]bool
	recent         []said // the newest messages
}

type said struct{ id, marker string }

func (t *talk) add(id, marker string) {
	if t.recent = append(t.recent, said{id, marker}); len(t.recent) > 20 {
		t.recent = t.recent[1:]
	}
}

// request is what a payment pays for.
type request struct {
	operation
	by    *account // nil: for registration
	query string
	body  string
	deed
	learn func(r testkit.Reply) // what a 200 tells; the run's lock is held
	undo  func(r testkit.Reply) // what a refusal tells
}

// deed is what a request changes: an effect that there is once for each, and places with a value that others may change
// as well. All names are the test's own and never used twice, so that they can be found in the database.
type deed struct {
	effect  string
	touches []touch
}

type touch struct{ place, value string }

// payment is one authorization, and what its caller knows of it.
type payment struct {
	label       string // whose, in which step
	purse       *purse
	nonce       string
	operation   operation
	validBefore int64
	v1          bool
	header      string // PAYMENT-SIGNATURE, or X-PAYMENT
	otherHeader string // of the other version
	family      *family
	channel     *channel   // that pays, or nil
	deposit     uint64     // into it
	requests    []*request // that it was sent with

	sendings   int
	accepted   bool // a 200
	refused    bool // a 402
	freely     int  // other refusals
	charged    bool // "charged": true
	never      bool // it is not good: must never be settled
	doubleUsed bool // with another operation, which may return 402
	cancelled  bool
	unfinished bool     // the last reply was not final
	settlement string   // the transaction that a reply named
	redeemed   *payment // the payment out of which its caller was replied
	row        *row     // what the ledger says in the end
	replies    []string // when, with which status and code
	copies     bool     // several of it were sent at the same time
	open       bool     // a reply left the outcome open, or none came
}

// family are the authorizations of one payment identifier, or one without.
type family struct {
	payments []*payment
	reply    *[sha256.Size]byte // of the first 200; all others must be equal
}

// actor does one thing after the other.
type actor struct {
	r        *randomRun
	number   int
	chance   *rand.Rand // of this step
	label    string
	doing    string
	texts    int
	accounts []*account
	rich     []*purse
	poor     []*purse
	robbed   *purse
	channels *purse   // pays by payment channels only
	channel  *channel // the newest of them
	done     []sample // newest replies
	name     string   // requested, with its TAN
	tan      string
}

// enter registers the actors while all is calm.
func (r *randomRun) enter() []*actor {
	shared := []*purse{r.purse("shared one", 50_000, true), r.purse("shared two", 50_000, true)}
	players := make([]*actor, actors)
	var entering sync.WaitGroup
	for i := range players {
		a := &actor{r: r, number: i}
		players[i] = a
		a.rich = []*purse{r.purse(fmt.Sprintf("rich %d", i), 5000*testkit.Dollar, false),
			r.purse(fmt.Sprintf("other rich %d", i), 5000*testkit.Dollar, false)}
		a.poor = append([]*purse{r.purse(fmt.Sprintf("little %d", i), 30_000, true), r.purse(fmt.Sprintf("nothing %d", i), 0, true)}, shared...)
		a.channels = r.purse(fmt.Sprintf("channels %d", i), 5000*testkit.Dollar, false)
		a.robbed = r.purse(fmt.Sprintf("robbed %d", i), testkit.Dollar, true)
		entering.Go(func() {
			a.begin(0)
			for len(a.accounts) == 0 || a.accounts[0].id == "" {
				operationID := "requestAccount"
				if a.tan != "" {
					operationID = "createAccount"
				}
				by := &account{}
				if len(a.accounts) > 0 {
					operationID, by = "getOwnAgent", a.accounts[0]
				}
				q := a.build(operationID, by)
				if got, final := a.insist(a.pay(a.rich[0], q), q, 10); !final || got.Status != http.StatusOK {
					r.offence("actor %d enters: %v", i, got)
					return
				}
			}
		})
	}
	entering.Wait()
	if r.T.Failed() {
		r.T.FailNow()
	}
	return players
}

// begin begins a step: all that is random in it follows from the seed, the actor and the step's number.
func (a *actor) begin(number int) {
	a.chance = a.r.chance(fmt.Sprintf("actor %d", a.number), number)
	a.label = fmt.Sprintf("%d.%d", a.number, number)
	a.texts = 0
}

// marker is a text that there is once.
func (a *actor) marker() string {
	a.texts++
	return fmt.Sprintf("confidential %x.%s.%d", a.r.seed, a.label, a.texts)
}

var markerForm = regexp.MustCompile(`confidential [0-9a-f]+\.\d+\.\d+\.\d+`)

// text is a marker with some words around it.
func (a *actor) text() (text, marker string) {
	marker = a.marker()
	words := []string{"weather", "hotel", "Lisbon", "train", "naïve", "東京", "rain", "tomorrow", "%", "_", "\\"}
	text = marker + ":"
	for range a.chance.IntN(30) {
		text += " " + words[a.chance.IntN(len(words))]
	}
	return text, marker
}

type behaviour struct {
	name string
	do   func(a *actor, by *account, operationID string)
}

// behaviours are what an actor does with a payment.
var behaviours = []weighted[behaviour]{
	{520, behaviour{"pays once", paysOnce}},
	{350, behaviour{"pays by channel", (*actor).paysByChannel}},
	{15, behaviour{"refunds or withdraws", (*actor).refundsOrWithdraws}},
	{90, behaviour{"pays at several servers", pays((*actor).atSeveral)}},
	{60, behaviour{"changes the request", (*actor).changesTheRequest}},
	{70, behaviour{"names the payment", (*actor).namesThePayment}},
	{60, behaviour{"hangs up", pays((*actor).hangsUp)}},
	{40, behaviour{"cancels", pays((*actor).cancels)}},
	{50, behaviour{"pays wrongly", (*actor).paysWrongly}},
	{15, behaviour{"asks the price", (*actor).asksThePrice}},
	{20, behaviour{"pays in both versions", pays((*actor).inBothVersions)}},
	{75, behaviour{"repeats", (*actor).repeats}},
}

// step does one thing.
func (a *actor) step(number int) {
	a.begin(number)
	behaviour := pick(a.chance, behaviours)
	operationID := a.wanted()
	switch at := a.chance.IntN(400); {
	case at == 0:
		a.r.give(a.poor[0], uint64(5000+a.chance.IntN(60_000)))
	case at == 1:
		a.r.give(a.poor[2+a.chance.IntN(2)], 40_000)
	case at < 4:
		a.r.rob(a.robbed)
	case at < 7:
		a.r.give(a.robbed, uint64(a.chance.IntN(200_000)))
	}
	by := a.accounts[a.chance.IntN(len(a.accounts))]
	switch {
	case by.locked:
		operationID = "requestAccount"
	case by.id == "":
		operationID = "getOwnAgent"
	}
	a.doing = behaviour.name
	behaviour.do(a, by, operationID)
}

// purse picks who pays.
func (a *actor) purse() *purse {
	switch at := a.chance.IntN(100); {
	case at < 12:
		return a.poor[a.chance.IntN(len(a.poor))]
	case at < 22:
		return a.robbed
	}
	return a.rich[a.chance.IntN(len(a.rich))]
}

func (a *actor) server() *server { return a.r.servers[a.chance.IntN(len(a.r.servers))] }

var domain, _ = x402.DomainOf(testkit.PlayMoney.Requirements(1, devnet.Payee, 60))

// pay signs a payment for a request.
func (a *actor) pay(from *purse, q *request, changes ...func(*x402.PaymentPayload)) *payment {
	lifetime := 60
	if !from.poor && a.chance.IntN(5) == 0 {
		lifetime = 600
	}
	var nonce [32]byte
	for i := range nonce {
		nonce[i] = byte(a.chance.UintN(256))
	}
	p := &payment{
		label: "actor " + a.label + ", who " + a.doing, purse: from, nonce: "0x" + hex.EncodeToString(nonce[:]), operation: q.operation,
		v1: len(changes) == 0 && a.chance.IntN(12) == 0, validBefore: time.Now().Unix() + int64(lifetime),
	}
	p.family = &family{payments: []*payment{p}}
	if secret[q.path] {
		p.v1 = false // which has no extensions
		if len(changes) == 0 {
			changes = append(changes, testkit.Identified(fmt.Sprintf("own-%x-%s-%x", a.r.seed, strings.ReplaceAll(a.label, ".", "-"), nonce[:16])))
		}
	}
	offer := testkit.PlayMoney.Requirements(q.price, devnet.Payee, 60)
	payload := &x402.PaymentPayload{X402Version: x402.Version, Accepted: offer, Payload: x402.ExactPayload{Authorization: x402.Authorization{
		From: from.address, To: offer.PayTo, Value: offer.Amount, ValidAfter: "0", ValidBefore: strconv.FormatInt(p.validBefore, 10),
		Nonce: p.nonce,
	}}}
	for _, change := range changes {
		change(payload)
	}
	signature := payload.Payload.Signature
	var err error
	if payload.Payload.Signature, err = x402.SignAuthorization(from.key, domain, payload.Payload.Authorization); err != nil {
		a.r.offence("sign: %v", err)
	}
	if signature != "" { // a change that replaces the signature
		payload.Payload.Signature = signature
	}
	headers := [2]string{}
	if headers[0], err = x402.EncodePaymentPayload(payload); err != nil {
		a.r.offence("encode: %v", err)
	}
	if headers[1], err = x402test.EncodePaymentPayloadV1(payload, testkit.PlayMoney.V1Name); err != nil {
		a.r.offence("encode: %v", err)
	}
	if p.header, p.otherHeader = headers[0], headers[1]; p.v1 {
		p.header, p.otherHeader = headers[1], headers[0]
	}
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	a.r.payments = append(a.r.payments, p)
	return p
}

// final reports whether a reply is the last word, so that a good client stops. That a key is not good is none, since all
// actors know their keys: it is an offence (see note), and giving up would only make more of them.
func final(r testkit.Reply, err error) bool {
	return err == nil && r.Status != http.StatusServiceUnavailable && r.Status != http.StatusUnauthorized &&
		r.Code != "payment_in_progress" && r.Code != "rate_limited"
}

// send sends a request with a payment and notes what comes. It lasts 10 seconds at most.
func (r *randomRun) send(ctx context.Context, s *server, p *payment, q *request) (testkit.Reply, error) {
	return r.sendAs(ctx, s, p, q, p.v1)
}

func (r *randomRun) sendAs(ctx context.Context, s *server, p *payment, q *request, v1 bool) (testkit.Reply, error) {
	r.mu.Lock()
	if !slices.Contains(p.requests, q) {
		p.requests = append(p.requests, q)
	}
	p.sendings++
	key := ""
	if q.by != nil {
		key = q.by.key
	}
	r.mu.Unlock()
	header := p.header
	if v1 != p.v1 {
		header = p.otherHeader
	}
	got, err := r.exchange(ctx, s, q, key, header, v1)
	r.note(p, q, got, err, v1)
	return got, err
}

// exchange is one request and its reply; the error is a connection that was lost or given up.
func (r *randomRun) exchange(ctx context.Context, s *server, q *request, key, header string, v1 bool) (testkit.Reply, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var headers []string
	if key != "" {
		headers = append(headers, "X-API-KEY", key)
	}
	if header != "" {
		name := x402.HeaderPaymentSignature
		if v1 {
			name = x402.HeaderPaymentV1
		}
		headers = append(headers, name, header)
	}
	got, err := testkit.Request(ctx, r.client, q.method, s.url+q.path+q.query, q.body, headers...)
	if err != nil {
		return testkit.Reply{}, err
	}
	if got.Status != http.StatusOK {
		r.checkSecrecy("an error's body", got.Body)
	}
	return got, nil
}

// note keeps what a reply says about its payment, and checks what can be checked at once.
func (r *randomRun) note(p *payment, q *request, got testkit.Reply, err error, v1 bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	column := "4xx"
	switch {
	case err != nil:
		column = "lost"
	case got.Status == 200 || got.Status == 402 || got.Status == 409 || got.Status == 503:
		column = strconv.Itoa(got.Status)
	}
	if r.calls[q.id] == nil {
		r.calls[q.id] = counts{}
	}
	r.calls[q.id][column]++
	p.unfinished = !final(got, err)
	p.open = p.open || p.unfinished
	p.charged = p.charged || got.Charged
	reply := fmt.Sprintf("%s %s %d %s", time.Now().UTC().Format("15:04:05.000"), q.id, got.Status, got.Code)
	if got.Status == http.StatusPaymentRequired {
		reply += fmt.Sprintf(" %.200s", got.Body) // says why
	}
	p.replies = append(p.replies, reply)
	switch {
	case err != nil:
		return
	case got.Status == 200:
		if p.never {
			r.offend("%s: %s returns 200 for a payment that is not good", p.label, q.id)
		}
		p.accepted = true
		sum := sha256.Sum256(got.Body)
		if p.family.reply == nil {
			p.family.reply = &sum
		} else if *p.family.reply != sum {
			r.offend("%s: %s is replied with another 200 than before: %.300s", p.label, q.id, got.Body)
		}
		name, network := x402.HeaderPaymentResponse, testkit.PlayMoney.ID
		if v1 {
			name, network = x402.HeaderPaymentResponseV1, testkit.PlayMoney.V1Name
		}
		settled, err := x402.DecodeSettleResponse(got.Header.Get(name))
		if err != nil || !settled.Success || settled.Network != network || !strings.EqualFold(settled.Payer, p.purse.address) {
			r.offend("%s: the reply to %s names the settlement %+v (%v)", p.label, q.id, settled, err)
		} else {
			p.settlement = settled.Transaction
		}
		if q.learn != nil {
			q.learn(got)
		}
		return
	case got.Status == 402:
		// A payment that the wallet cannot cover is refused before it is recorded. Others share a poor wallet: they fund it, and what their
		// open payments reserve is released, so the same payment may be good a moment later.
		p.refused = p.refused || !p.purse.poor || !uncovered.Match(got.Body)
		if _, err := x402.DecodePaymentRequired(got.Header.Get(x402.HeaderPaymentRequired)); err != nil || got.Charged {
			r.offend("%s: %s returns %v, which does not say how to pay (%v)", p.label, q.id, got, err)
		}
	case got.Code == "rate_limited": // calls that a slow facilitator leaves unpaid count
	case got.Status == 503:
		if got.Header.Get("Retry-After") == "" || got.Charged {
			r.offend("%s: %s returns %v, want Retry-After and nothing charged", p.label, q.id, got)
		}
	case got.Code == "payment_in_progress", got.Code == "payment_reused":
	case got.Code == "proof_required":
		r.offend("%s: %s with its payment identifier returns %v", p.label, q.id, got)
	case slices.Contains([]int{403, 404, 409, 410}, got.Status), p.never && got.Status == 400:
		if !got.Charged {
			p.freely++
		} else if settled, err := x402.DecodeSettleResponse(got.Header.Get(x402.HeaderPaymentResponse)); err == nil {
			p.settlement = settled.Transaction
		}
	default:
		r.offend("%s: %s with the body %.300s returns %v, which it should not be", p.label, q.id, q.body, got)
	}
	if q.undo != nil && final(got, nil) {
		q.undo(got)
	}
}

// uncovered matches what the server says of a payment that the wallet cannot cover, which it has not recorded: by the
// chain's balance, or by
// the facilitator's check.
var uncovered = regexp.MustCompile(`the balance of the wallet is below the|the facilitator rejected the payment \([a-z_]*insufficient`)

// insist sends until the reply is final, as a good client does, some times at most.
func (a *actor) insist(p *payment, q *request, times int) (got testkit.Reply, ok bool) {
	for attempt := range times {
		if attempt > 0 {
			time.Sleep(time.Duration(50+a.chance.IntN(200*attempt)) * time.Millisecond)
		}
		var err error
		if got, err = a.sending(p, q)(); final(got, err) {
			return got, true
		}
	}
	return got, false
}

// finish is what comes after the first sending: the caller comes again or gives up.
func (a *actor) finish(p *payment, q *request, got testkit.Reply, err error) {
	ok := final(got, err)
	if !ok && (q.id == "rotateKey" || a.chance.IntN(4) > 0) {
		got, ok = a.insist(p, q, 8)
	}
	switch {
	case !ok:
		// It stays open; comeBack may come again at the end.
		if q.id == "rotateKey" {
			a.r.mu.Lock()
			q.by.locked = true
			a.r.mu.Unlock()
		}
		return
	case got.Charged && a.chance.IntN(5) > 0:
		a.redeems(p, q)
	case got.Status == http.StatusOK:
		a.keep(p, q)
		if a.chance.IntN(12) == 0 {
			a.mustRepeat(sample{p, q})
		}
	}
}

// keep remembers a 200 for a later repetition.
func (a *actor) keep(p *payment, q *request) {
	if a.done = append(a.done, sample{p, q}); len(a.done) > 12 {
		a.done = a.done[1:]
	}
	if a.chance.IntN(50) == 0 {
		a.r.mu.Lock()
		defer a.r.mu.Unlock()
		a.r.samples = append(a.r.samples, sample{p, q})
	}
}

// mustRepeat asks for a reply once more, which must come again.
func (a *actor) mustRepeat(old sample) {
	if old.request.by != nil && old.request.by.locked {
		return
	}
	got, err := a.sending(old.payment, old.request)()
	if final(got, err) && got.Status != http.StatusOK && !servedSecret(old, got) {
		a.r.offence("%s: %s returned 200, and the same payment once more %v", old.payment.label, old.request.id, got)
	}
}

// servedSecret reports whether a repetition is refused because the response held a secret, which has served or is too old.
func servedSecret(old sample, got testkit.Reply) bool {
	return secret[old.request.path] && got.Status == http.StatusConflict && got.Code == "payment_reused"
}

// onlyProved reports whether a repetition is refused because its payment is too old, and was never settled: it proved a wallet to which an
// earlier payment had bought the response.
func (r *randomRun) onlyProved(old sample, got testkit.Reply) bool {
	p := old.payment
	return secret[old.request.path] && got.Code == "payment_refused" && p.validBefore < time.Now().Add(x402.MinimumValidity).Unix() &&
		r.Count("SELECT count(*) FROM payment_records WHERE payer = $1 AND nonce = $2", p.purse.address, p.nonce) == 0
}

// redeems tries a payment that settled for nothing with other requests of the same operation.
func (a *actor) redeems(p *payment, q *request) {
	for range 3 {
		mended := a.build(q.id, q.by)
		if mended == nil || mended.id != q.id {
			return
		}
		if got, ok := a.insist(p, mended, 4); !ok || got.Status == http.StatusOK {
			return
		}
	}
}

// sending picks a server and returns what sends a payment there.
func (a *actor) sending(p *payment, q *request) func() (testkit.Reply, error) {
	s := a.server()
	return func() (testkit.Reply, error) { return a.r.send(a.r.T.Context(), s, p, q) }
}

// pays makes a behaviour of a way to send a payment the first time.
func pays(send func(a *actor, p *payment, q *request) (testkit.Reply, error)) func(*actor, *account, string) {
	return func(a *actor, by *account, operationID string) {
		q := a.build(operationID, by)
		p := a.pay(a.purse(), q)
		got, err := send(a, p, q)
		a.finish(p, q, got, err)
	}
}

var paysOnce = pays(func(a *actor, p *payment, q *request) (testkit.Reply, error) { return a.sending(p, q)() })

// together runs sendings at the same time. It returns the 200 if there is one, otherwise a reply that leaves the outcome open: the
// server judges each copy of a payment by itself, so one that came a moment too early may be refused although another is taken.
func together(sendings ...func() (testkit.Reply, error)) (testkit.Reply, error) {
	type result struct {
		testkit.Reply
		err error
	}
	results := make([]result, len(sendings))
	var group sync.WaitGroup
	for i, sending := range sendings {
		group.Go(func() { results[i].Reply, results[i].err = sending() })
	}
	group.Wait()
	best := results[0]
	for _, r := range results {
		if best.Status != http.StatusOK && (r.Status == http.StatusOK || !final(r.Reply, r.err)) {
			best = r
		}
	}
	return best.Reply, best.err
}

func (a *actor) atSeveral(p *payment, q *request) (testkit.Reply, error) {
	p.copies = true
	sendings := make([]func() (testkit.Reply, error), 2+a.chance.IntN(3))
	for i := range sendings {
		sendings[i] = a.sending(p, q)
	}
	return together(sendings...)
}

func (a *actor) inBothVersions(p *payment, q *request) (testkit.Reply, error) {
	if secret[q.path] { // version 1 has no identifier, so that its caller would not get the secret again
		return a.sending(p, q)()
	}
	p.copies = true
	one, two := a.server(), a.server()
	return together(
		func() (testkit.Reply, error) { return a.r.sendAs(a.r.T.Context(), one, p, q, true) },
		func() (testkit.Reply, error) { return a.r.sendAs(a.r.T.Context(), two, p, q, false) })
}

// changesTheRequest sends one payment with two requests, of the same operation or not, at once or one after the other.
func (a *actor) changesTheRequest(by *account, operationID string) {
	if operationID == "rotateKey" { // whose reply its caller must learn
		operationID = "sendPrivateMessage"
	}
	q := a.build(operationID, by)
	other := a.build(q.id, by)
	if a.chance.IntN(5) == 0 {
		other = a.build(a.wanted(), by)
	}
	if other.id == "rotateKey" || other.id == q.id && other.body == q.body && other.query == q.query {
		paysOnce(a, by, operationID)
		return
	}
	p := a.pay(a.purse(), q)
	p.doubleUsed = other.id != q.id
	first, second := a.sending(p, q), a.sending(p, other)
	if a.chance.IntN(2) == 0 {
		p.copies = true
		_, _ = together(first, second)
		return
	}
	got, err := first()
	a.finish(p, q, got, err)
	_, _ = second()
}

// namesThePayment sends a request with a payment identifier, signs it anew, and misuses the name for another request.
func (a *actor) namesThePayment(by *account, operationID string) {
	q := a.build(operationID, by)
	if q.id == "rotateKey" {
		q = a.build("sendPrivateMessage", by)
	}
	id := fmt.Sprintf("name-%x-%s-%x", a.r.seed, strings.ReplaceAll(a.label, ".", "-"), a.chance.Uint64())
	named := testkit.Identified(id)
	from := a.purse()
	p, again := a.pay(from, q, named), a.pay(from, q, named)
	again.family = p.family
	p.family.payments = append(p.family.payments, again)
	first, second := a.sending(p, q), a.sending(again, q)
	if a.chance.IntN(3) == 0 {
		_, _ = together(first, second)
	} else {
		got, err := first()
		if final(got, err) && got.Status == http.StatusOK {
			a.keep(p, q)
		}
		_, _ = second()
	}
	if other := a.build(q.id, by); a.chance.IntN(3) == 0 && other.id == q.id && other.body != q.body {
		third := a.pay(from, other, named)
		third.family = p.family
		p.family.payments = append(p.family.payments, third)
		_, _ = a.sending(third, other)()
	}
}

// hangsUp ends the connection after a moment, and comes again or does not.
func (a *actor) hangsUp(p *payment, q *request) (testkit.Reply, error) {
	ctx, cancel := context.WithTimeout(a.r.T.Context(), time.Duration(a.chance.IntN(60))*time.Millisecond)
	defer cancel()
	return a.r.send(ctx, a.server(), p, q)
}

// cancels takes the authorization back on the chain, before it is sent or meanwhile.
func (a *actor) cancels(p *payment, q *request) (testkit.Reply, error) {
	cancel := func() {
		if a.r.Ledger.Cancel(p.purse.address, p.nonce) == nil {
			a.r.mu.Lock()
			p.cancelled = true
			a.r.mu.Unlock()
		}
	}
	if a.chance.IntN(3) == 0 {
		cancel()
		return a.sending(p, q)()
	}
	time.AfterFunc(time.Duration(a.chance.IntN(80))*time.Millisecond, cancel) // also if the reply comes first
	return a.sending(p, q)()
}

// paysWrongly sends a payment that is not good.
func (a *actor) paysWrongly(by *account, operationID string) {
	q := a.build(operationID, by)
	somebody := a.rich[0].address
	in := func(seconds int64) string { return strconv.FormatInt(time.Now().Unix()+seconds, 10) }
	change := []func(p *x402.PaymentPayload){
		func(p *x402.PaymentPayload) { p.Payload.Authorization.Value = strconv.FormatUint(q.price-1, 10) },
		func(p *x402.PaymentPayload) { p.Payload.Authorization.Value = strconv.FormatUint(q.price+1, 10) },
		func(p *x402.PaymentPayload) { p.Accepted.Amount, p.Payload.Authorization.Value = "1", "1" },
		func(p *x402.PaymentPayload) { p.Payload.Authorization.To = somebody },
		func(p *x402.PaymentPayload) { p.Payload.Authorization.From = devnet.Payee },
		func(p *x402.PaymentPayload) { p.Accepted.Network = x402.NetworkBase },
		func(p *x402.PaymentPayload) { p.Accepted.Asset = somebody },
		func(p *x402.PaymentPayload) { p.Payload.Authorization.ValidBefore = in(-5) },
		func(p *x402.PaymentPayload) { p.Payload.Authorization.ValidBefore = in(10) },
		func(p *x402.PaymentPayload) { p.Payload.Authorization.ValidAfter = in(30) },
		func(p *x402.PaymentPayload) { p.Payload.Signature = "0x" + strings.Repeat("1b", 65) },
		func(p *x402.PaymentPayload) { p.Payload.Signature = "0x" + strings.Repeat("1b", 100) }, // as a smart wallet's may be
		func(p *x402.PaymentPayload) { p.Payload.Signature = "0x1b" },
		func(p *x402.PaymentPayload) { p.X402Version = 3 },
	}[a.chance.IntN(14)]
	p := a.pay(a.rich[0], q, change)
	p.never = true
	if a.chance.IntN(8) == 0 {
		p.header = p.header[:len(p.header)-5]
	}
	got, err := a.sending(p, q)()
	if final(got, err) && got.Status != http.StatusPaymentRequired && got.Status != http.StatusBadRequest {
		a.r.offence("%s: %s with a payment that is not good returns %v", p.label, q.id, got)
	}
}

// asksThePrice sends a request without a payment.
func (a *actor) asksThePrice(by *account, operationID string) {
	q := a.build(operationID, by)
	key := ""
	if by != nil {
		key = by.key
	}
	got, err := a.r.exchange(a.r.T.Context(), a.server(), q, key, "", false)
	if err == nil && got.Status != http.StatusPaymentRequired {
		a.r.offence("actor %s: %s without a payment returns %v", a.label, q.id, got)
	}
}

// repeats asks for an old reply once more.
func (a *actor) repeats(by *account, operationID string) {
	if len(a.done) == 0 {
		paysOnce(a, by, operationID)
		return
	}
	a.mustRepeat(a.done[a.chance.IntN(len(a.done))])
}

// comeBack sends half of the payments that have no final reply yet once more, now that all is calm. All rotations of
// keys come before: an agent that gave up on one does not know its key.
func (r *randomRun) comeBack() {
	r.mu.Lock()
	var rotations, others []sample
	for i, p := range r.payments {
		switch open := p.unfinished && len(p.requests) == 1 && !p.never; {
		case open && p.operation.id == "rotateKey":
			rotations = append(rotations, sample{p, p.requests[0]})
		case open && i%2 == 0:
			others = append(others, sample{p, p.requests[0]})
		}
	}
	r.mu.Unlock()
	r.T.Logf("%d payments without a final reply are sent once more", len(rotations)+len(others))
	r.sendAgain(rotations)
	r.sendAgain(others)
}

// sendAgain sends each until its reply is final, some at a time.
func (r *randomRun) sendAgain(open []sample) {
	work := make(chan sample)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for o := range work {
				r.untilFinal(o)
			}
		})
	}
	for _, o := range open {
		work <- o
	}
	close(work)
	workers.Wait()
}

// untilFinal sends until the reply is final.
func (r *randomRun) untilFinal(o sample) {
	var last testkit.Reply
	ok := testkit.Eventually(settleDown, func() bool {
		got, err := r.send(r.T.Context(), r.servers[rand.IntN(len(r.servers))], o.payment, o.request)
		if last = got; !final(got, err) {
			time.Sleep(time.Second)
			return false
		}
		return true
	})
	if !ok {
		r.offence("%s: %s has no final reply %s after the faults ended, the last one is %v", o.payment.label, o.request.id, settleDown, last)
	}
}

// repeatSome asks for some of the replies once more, after all that has happened.
func (r *randomRun) repeatSome() {
	for _, old := range r.samples {
		if old.request.by != nil && old.request.by.locked {
			continue
		}
		got, err := r.send(r.T.Context(), r.servers[rand.IntN(len(r.servers))], old.payment, old.request)
		if (err != nil || got.Status != http.StatusOK) && !servedSecret(old, got) &&
			!r.onlyProved(old, got) { // that it is the same is checked when it is noted
			r.offence("%s: %s returned 200, and the same payment at the end %v (%v)", old.payment.label, old.request.id, got, err)
		}
	}
	r.T.Logf("%d replies were asked for once more at the end", len(r.samples))
}
