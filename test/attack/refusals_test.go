//go:build attack

package attack

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// refused sends an order whose payment must be refused without asking the facilitator.
func (s *server) refused(t *testing.T, name string, o order, statuses ...int) {
	t.Helper()
	asked, revenue := s.w.proxy.asked(), s.w.Revenue()
	r, err := s.send(t.Context(), o)
	if err != nil {
		t.Errorf("%s: no reply (%v), want %v", name, err, statuses)
		return
	}
	if !slices.Contains(statuses, r.Status) || r.Charged {
		t.Errorf("%s: %v, want %v", name, r, statuses)
	}
	// Headers above 32 KiB are refused before anybody looks at what they say.
	if _, err := x402.DecodePaymentRequired(r.Header.Get(x402.HeaderPaymentRequired)); err != nil && r.Status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%s: the reply does not say how to pay: %v", name, err)
	}
	if n := s.w.proxy.asked() - asked; n != 0 {
		t.Errorf("%s: the facilitator was called %d times", name, n)
	}
	if s.w.Revenue() != revenue {
		t.Errorf("%s: money moved", name)
	}
	if n := s.w.messages(o.content); o.content != "" && n != 0 {
		t.Errorf("%s: there is an effect", name)
	}
}

// TestWrongTerms sends well-formed payments, signed by the payer, that are not what the operation asks for.
func TestWrongTerms(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	in := func(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }
	type payload = x402.PaymentPayload
	for _, test := range []struct {
		name   string
		change func(p *payload)
	}{
		{"another scheme", func(p *payload) { p.Accepted.Scheme = "upto" }},
		{"another network accepted", func(p *payload) { p.Accepted.Network = x402.NetworkBase }},
		{"a network that does not exist", func(p *payload) { p.Accepted.Network = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp" }},
		{"another asset accepted", func(p *payload) { p.Accepted.Asset = devnet.Payee }},
		{"another payee accepted", func(p *payload) { p.Accepted.PayTo = testkit.Address(bob.wallet) }},
		{"another payee signed", func(p *payload) { p.Payload.Authorization.To = testkit.Address(bob.wallet) }},
		{"another payee accepted and signed", func(p *payload) {
			p.Accepted.PayTo, p.Payload.Authorization.To = testkit.Address(alice.wallet), testkit.Address(alice.wallet)
		}},
		{"less signed", func(p *payload) { p.Payload.Authorization.Value = "4999" }},
		{"more signed", func(p *payload) { p.Payload.Authorization.Value = "5001" }},
		{"nothing signed", func(p *payload) { p.Payload.Authorization.Value = "0" }},
		{"2^256-1 signed", func(p *payload) {
			p.Payload.Authorization.Value = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)).String()
		}},
		{"2^64+5000 signed", func(p *payload) {
			p.Payload.Authorization.Value = new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 64), big.NewInt(5000)).String()
		}},
		{"less accepted", func(p *payload) { p.Accepted.Amount = "1" }},
		{"less accepted and signed", func(p *payload) { p.Accepted.Amount, p.Payload.Authorization.Value = "1", "1" }},
		{"more accepted and signed", func(p *payload) { p.Accepted.Amount, p.Payload.Authorization.Value = "9999", "9999" }},
		{"the token's name changed", func(p *payload) { p.Accepted.Extra = map[string]any{"name": "USD Coin", "version": "2"} }},
		{"expired", func(p *payload) { p.Payload.Authorization.ValidBefore = in(-time.Minute) }},
		{"ends now", func(p *payload) { p.Payload.Authorization.ValidBefore = in(0) }},
		{"ends too soon", func(p *payload) { p.Payload.Authorization.ValidBefore = in(x402.MinimumValidity - 2*time.Second) }},
		{"ends too late", func(p *payload) { p.Payload.Authorization.ValidBefore = in(x402.MaximumValidity + time.Minute) }},
		{"ends in 2^64", func(p *payload) { p.Payload.Authorization.ValidBefore = "18446744073709551616" }},
		{"begins in a minute", func(p *payload) { p.Payload.Authorization.ValidAfter = in(time.Minute) }},
		{"begins in 2^64", func(p *payload) { p.Payload.Authorization.ValidAfter = "18446744073709551616" }},
		{"of somebody else's account", func(p *payload) { p.Payload.Authorization.From = testkit.Address(bob.wallet) }},
		{"from the payee", func(p *payload) { p.Payload.Authorization.From = devnet.Payee }},
	} {
		s.refused(t, test.name, alice.says(bob, "for wrong terms", test.change), http.StatusPaymentRequired)
	}
	// A cheap call's payment at a dear one, as it is and with the dear one's terms written beside the cheap signature.
	cheap, _ := w.sign(alice.wallet, "/agent/me")
	for path, body := range map[string]map[string]any{
		"/chat/private/send":         {"recipient_agent_id": bob.id, "content": w.content("for a tenth")},
		"/chat/group/create":         {"name": "Cheap"},
		"/channel/create":            {"name": "Cheap"},
		"/register/request_account":  {"requested_username": "cheap"},
		"/agent/edit":                {"description": "cheap"},
		"/search/agents":             {"query": "bob"},
		"/chat/group/request_access": {"chat_id": "chat_01k70tamnxefqb91tt5kzx59bg"},
	} {
		o := w.order(alice.wallet, alice.key, path, body)
		o.header = cheap
		s.refused(t, "a read's payment at "+path, o, http.StatusPaymentRequired)
		disguised := w.order(alice.wallet, alice.key, path, body, func(p *x402.PaymentPayload) { p.Payload.Authorization.Value = "1000" })
		s.refused(t, "a read's amount under the terms of "+path, disguised, http.StatusPaymentRequired)
	}
	if n := w.Count("SELECT count(*) FROM conversations") + w.Count("SELECT count(*) FROM agents WHERE description = 'cheap'"); n != 0 {
		t.Errorf("wrong terms had %d effects", n)
	}
	w.check()
}

