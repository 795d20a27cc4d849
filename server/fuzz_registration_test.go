package server_test

import (
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// party is one of two that register, replay and steal: a wallet and a client at an address of its own.
type party struct {
	name   string
	wallet *ecdsa.PrivateKey
	http   *http.Client
	key    string            // its newest API key
	tans   map[string]string // by username
	heard  map[string]bool   // bodies of the responses that it got
}

// step is a request that was made, which both parties know but for what never reaches the chain: the identifier.
type step struct {
	by      *party
	path    string
	body    string
	key     string
	payment *x402.PaymentPayload
	settled bool   // its payment stands on the chain
	secret  string // in its response, if it was delivered
}

const (
	requestAccount = "/register/request_account"
	createAccount  = "/register/create_account"
	rotateKeyPath  = "/agent/rotate_key"
)

// FuzzRegistration lets two parties request, create, rotate, replay each other's payments and ask for their own responses
// again, in any order. A secret reaches only the wallet that paid for it and never by what the chain shows; nothing is
// replied 500; what is charged is the price, for what is new.
func FuzzRegistration(f *testing.F) {
	for _, steps := range []string{"\x00", "\x00\x01", "\x00\x01\x04", "\x00\x0a\x03", "\x00\x01\x1a\x2a\x03\x13", "\x00\x05\x01\x15\x04\x25",
		"\x07\x06\x01\x16", "\x07\x06\x0e\x06", "\x00\x08\x18\x01\x09",
		"\x00\x21\x21\x21\x21\x21\x21\x01", "\x00\x29\x29\x29\x29\x29\x29\x01", "\x00\x01\x04\x2a\x3a\x25\x35",
		"\x00\x01\x0a\x0b\x1a\x1b\x05\x15\x06\x16", "\x00\x00\x13\x12"} {
		f.Add([]byte(steps))
	}
	w := newWorld(f)
	var mu sync.Mutex
	number := 0
	f.Fuzz(func(t *testing.T, steps []byte) {
		mu.Lock()
		defer mu.Unlock()
		number++
		r := &registration{world: w.forTest(t), t: t, number: number}
		for i := range 2 {
			dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, byte(1+i), byte(number>>8), byte(number))}}
			if number&0xff == 0 || number&0xff == 0xff {
				dialer.LocalAddr = nil
			}
			p := &party{name: fmt.Sprintf("party %d", i), wallet: r.Wallet(20 * testkit.Dollar), tans: map[string]string{}, heard: map[string]bool{}}
			transport := &http.Transport{DialContext: dialer.DialContext}
			defer transport.CloseIdleConnections()
			p.http = &http.Client{Transport: transport}
			r.parties = append(r.parties, p)
		}
		for _, b := range steps[:min(len(steps), 24)] {
			r.step(b)
		}
		if paid := r.Count("SELECT coalesce(sum(amount), 0) FROM payments WHERE state IN ('delivered', 'undeliverable')"); uint64(
			paid) != r.Revenue() {
			t.Errorf("%x: the ledger says that %d were paid, the payee has %d", steps, paid, r.Revenue())
		}
	})
}

type registration struct {
	*world
	t       *testing.T
	number  int
	parties []*party
	log     []*step
}

