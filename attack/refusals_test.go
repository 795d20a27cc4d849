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

	"github.com/parley-chat/parley/devnet"
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
	// Headers above 64 KiB are refused before anybody looks at what they say.
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

// TestJunkPayments sends what is no payment, or one that was tampered with after it was signed.
func TestJunkPayments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	header, good := w.sign(alice.wallet, "/chat/private/send")
	goodJSON, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		t.Fatal(err)
	}
	try := func(name, header string) {
		t.Helper()
		o := alice.says(bob, "for junk")
		o.header = header
		if len(header) > 64<<10 {
			s.refused(t, name, o, http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		s.refused(t, name, o, http.StatusBadRequest, http.StatusPaymentRequired)
	}
	encoded := func(raw string) string { return base64.StdEncoding.EncodeToString([]byte(raw)) }

	url := strings.NewReplacer("+", "-", "/", "_").Replace(base64.StdEncoding.EncodeToString([]byte("\xfb\xff\xfe" + string(goodJSON))))
	for name, header := range map[string]string{
		"not base64":             "%%%%",
		"a space":                "a b",
		"base64url":              url,
		"base64 without padding": strings.TrimRight(base64.StdEncoding.EncodeToString(append(goodJSON, ' ')), "="),
		"base64 cut off":         header[:len(header)-5],
		"base64 and more":        header + "AAAA",
		"base64 twice":           encoded(header),
		"two in one":             header + "," + header,
		"bare JSON":              string(goodJSON),
		"a bearer token":         "Bearer " + header,
		"null":                   encoded("null"),
		"an array":               encoded("[]"),
		"a number":               encoded("1"),
		"an empty object":        encoded("{}"),
		"an empty string":        encoded(""),
		"NUL bytes":              encoded("\x00\x00\x00\x00"),
		"invalid UTF-8":          encoded(strings.Replace(string(goodJSON), "exact", "ex\xffct", 1)),
		"a lone surrogate":       encoded(strings.Replace(string(goodJSON), "exact", `ex\ud800ct`, 1)),
		"JSON and more":          encoded(string(goodJSON) + "{}"),
		"JSON cut off":           encoded(string(goodJSON[:len(goodJSON)-2])),
		"a comment":              encoded("/* pay */" + string(goodJSON)),
		"a byte order mark":      encoded("\ufeff" + string(goodJSON)),
		"a member twice":         encoded(strings.Replace(string(goodJSON), `"value":"5000"`, `"value":"1","value":"5000"`, 1)),
		"a member in capitals":   encoded(strings.Replace(string(goodJSON), `"value":"5000"`, `"Value":"1","value":"5000"`, 1)),
		"deep arrays":            encoded(strings.Repeat("[", 6000) + strings.Repeat("]", 6000)),
		"deep objects":           encoded(strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000)),
		"deep arrays, open":      encoded(strings.Repeat("[", 12000)),
		"a deep value":           encoded(strings.Replace(string(goodJSON), `"5000"`, strings.Repeat("[", 5000)+strings.Repeat("]", 5000), 1)),
		"20 KiB":                 strings.Repeat("QUJD", 5<<10),
		"300 KiB":                strings.Repeat("QUJD", 75<<10),
		"1 MB":                   strings.Repeat("QUJD", 250_000),
		"1.1 MB":                 strings.Repeat("QUJD", 275_000),
		"1 MiB":                  strings.Repeat("QUJD", 256<<10),
	} {
		try(name, header)
	}
	for i := range 40 { // the JSON of a good payment with one member of another type, or without it
		mutated, what := mutateJSON(t, goodJSON, i)
		if what == "" {
			break
		}
		try(what, encoded(mutated))
	}

	// Versions: v1's payload in v2's header, and numbers that are none.
	authorization, err := json.Marshal(good.Payload)
	if err != nil {
		t.Fatal(err)
	}
	try("v1 in the v2 header", encoded(`{"x402Version":1,"scheme":"exact","network":"base-sepolia","payload":`+string(authorization)+`}`))
	for _, version := range []string{"1", "0", "3", "-2", `"2"`, "2.5", "true", "1e400"} {
		try("version "+version, encoded(strings.Replace(string(goodJSON), `"x402Version":2`, `"x402Version":`+version, 1)))
	}

	// Spellings of numbers, addresses and nonces that some reader might take for the right ones.
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
		changed := *good
		change(&changed.Payload.Authorization)
		try(name, w.Encode(&changed))
	}

	// Signatures: each byte with a flipped bit, the twin with a high s, and values that no key makes.
	signature, err := hex.DecodeString(good.Payload.Signature[2:])
	if err != nil {
		t.Fatal(err)
	}
	with := func(name string, signature []byte) {
		t.Helper()
		forged := *good
		forged.Payload.Signature = "0x" + hex.EncodeToString(signature)
		try(name, w.Encode(&forged))
	}
	for i := range signature {
		flipped := slices.Clone(signature)
		flipped[i] ^= 1 << (i % 8)
		with(fmt.Sprintf("bit %d of byte %d flipped", i%8, i), flipped)
	}
	twin := slices.Clone(signature)
	s256 := new(big.Int).SetBytes(signature[32:64])
	s256.Sub(secp256k1.Params().N, s256).FillBytes(twin[32:64])
	for _, v := range []byte{27, 28, 0, 1} {
		twin[64] = v
		with(fmt.Sprintf("the high-s twin with v %d", v), twin)
	}
	for _, v := range []byte{2, 3, 26, 29, 30, 35, 36, 255} {
		other := slices.Clone(signature)
		other[64] = v
		with(fmt.Sprintf("v %d", v), other)
	}
	with("zeros", make([]byte, 65))
	with("ones", []byte(strings.Repeat("\xff", 65)))
	with("r of zero", append(make([]byte, 32), signature[32:]...))
	with("64 bytes", signature[:64])
	with("no bytes", nil)
	with("9 KiB", make([]byte, 9<<10))
	for name, text := range map[string]string{"no hex": "0x" + strings.Repeat("zz", 65), "odd hex": good.Payload.Signature[:131], "without 0x": good.Payload.Signature[2:]} {
		forged := *good
		forged.Payload.Signature = text
		try("a signature: "+name, w.Encode(&forged))
	}
	// Good signatures of other domains: another chain, another token, another name.
	for name, domain := range map[string]func() (x402.Domain, error){
		"of mainnet":       func() (x402.Domain, error) { return x402.NewDomain("USDC", "2", 8453, testkit.PlayMoney.Asset) },
		"of another token": func() (x402.Domain, error) { return x402.NewDomain("USDC", "2", 84532, devnet.Payee) },
		"of another name":  func() (x402.Domain, error) { return x402.NewDomain("USD Coin", "2", 84532, testkit.PlayMoney.Asset) },
	} {
		domain, err := domain()
		if err != nil {
			t.Fatal(err)
		}
		forged := *good
		if forged.Payload.Signature, err = x402.SignAuthorization(alice.wallet, domain, good.Payload.Authorization); err != nil {
			t.Fatal(err)
		}
		try("a signature "+name, w.Encode(&forged))
	}

	// Two headers, of which one is good: nobody may choose.
	o := alice.says(bob, "with two headers")
	asked := w.proxy.asked()
	request, err := http.NewRequestWithContext(t.Context(), o.method, s.url+o.path, strings.NewReader(o.body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {alice.key}, "Payment-Signature": {"junk", o.header}}
	response, err := w.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusBadRequest || w.proxy.asked() != asked {
		t.Errorf("two PAYMENT-SIGNATURE headers: %d, want 400 and nobody asked", response.StatusCode)
	}
	// After all of this the server still takes the good one.
	last := alice.says(bob, "good after all")
	last.header, last.payment = header, good
	if r := s.pay(last); r.Status != http.StatusOK {
		t.Errorf("the good payment at last: %v, want 200", r)
	}
	w.check()
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

// TestPaymentIdentifier: the caller's own key for "this is the same request", from x402's extension of that name.
func TestPaymentIdentifier(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob, carol := s.agent("alice"), s.agent("bob"), s.agent("carol")
	required, err := x402.DecodePaymentRequired(s.call(http.MethodPost, "/chat/private/send", "").Header.Get(x402.HeaderPaymentRequired))
	if err != nil {
		t.Fatal(err)
	}
	var offered struct {
		Info   map[string]any `json:"info"`
		Schema any            `json:"schema"`
	}
	if err := json.Unmarshal(required.Extensions["payment-identifier"], &offered); err != nil || offered.Info == nil {
		t.Fatalf("the 402 does not offer payment-identifier: %s", required.Extensions["payment-identifier"])
	}
	if offered.Info["required"] != false {
		t.Errorf("payment-identifier is required: %v; stock clients send none", offered.Info["required"])
	}
	under := func(id any) func(p *x402.PaymentPayload) {
		return func(p *x402.PaymentPayload) {
			info := maps.Clone(offered.Info)
			info["id"] = id
			raw, err := json.Marshal(map[string]any{"info": info, "schema": offered.Schema})
			if err != nil {
				t.Fatal(err)
			}
			p.Extensions = map[string]jsontext.Value{"payment-identifier": raw}
		}
	}
	// resigned is the same request with a new payment.
	resigned := func(o order, by *agent, change func(p *x402.PaymentPayload)) order {
		o.header, o.payment = w.sign(by.wallet, o.path, change)
		return o
	}
	const id = "call_0123456789abcdef"

	first := alice.says(bob, "under an identifier", under(id))
	revenue := w.Revenue()
	replied := s.pay(first)
	if replied.Status != http.StatusOK {
		t.Fatalf("a payment with an identifier: %v, want 200", replied)
	}
	if r := s.pay(resigned(first, alice, under(id))); r.Status != http.StatusOK || string(r.Body) != string(replied.Body) {
		t.Errorf("the same request, signed anew: %v, want %v", r, replied)
	}
	if charged := w.Revenue() - revenue; charged != first.price || w.messages(first.content) != 1 {
		t.Errorf("charged %d for %d messages, want one", charged, w.messages(first.content))
	}
	if r := s.pay(alice.says(bob, "something else", under(id))); r.Status != http.StatusConflict {
		t.Errorf("another request under the identifier: %v, want 409", r)
	}
	for name, o := range map[string]order{
		"another account":   carol.says(bob, "the same identifier", under(id)),
		"another operation": w.order(alice.wallet, alice.key, "/agent/edit", map[string]any{"description": "edited"}, under(id)),
	} {
		if r := s.pay(o); r.Status != http.StatusOK {
			t.Errorf("the identifier of %s: %v, want 200", name, r)
		}
	}
	for _, malformed := range []any{"", "short", strings.Repeat("a", 15), strings.Repeat("a", 129), "with a space 0123456789", "ümlaut_0123456789", 12345678901234567, []string{id}} {
		s.refused(t, fmt.Sprintf("the identifier %v", malformed), alice.says(bob, "malformed", under(malformed)), http.StatusBadRequest)
	}

	// Twenty payments, one identifier, at the same time.
	revenue = w.Revenue()
	one := alice.says(bob, "twenty times at once", under("call_at_the_same_time"))
	orders := make([]order, 20)
	for i := range orders {
		orders[i] = resigned(one, alice, under("call_at_the_same_time"))
	}
	for _, r := range s.sendAll(orders...) {
		if r.Status != http.StatusOK && (r.Status != http.StatusConflict || r.Code != "payment_in_progress") {
			t.Errorf("one of twenty: %v, want 200, or 409 payment_in_progress", r)
		}
	}
	if charged := w.Revenue() - revenue; charged != one.price || w.messages(one.content) != 1 {
		t.Errorf("twenty payments under one identifier charged %d for %d messages, want %d for one", charged, w.messages(one.content), one.price)
	}

	// An identifier whose payment was refused is free again.
	poor := alice.saysFrom(w.Wallet(0), bob, "after a refusal", under("call_that_was_refused"))
	if r := s.pay(poor); r.Status != http.StatusPaymentRequired {
		t.Errorf("an empty wallet: %v, want 402", r)
	}
	if r := s.pay(resigned(poor, alice, under("call_that_was_refused"))); r.Status != http.StatusOK {
		t.Errorf("the same request and identifier with money: %v, want 200", r)
	}
	// While the outcome is not known, the identifier keeps a second payment from being taken.
	w.proxy.breakWith(onSettle(dropBefore))
	unclear := alice.says(bob, "with an unclear outcome", under("call_with_unclear_outcome"))
	if r := s.pay(unclear); r.Status != http.StatusServiceUnavailable {
		t.Errorf("an unclear outcome: %v, want 503", r)
	}
	w.proxy.mend()
	if r := s.insist(resigned(unclear, alice, under("call_with_unclear_outcome"))); r.Status != http.StatusOK {
		t.Errorf("signed anew after an unclear outcome: %v, want 200", r)
	}
	w.check()
	w.arrivedOnce(unclear)
}

// TestPathsAndMethods asks for every paid operation along every bent path and by every method: without a payment nothing
// that costs money happens, with one it is charged or refused.
func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.serve()
	alice, bob := s.agent("alice"), s.agent("bob")
	first := s.pay(alice.says(bob, "so that there is a chat"))
	group := s.pay(w.order(alice.wallet, alice.key, "/chat/group/create", map[string]any{"name": "Group", "initial_member_ids": []string{bob.id}}))
	channel := s.pay(w.order(alice.wallet, alice.key, "/channel/create", map[string]any{"name": "Channel"}))
	var ids struct {
		ChatID    string `json:"chat_id"`
		ChannelID string `json:"channel_id"`
		MessageID string `json:"message_id"`
	}
	chatOf := func(r testkit.Reply) string {
		if err := json.Unmarshal(r.Body, &ids); err != nil {
			t.Fatalf("%v: %v", r, err)
		}
		return ids.ChatID
	}
	chat, inGroup := chatOf(first), chatOf(group)
	message := ids.MessageID
	chatOf(channel)
	bodies := map[string]map[string]any{
		"/register/request_account": {"requested_username": "sneaked_in"},
		"/register/create_account":  {"username": "sneaked_in", "tan": "00000000", "description": ""},
		"/agent/me":                 nil, "/agent/unread": nil,
		"/agent/edit":  {"description": "sneaked in"},
		"/agent/block": {"agent_id": bob.id}, "/agent/unblock": {"agent_id": bob.id},
		"/agent/profile": {"agent_id": bob.id}, "/agent/rotate_key": {},
		"/search/agents": {"query": "bob"}, "/search/groups": {"query": "Group"}, "/search/channels": {"query": "Channel"},
		"/chat/private/send": {"recipient_agent_id": bob.id, "content": "sneaked in"},
		"/chat/private/info": {"chat_id": chat}, "/chat/private/messages": {"chat_id": chat}, "/chat/private/search": {"chat_id": chat, "query": "chat"},
		"/chat/group/create": {"name": "Sneaked in"}, "/chat/group/info": {"chat_id": inGroup},
		"/chat/group/edit": {"chat_id": inGroup, "description": "sneaked in"}, "/chat/group/delete": {"chat_id": inGroup},
		"/chat/group/send": {"chat_id": inGroup, "content": "sneaked in"}, "/chat/group/messages": {"chat_id": inGroup},
		"/chat/group/search": {"chat_id": inGroup, "query": "chat"}, "/chat/group/pin": {"chat_id": inGroup, "message_id": message},
		"/chat/group/request_access": {"chat_id": inGroup}, "/chat/group/leave": {"chat_id": inGroup},
		"/chat/group/transfer": {"chat_id": inGroup, "new_admin_agent_id": bob.id},
		"/channel/create":      {"name": "Sneaked in"}, "/channel/info": {"channel_id": ids.ChannelID},
		"/channel/edit": {"channel_id": ids.ChannelID, "description": "sneaked in"}, "/channel/delete": {"channel_id": ids.ChannelID},
		"/channel/send": {"channel_id": ids.ChannelID, "content": "sneaked in"}, "/channel/subscribe": {"channel_id": ids.ChannelID},
		"/channel/unsubscribe": {"channel_id": ids.ChannelID}, "/channel/messages": {"channel_id": ids.ChannelID},
		"/channel/search": {"channel_id": ids.ChannelID, "query": "chat"}, "/channel/transfer": {"channel_id": ids.ChannelID, "new_admin_agent_id": bob.id},
		"/message/react": {"message_id": message, "emoji": "👍"}, "/message/react/remove": {"message_id": message},
	}
	// books is everything that an effect could change, but for the payments themselves.
	books := func() (text string) {
		t.Helper()
		w.Scan(`SELECT concat_ws(E'\n',
			(SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM agents x), (SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM registrations x),
			(SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM conversations x), (SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM memberships x),
			(SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM messages x), (SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM blocks x),
			(SELECT string_agg(x::text, E'\n' ORDER BY x::text) FROM reactions x))`, nil, &text)
		return text
	}
	before, revenue := books(), w.Revenue()
	sent := 0
	for path, operation := range operations {
		body, known := bodies[path]
		if !known {
			t.Errorf("%s is not among the paths of this test", path)
			continue
		}
		o := w.order(alice.wallet, alice.key, path, body)
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
	if after := books(); after != before || w.Revenue() != revenue || w.Count("SELECT count(*) FROM payments WHERE state <> 'delivered'") != 0 {
		t.Errorf("%d unpaid requests had an effect:\n%s\nbefore:\n%s", sent, after, before)
	}

	// With a good payment: what returns 200 is charged, and nothing else is.
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