// junk is a good payment, from which the tests make what is none.
type junk struct {
	w          *world
	s          *server
	alice, bob *agent
	header     string
	json       string
	good       *x402.PaymentPayload
}

func newJunk(t *testing.T) *junk {
	t.Helper()
	w := newWorld(t)
	s := w.serve()
	j := &junk{w: w, s: s, alice: s.agent("alice"), bob: s.agent("bob")}
	j.header, j.good = w.sign(j.alice.wallet, "/chat/private/send")
	raw, err := base64.StdEncoding.DecodeString(j.header)
	if err != nil {
		t.Fatal(err)
	}
	j.json = string(raw)
	return j
}

// try sends a payment header that must be refused.
func (j *junk) try(t *testing.T, name, header string) {
	t.Helper()
	o := j.alice.says(j.bob, "for junk")
	o.header = header
	if len(header) > 64<<10 {
		j.s.refused(t, name, o, http.StatusRequestHeaderFieldsTooLarge)
		return
	}
	j.s.refused(t, name, o, http.StatusBadRequest, http.StatusPaymentRequired)
}

// forge tries the good payment with another signature.
func (j *junk) forge(t *testing.T, name string, signature []byte) {
	t.Helper()
	forged := *j.good
	forged.Payload.Signature = "0x" + hex.EncodeToString(signature)
	j.try(t, name, j.w.Encode(&forged))
}

// checkGood checks that the server still takes the good payment after all of this.
func (j *junk) checkGood(t *testing.T) {
	t.Helper()
	last := j.alice.says(j.bob, "good after all")
	last.header, last.payment = j.header, j.good
	j.s.pay(last).Want(t, "the good payment at last", 200)
	j.w.check()
}

func base64JSON(raw string) string { return base64.StdEncoding.EncodeToString([]byte(raw)) }