// step does what a byte says: the lowest three bits what, the next one who, the others with which.
func (r *registration) step(b byte) {
	who, with := r.parties[b>>3&1], int(b>>4)
	username := fmt.Sprintf("fuzz_%d_%d", r.number, with&1)
	switch b & 7 {
	case 0, 7: // 7: under an identifier
		var changes []func(*x402.PaymentPayload)
		if b&7 == 7 {
			changes = append(changes, testkit.Identified(fmt.Sprintf("registration_%d_%d_%s", r.number, len(r.log), who.name[6:])))
		}
		r.pay(&step{by: who, path: requestAccount, body: `{"requested_username":` + quote(username) + `}`}, changes...)
	case 1:
		tan := who.tans[username]
		if with&2 > 0 || tan == "" {
			tan = fmt.Sprintf("0000%04d", len(r.log))
		}
		r.pay(&step{by: who, path: createAccount, body: account(username, tan)})
	case 2, 3: // what the chain shows, sent by whoever; 3: for another request
		if len(r.log) == 0 {
			return
		}
		old := r.log[with%len(r.log)]
		if !old.settled { // refused, or only the proof that asked for an earlier response: it never reached the chain
			return
		}
		body := old.body
		if b&7 == 3 {
			body = strings.ReplaceAll(body, fmt.Sprintf("fuzz_%d_", r.number), fmt.Sprintf("loot_%d_", r.number))
		}
		bare := *old.payment
		bare.Extensions = nil
		header := testkit.Header(r.t, &bare)
		revenue := r.Revenue()
		a := r.send(who, old.path, body, old.keyFor(who), x402.HeaderPaymentSignature, header)
		if secret := secretIn(a); secret != "" || a.Status == http.StatusOK {
			r.t.Errorf("%s replays a public payment of %s at %s: %v", who.name, old.by.name, old.path, a)
		}
		if r.Revenue() != revenue {
			r.t.Errorf("a replay at %s moved money", old.path)
		}
	case 4:
		if who.key != "" {
			r.pay(&step{by: who, path: rotateKeyPath, body: `{}`, key: who.key})
		}
	case 5, 6: // the owner asks again: 5 with a fresh payment, 6 with the very same one, identifier and all
		if len(r.log) == 0 {
			return
		}
		old := r.log[with%len(r.log)]
		if old.by != who {
			return
		}
		if b&7 == 6 {
			r.settleWith(old)
			return
		}
		again := *old
		again.payment = testkit.Payment(r.t, who.wallet, testkit.Offer(testkit.Price("POST "+old.path)))
		r.settleWith(&again)
	}
}

// keyFor is the API key that a party sends where one is needed: its own, or the owner's old one for the owner.
func (s *step) keyFor(who *party) string {
	if s.path != rotateKeyPath {
		return ""
	}
	if who == s.by {
		return s.key
	}
	return who.key
}

// pay signs and sends a new request.
func (r *registration) pay(s *step, changes ...func(*x402.PaymentPayload)) {
	s.payment = testkit.Payment(r.t, s.by.wallet, testkit.Offer(testkit.Price("POST "+s.path)), changes...)
	r.settleWith(s)
	r.log = append(r.log, s)
}

// settleWith sends a step with its payment, checks what is charged, and lets the party remember what it hears.
func (r *registration) settleWith(s *step) {
	price := testkit.Price("POST " + s.path)
	revenue, balance := r.Revenue(), r.Ledger.Balance(testkit.Address(s.by.wallet))
	a := r.send(s.by, s.path, s.body, s.key, x402.HeaderPaymentSignature, testkit.Header(r.t, s.payment))
	charged := r.Revenue() - revenue
	s.settled = s.settled || charged > 0
	if balance-r.Ledger.Balance(testkit.Address(s.by.wallet)) != charged {
		r.t.Errorf("%s at %s: the payee got %d, the payer lost something else", s.by.name, s.path, charged)
	}
	switch repeated := s.by.heard[string(a.Body)]; {
	case a.Status == http.StatusOK && repeated && charged != 0:
		r.t.Errorf("%s at %s: a repeated response was charged %d", s.by.name, s.path, charged)
	case a.Status == http.StatusOK && !repeated && charged != price:
		r.t.Errorf("%s at %s: a new response was charged %d, the price is %d", s.by.name, s.path, charged, price)
	case a.Status != http.StatusOK && charged != 0 && !a.Charged:
		r.t.Errorf("%s at %s: %v, and %d was charged", s.by.name, s.path, a, charged)
	}
	if a.Status != http.StatusOK {
		return
	}
	s.by.heard[string(a.Body)] = true
	s.secret = secretIn(a)
	var request struct {
		Username string `json:"requested_username"`
	}
	_ = json.Unmarshal([]byte(s.body), &request)
	if s.path == requestAccount {
		s.by.tans[request.Username] = s.secret
	} else {
		s.by.key = s.secret
	}
	r.Secret(s.secret)
}

func secretIn(a testkit.Reply) string { return a.Text("tan") + a.Text("api_key") }

// send sends a request from a party's address.
func (r *registration) send(who *party, path, body, key string, headers ...string) testkit.Reply {
	r.t.Helper()
	if key != "" {
		headers = append(headers, "X-API-KEY", key)
	}
	a, err := testkit.Request(r.t.Context(), who.http, http.MethodPost, r.url+path, body, headers...)
	testkit.NoError(r.t, err)
	if a.Status >= http.StatusInternalServerError {
		r.t.Errorf("%s at %s: %v", who.name, path, a)
	}
	return a
}