// TestJunkPayments sends what is no payment.
func TestJunkPayments(t *testing.T) {
	t.Parallel()
	j := newJunk(t)
	url := strings.NewReplacer("+", "-", "/", "_").Replace(base64.StdEncoding.EncodeToString([]byte("\xfb\xff\xfe" + j.json)))
	for name, header := range map[string]string{
		"not base64":             "%%%%",
		"a space":                "a b",
		"base64url":              url,
		"base64 without padding": strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(j.json+" ")), "="),
		"base64 cut off":         j.header[:len(j.header)-5],
		"base64 and more":        j.header + "AAAA",
		"base64 twice":           base64JSON(j.header),
		"two in one":             j.header + "," + j.header,
		"bare JSON":              j.json,
		"a bearer token":         "Bearer " + j.header,
		"null":                   base64JSON("null"),
		"an array":               base64JSON("[]"),
		"a number":               base64JSON("1"),
		"an empty object":        base64JSON("{}"),
		"an empty string":        base64JSON(""),
		"NUL bytes":              base64JSON("\x00\x00\x00\x00"),
		"invalid UTF-8":          base64JSON(strings.Replace(j.json, "exact", "ex\xffct", 1)),
		"a lone surrogate":       base64JSON(strings.Replace(j.json, "exact", `ex\ud800ct`, 1)),
		"JSON and more":          base64JSON(j.json + "{}"),
		"JSON cut off":           base64JSON(j.json[:len(j.json)-2]),
		"a comment":              base64JSON("/* pay */" + j.json),
		"a byte order mark":      base64JSON("\ufeff" + j.json),
		"a member twice":         base64JSON(strings.Replace(j.json, `"value":"5000"`, `"value":"1","value":"5000"`, 1)),
		"a member in capitals":   base64JSON(strings.Replace(j.json, `"value":"5000"`, `"Value":"1","value":"5000"`, 1)),
		"deep arrays":            base64JSON(strings.Repeat("[", 6000) + strings.Repeat("]", 6000)),
		"deep objects":           base64JSON(strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000)),
		"deep arrays, open":      base64JSON(strings.Repeat("[", 12000)),
		"a deep value":           base64JSON(strings.Replace(j.json, `"5000"`, strings.Repeat("[", 5000)+strings.Repeat("]", 5000), 1)),
		"20 KiB":                 strings.Repeat("QUJD", 5<<10),
		"300 KiB":                strings.Repeat("QUJD", 75<<10),
		"1 MB":                   strings.Repeat("QUJD", 250_000),
		"1.1 MB":                 strings.Repeat("QUJD", 275_000),
		"1 MiB":                  strings.Repeat("QUJD", 256<<10),
	} {
		j.try(t, name, header)
	}
	for i := range 40 { // the JSON of a good payment with one member of another type, or without it
		mutated, what := mutateJSON(t, []byte(j.json), i)
		if what == "" {
			break
		}
		j.try(t, what, base64JSON(mutated))
	}
	j.checkGood(t)
}

// TestJunkVersions sends the payload of version 1 in the header of version 2, and numbers that are no version.
func TestJunkVersions(t *testing.T) {
	t.Parallel()
	j := newJunk(t)
	// Versions: v1's payload in v2's j.header, and numbers that are none.
	authorization, err := json.Marshal(j.good.Payload)
	if err != nil {
		t.Fatal(err)
	}
	j.try(t, "v1 in the v2 header", base64JSON(`{"x402Version":1,"scheme":"exact","network":"base-sepolia","payload":`+string(authorization)+`}`))
	for _, version := range []string{"1", "0", "3", "-2", `"2"`, "2.5", "true", "1e400"} {
		j.try(t, "version "+version, base64JSON(strings.Replace(j.json, `"x402Version":2`, `"x402Version":`+version, 1)))
	}
	j.checkGood(t)
}

// TestJunkAuthorizations sends spellings of numbers, addresses and nonces that some reader might take for the right ones.
func TestJunkAuthorizations(t *testing.T) {
	t.Parallel()
	j := newJunk(t)
	for name, change := range map[string]func(a *x402.Authorization){
		"a value with a space":   func(a *x402.Authorization) { a.Value = " 5000" },
		"a value with a plus":    func(a *x402.Authorization) { a.Value = "+5000" },
		"a value with a zero":    func(a *x402.Authorization) { a.Value = "05000" },
		"a hexadecimal value":    func(a *x402.Authorization) { a.Value = "0x1388" },
		"a value with a point":   func(a *x402.Authorization) { a.Value = "5000.0" },
		"a value with exponent":  func(a *x402.Authorization) { a.Value = "5e3" },
		"a negative value":       func(a *x402.Authorization) { a.Value = "-5000" },
		"a value of 300 digits":  func(a *x402.Authorization) { a.Value = strings.Repeat("9", 300) },
		"Arabic digits":          func(a *x402.Authorization) { a.Value = "٥٠٠٠" },
		"a time with a point":    func(a *x402.Authorization) { a.ValidBefore += ".5" },
		"a negative time":        func(a *x402.Authorization) { a.ValidAfter = "-1" },
		"a short nonce":          func(a *x402.Authorization) { a.Nonce = a.Nonce[:64] },
		"a long nonce":           func(a *x402.Authorization) { a.Nonce += "00" },
		"a nonce without 0x":     func(a *x402.Authorization) { a.Nonce = a.Nonce[2:] },
		"a nonce with 0X":        func(a *x402.Authorization) { a.Nonce = "0X" + a.Nonce[2:] },
		"a payer without 0x":     func(a *x402.Authorization) { a.From = a.From[2:] },
		"a payer with a newline": func(a *x402.Authorization) { a.From += "\n" },
		"the zero address":       func(a *x402.Authorization) { a.From = "0x" + strings.Repeat("0", 40) },
	} {
		changed := *j.good
		change(&changed.Payload.Authorization)
		j.try(t, name, j.w.Encode(&changed))
	}
	j.checkGood(t)
}

// TestJunkSignatures sends the good payment with each byte of its signature flipped, with the twin that has a high s, and with values
// that no key makes.
func TestJunkSignatures(t *testing.T) {
	t.Parallel()
	j := newJunk(t)
	signature, err := hex.DecodeString(j.good.Payload.Signature[2:])
	if err != nil {
		t.Fatal(err)
	}
	for i := range signature {
		flipped := slices.Clone(signature)
		flipped[i] ^= 1 << (i % 8)
		j.forge(t, fmt.Sprintf("bit %d of byte %d flipped", i%8, i), flipped)
	}
	twin := slices.Clone(signature)
	s256 := new(big.Int).SetBytes(signature[32:64])
	s256.Sub(secp256k1.Params().N, s256).FillBytes(twin[32:64])
	for _, v := range []byte{27, 28, 0, 1} {
		twin[64] = v
		j.forge(t, fmt.Sprintf("the high-s twin with v %d", v), twin)
	}
	for _, v := range []byte{2, 3, 26, 29, 30, 35, 36, 255} {
		other := slices.Clone(signature)
		other[64] = v
		j.forge(t, fmt.Sprintf("v %d", v), other)
	}
	j.forge(t, "zeros", make([]byte, 65))
	j.forge(t, "ones", []byte(strings.Repeat("\xff", 65)))
	j.forge(t, "r of zero", append(make([]byte, 32), signature[32:]...))
	j.forge(t, "64 bytes", signature[:64])
	j.forge(t, "no bytes", nil)
	j.forge(t, "9 KiB", make([]byte, 9<<10))
	for name, text := range map[string]string{"no hex": "0x" + strings.Repeat("zz", 65), "odd hex": j.good.Payload.Signature[:131], "without 0x": j.good.Payload.Signature[2:]} {
		forged := *j.good
		forged.Payload.Signature = text
		j.try(t, "a signature: "+name, j.w.Encode(&forged))
	}
	j.checkGood(t)
}

// TestSignaturesOfOtherDomains sends good signatures for another chain, another token and another name.
func TestSignaturesOfOtherDomains(t *testing.T) {
	t.Parallel()
	j := newJunk(t)
	for name, domain := range map[string]func() (x402.Domain, error){
		"of mainnet":       func() (x402.Domain, error) { return x402.NewDomain("USDC", "2", 8453, testkit.PlayMoney.Asset) },
		"of another token": func() (x402.Domain, error) { return x402.NewDomain("USDC", "2", 84532, devnet.Payee) },
		"of another name":  func() (x402.Domain, error) { return x402.NewDomain("USD Coin", "2", 84532, testkit.PlayMoney.Asset) },
	} {
		domain, err := domain()
		if err != nil {
			t.Fatal(err)
		}
		forged := *j.good
		if forged.Payload.Signature, err = x402.SignAuthorization(j.alice.wallet, domain, j.good.Payload.Authorization); err != nil {
			t.Fatal(err)
		}
		j.try(t, "a signature "+name, j.w.Encode(&forged))
	}
	j.checkGood(t)
}

// TestTwoPaymentHeaders sends two headers, of which one is good: nobody may choose.
func TestTwoPaymentHeaders(t *testing.T) {
	t.Parallel()
	j := newJunk(t)
	o := j.alice.says(j.bob, "with two headers")
	asked := j.w.proxy.asked()
	r := j.s.call(o.method, o.path, o.body, append(o.headers, x402.HeaderPaymentSignature, "junk", x402.HeaderPaymentSignature, o.header)...)
	if r.Status != http.StatusBadRequest || j.w.proxy.asked() != asked {
		t.Errorf("two PAYMENT-SIGNATURE headers: %v, want 400 and nobody asked", r)
	}
	j.checkGood(t)
}

// mutateJSON replaces the member with this number, in a fixed order, by something of another type; "" if there are not
// so many.
func mutateJSON(t *testing.T, raw []byte, number int) (mutated, what string) {
	t.Helper()
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatal(err)
	}
	replacements := []any{nil, map[string]any{}, []any{}, true, 5.5, "junk"}
	var walk func(object map[string]any, path string)
	n := 0
	walk = func(object map[string]any, path string) {
		for _, name := range slices.Sorted(maps.Keys(object)) {
			inner, isObject := object[name].(map[string]any)
			if n == number && what == "" {
				replacement := replacements[n%len(replacements)]
				if isObject && n%len(replacements) == 1 {
					replacement = "junk"
				}
				object[name], what = replacement, fmt.Sprintf("%s%s is %v", path, name, replacement)
			}
			n++
			if isObject {
				walk(inner, path+name+".")
			}
		}
	}
	walk(value.(map[string]any), "")
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), what
}

// identifiers makes payment identifiers of what a server offers.
type identifiers struct {
	Info   map[string]any `json:"info"`
	Schema any            `json:"schema"`
}

// offeredIdentifiers asks a server for its form of the extension payment-identifier.
func offeredIdentifiers(t *testing.T, s *server) (offered identifiers) {
	t.Helper()
	required, err := x402.DecodePaymentRequired(s.call(http.MethodPost, "/chat/private/send", "").Header.Get(x402.HeaderPaymentRequired))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(required.Extensions["payment-identifier"], &offered); err != nil || offered.Info == nil {
		t.Fatalf("the 402 does not offer payment-identifier: %s", required.Extensions["payment-identifier"])
	}
	if offered.Info["required"] != false {
		t.Errorf("payment-identifier is required: %v; stock clients send none", offered.Info["required"])
	}
	return offered
}

// under puts an identifier into a payment.
func (offered identifiers) under(id any) func(p *x402.PaymentPayload) {
	return func(p *x402.PaymentPayload) {
		info := maps.Clone(offered.Info)
		info["id"] = id
		raw, err := json.Marshal(map[string]any{"info": info, "schema": offered.Schema})
		if err != nil {
			panic(err)
		}
		p.Extensions = map[string]jsontext.Value{"payment-identifier": raw}
	}
}

// resigned is the same request with a new payment.
func (o order) resigned(by *agent, change func(p *x402.PaymentPayload)) order {
	o.header, o.payment = by.w.sign(by.wallet, o.path, change)
	return o
}

// TestPaymentIdentifier: the caller's own key for "this is the same request", from x402's extension of that name.
func TestPaymentIdentifier(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob, carol := s.agent("alice"), s.agent("bob"), s.agent("carol")
	offered := offeredIdentifiers(t, s)
	const id = "call_0123456789abcdef"

	first := alice.says(bob, "under an identifier", offered.under(id))
	revenue := w.Revenue()
	replied := s.pay(first)
	if replied.Status != http.StatusOK {
		t.Fatalf("a payment with an identifier: %v, want 200", replied)
	}
	if r := s.pay(first.resigned(alice, offered.under(id))); r.Status != http.StatusOK || string(r.Body) != string(replied.Body) {
		t.Errorf("the same request, signed anew: %v, want %v", r, replied)
	}
	if charged := w.Revenue() - revenue; charged != first.price || w.messages(first.content) != 1 {
		t.Errorf("charged %d for %d messages, want one", charged, w.messages(first.content))
	}
	s.pay(alice.says(bob, "something else", offered.under(id))).Want(t, "another request under the identifier", 409)
	for name, o := range map[string]order{
		"another account":   carol.says(bob, "the same identifier", offered.under(id)),
		"another operation": w.order(alice.wallet, alice.key, "/agent/edit", map[string]any{"description": "edited"}, offered.under(id)),
	} {
		s.pay(o).Want(t, "the identifier of "+name, 200)
	}
	for _, malformed := range []any{"", "short", strings.Repeat("a", 15), strings.Repeat("a", 129), "with a space 0123456789", "ümlaut_0123456789", 12345678901234567, []string{id}} {
		s.refused(t, fmt.Sprintf("the identifier %v", malformed), alice.says(bob, "malformed", offered.under(malformed)), http.StatusBadRequest)
	}
	w.check()
}

// TestPaymentIdentifierAtOnce: twenty payments under one identifier, sent at the same time, are charged once.
func TestPaymentIdentifierAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	offered := offeredIdentifiers(t, s)
	revenue := w.Revenue()
	one := alice.says(bob, "twenty times at once", offered.under("call_at_the_same_time"))
	orders := make([]order, 20)
	for i := range orders {
		orders[i] = one.resigned(alice, offered.under("call_at_the_same_time"))
	}
	for _, r := range s.sendAll(orders...) {
		if r.Status != http.StatusOK && (r.Status != http.StatusConflict || r.Code != "payment_in_progress") {
			t.Errorf("one of twenty: %v, want 200, or 409 payment_in_progress", r)
		}
	}
	if charged := w.Revenue() - revenue; charged != one.price || w.messages(one.content) != 1 {
		t.Errorf("twenty payments under one identifier charged %d for %d messages, want %d for one", charged, w.messages(one.content), one.price)
	}
	w.check()
}

// TestPaymentIdentifierAfterFailures: the identifier of a refused payment is free again. While an outcome is not known, the identifier
// keeps a second payment from being taken.
func TestPaymentIdentifierAfterFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	offered := offeredIdentifiers(t, s)
	poor := alice.saysFrom(w.Wallet(0), bob, "after a refusal", offered.under("call_that_was_refused"))
	s.pay(poor).Want(t, "an empty wallet", 402)
	s.pay(poor.resigned(alice, offered.under("call_that_was_refused"))).Want(t, "the same request and identifier with money", 200)
	w.proxy.breakWith(onSettle(dropBefore))
	unclear := alice.says(bob, "with an unclear outcome", offered.under("call_with_unclear_outcome"))
	s.pay(unclear).Want(t, "an unclear outcome", 503)
	w.proxy.mend()
	s.insist(unclear.resigned(alice, offered.under("call_with_unclear_outcome"))).Want(t, "signed anew after an unclear outcome", 200)
	w.check()
	w.arrivedOnce(unclear)
}

// everyBody makes a group chat, a channel and a private chat, and returns a good body for each paid operation, by path: of their
// ids where the operation takes some, otherwise the contract's example.
func (s *server) everyBody(alice, bob *agent) map[string]map[string]any {
	s.w.T.Helper()
	first := s.pay(alice.says(bob, "so that there is a chat"))
	chat, message := first.Text("chat_id"), first.Text("message_id")
	inGroup := s.pay(s.w.order(alice.wallet, alice.key, "/chat/group/create", map[string]any{"name": "Group", "initial_member_ids": []string{bob.id}})).Field(s.w.T, "chat_id")
	channel := s.pay(s.w.order(alice.wallet, alice.key, "/channel/create", map[string]any{"name": "Channel"})).Field(s.w.T, "channel_id")
	bodies := map[string]map[string]any{
		"/agent/block": {"agent_id": bob.id}, "/agent/unblock": {"agent_id": bob.id}, "/agent/profile": {"agent_id": bob.id},
		"/chat/private/send": {"recipient_agent_id": bob.id, "content": "sneaked in"},
		"/chat/private/info": {"chat_id": chat}, "/chat/private/messages": {"chat_id": chat}, "/chat/private/search": {"chat_id": chat, "query": "chat"},
		"/chat/group/create": {"name": "Sneaked in"}, "/chat/group/info": {"chat_id": inGroup},
		"/chat/group/edit": {"chat_id": inGroup, "description": "sneaked in"}, "/chat/group/delete": {"chat_id": inGroup},
		"/chat/group/send": {"chat_id": inGroup, "content": "sneaked in"}, "/chat/group/messages": {"chat_id": inGroup},
		"/chat/group/search": {"chat_id": inGroup, "query": "chat"}, "/chat/group/pin": {"chat_id": inGroup, "message_id": message},
		"/chat/group/request_access": {"chat_id": inGroup}, "/chat/group/leave": {"chat_id": inGroup},
		"/chat/group/transfer": {"chat_id": inGroup, "new_admin_agent_id": bob.id},
		"/channel/create":      {"name": "Sneaked in"}, "/channel/info": {"channel_id": channel},
		"/channel/edit": {"channel_id": channel, "description": "sneaked in"}, "/channel/delete": {"channel_id": channel},
		"/channel/send": {"channel_id": channel, "content": "sneaked in"}, "/channel/subscribe": {"channel_id": channel},
		"/channel/unsubscribe": {"channel_id": channel}, "/channel/messages": {"channel_id": channel},
		"/channel/search": {"channel_id": channel, "query": "chat"}, "/channel/transfer": {"channel_id": channel, "new_admin_agent_id": bob.id},
		"/message/react": {"message_id": message, "emoji": "👍"}, "/message/react/remove": {"message_id": message},
	}
	for path, operation := range operations {
		request := testkit.Operations[operation.method+" "+path].Operation.RequestBody
		if bodies[path] == nil && request != nil {
			bodies[path], _ = request.Value.Content["application/json"].Example.(map[string]any)
			if bodies[path] == nil {
				s.w.T.Fatalf("%s has no example", path)
			}
		}
	}
	return bodies
}

// books is everything that an effect could change, but for the payments themselves.
func (w *world) books() (text string) {
	w.T.Helper()
	w.Scan(`SELECT concat_ws(E'\n',
		(SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM agents x), (SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM registrations x),
		(SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM conversations x), (SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM memberships x),
		(SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM messages x), (SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM blocks x),
		(SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM reactions x))`, nil, &text)
	return text
}

// TestPathsAndMethods asks for every paid operation along every bent path and by every method, without a payment: nothing happens.
func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	bodies := s.everyBody(alice, bob)
	before, revenue := w.books(), w.Revenue()
	sent := 0
	for path, operation := range operations {
		o := w.order(alice.wallet, alice.key, path, bodies[path])
		for _, bent := range bentPaths(path) {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				r := s.call(method, bent, o.body, o.headers...)
				if sent++; r.Status < 400 || r.Status >= 500 {
					t.Errorf("unpaid: %s %s: %v, want a refusal", method, bent, r)
				}
			}
		}
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "post", "PROPFIND", "GETX"} {
			for _, headers := range [][]string{nil, {"X-HTTP-Method-Override", operation.method}, {"Origin", "https://agents.example", "Access-Control-Request-Method", "POST"}} {
				r := s.call(method, path, o.body, append(headers, o.headers...)...)
				preflight := method == http.MethodOptions && r.Status == http.StatusNoContent
				if sent++; !preflight && (r.Status < 400 || r.Status >= 500) {
					t.Errorf("unpaid: %s %s: %v, want a refusal", method, path, r)
				}
			}
		}
	}
	if after := w.books(); after != before || w.Revenue() != revenue || w.Count("SELECT count(*) FROM payments WHERE state <> 'delivered'") != 0 {
		t.Errorf("%d unpaid requests had an effect:\n%s\nbefore:\n%s", sent, after, before)
	}
	w.check()
}

// TestPaidPathsAndMethods does the same with a good payment: what returns 200 is charged, and nothing else is.
func TestPaidPathsAndMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	bodies := s.everyBody(alice, bob)
	for _, path := range []string{"/chat/private/send", "/agent/me", "/chat/group/create"} {
		for _, bent := range append(bentPaths(path), path) {
			for _, method := range []string{"GET", "POST", "HEAD", "PUT", "OPTIONS"} {
				o := alice.says(bob, "on a bent path")
				if path != o.path {
					o = w.order(alice.wallet, alice.key, path, bodies[path])
				}
				revenue := w.Revenue()
				r := s.call(method, bent, o.body, append([]string{x402.HeaderPaymentSignature, o.header}, o.headers...)...)
				charged := w.Revenue() - revenue
				if (r.Status == http.StatusOK) != (charged == o.price) || r.Status != http.StatusOK && charged != 0 {
					t.Errorf("paid: %s %s: %v, charged %d", method, bent, r, charged)
				}
				if n := w.messages(o.content); o.content != "" && n != map[bool]int{true: 1}[charged > 0] {
					t.Errorf("paid: %s %s: charged %d for %d messages", method, bent, charged, n)
				}
			}
		}
	}
	w.check()
}

// bentPaths are spellings of a path that some router or proxy takes for the path itself.
func bentPaths(path string) []string {
	last := strings.LastIndex(path, "/")
	head, tail := path[:last], path[last+1:]
	return []string{
		path + "/", path + "//", "/" + path, "//" + path[1:], head + "//" + tail, head + "/./" + tail, head + "/x/../" + tail,
		"/." + path, "/../" + path[1:], head + "%2F" + tail, head + "%2f" + tail, head + "/%2e/" + tail, head + "/x/%2e%2e/" + tail,
		"/%2F" + path[1:], strings.ToUpper(path), head + "/" + strings.ToUpper(tail[:1]) + tail[1:],
		fmt.Sprintf("%s/%%%02x%s", head, tail[0], tail[1:]), fmt.Sprintf("%s/%%25%02x%s", head, tail[0], tail[1:]),
		path + "%20", path + "%00", path + "%0a", path + ";a=b", path + ".json", path + "?", path + "?x=1", path + "#x", path + "%3Fx=1",
		head + "\\" + tail, head + "%5C" + tail, "/health/.." + path, "/health%2F.." + path, "/skill;" + path, "/:" + path[1:], "/*" + path,
	}
}
