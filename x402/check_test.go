package x402

import (
	"errors"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"github.com/google/go-cmp/cmp"
)

func newChecker(t testing.TB) Checker {
	t.Helper()
	checker, err := NewChecker(knownNetwork(t, NetworkBase), knownNetwork(t, NetworkBaseSepolia))
	noError(t, "make a checker", err)
	return checker
}

// signed returns a payment of the offer, changed before it is signed.
func signed(t testing.TB, offer PaymentRequirements, now time.Time, change func(a *Authorization)) *PaymentPayload {
	t.Helper()
	payload, err := Sign(t.Context(), NewKeySigner(vectorKey(t)), offer, nil, nil, now)
	noError(t, "sign a payment", err)
	change(&payload.Payload.Authorization)
	domain, err := DomainOf(offer)
	noError(t, "the offer's domain", err)
	payload.Payload.Signature, err = SignAuthorization(vectorKey(t), domain, payload.Payload.Authorization)
	noError(t, "sign a changed payment", err)
	return payload
}

// highS returns the twin of a signature that mathematics accepts and token contracts reject.
func highS(signature string) string {
	raw := fromHex(signature)
	new(big.Int).Sub(secp256k1.Params().N, new(big.Int).SetBytes(raw[32:64])).FillBytes(raw[32:64])
	raw[64] ^= 27 ^ 28
	return hexString(raw)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 999_000_000)
	in := func(d time.Duration) string { return strconv.FormatInt(now.Add(d).Unix(), 10) }
	huge := strings.Repeat("9", 77)
	offer := knownNetwork(t, NetworkBaseSepolia).Requirements(5000, vectorPayee, 60)
	unchanged := func(*Authorization) {}
	for _, row := range []struct {
		name   string
		before func(a *Authorization)  // changes what is signed
		after  func(p *PaymentPayload) // changes what was signed
		reason string                  // "" if the payment is good
	}{
		{"a good payment", unchanged, nil, ""},
		{"addresses in lower case", func(a *Authorization) { a.From, a.To = strings.ToLower(a.From), strings.ToLower(a.To) }, nil, ""},
		{"valid since ten minutes", func(a *Authorization) { a.ValidAfter = in(-10 * time.Minute) }, nil, ""},
		{"valid from this second", func(a *Authorization) { a.ValidAfter = in(0) }, nil, ""},
		{"valid for an hour", func(a *Authorization) { a.ValidBefore = in(time.Hour) }, nil, ""},
		{"just long enough", func(a *Authorization) { a.ValidBefore = in(MinimumValidity) }, nil, ""},
		{"as long as may be", func(a *Authorization) { a.ValidBefore = in(MaximumValidity) }, nil, ""},
		{"to somebody else", func(a *Authorization) { a.To = vectorPayer }, nil, ReasonRecipientMismatch},
		{"too little", func(a *Authorization) { a.Value = "4999" }, nil, ReasonValueMismatch},
		{"too much", func(a *Authorization) { a.Value = "5001" }, nil, ReasonValueMismatch},
		{"nothing", func(a *Authorization) { a.Value = "0" }, nil, ReasonValueMismatch},
		{"not yet valid", func(a *Authorization) { a.ValidAfter = in(time.Second) }, nil, ReasonValidAfter},
		{"never valid", func(a *Authorization) { a.ValidAfter = huge }, nil, ReasonValidAfter},
		{"ended", func(a *Authorization) { a.ValidBefore = in(-time.Hour) }, nil, ReasonValidBefore},
		{"ended in 1970", func(a *Authorization) { a.ValidBefore = "0" }, nil, ReasonValidBefore},
		{"ends too soon", func(a *Authorization) { a.ValidBefore = in(MinimumValidity - time.Second) }, nil, ReasonValidBefore},
		{"lives too long", func(a *Authorization) { a.ValidBefore = in(MaximumValidity + time.Second) }, nil, ReasonValidBefore},
		{"lives beyond 64 bits", func(a *Authorization) { a.ValidBefore = huge }, nil, ReasonValidBefore},
		{"lives 2^64 and a bit", func(a *Authorization) { a.ValidBefore = "18446744075509551676" }, nil, ReasonValidBefore},
		{"changed after signing", unchanged, func(p *PaymentPayload) {
			p.Payload.Authorization.Nonce = "0x" + strings.Repeat("cd", 32)
		}, ReasonSignature},
		{"in another's name", unchanged, func(p *PaymentPayload) { p.Payload.Authorization.From = vectorPayee }, ReasonSignature},
		{"a bit flipped", unchanged, func(p *PaymentPayload) {
			raw := fromHex(p.Payload.Signature)
			raw[3] ^= 8
			p.Payload.Signature = hexString(raw)
		}, ReasonSignature},
		{"v 0 or 1", unchanged, func(p *PaymentPayload) {
			raw := fromHex(p.Payload.Signature)
			raw[64] -= 27
			p.Payload.Signature = hexString(raw)
		}, ReasonSignature},
		{"a high s", unchanged, func(p *PaymentPayload) { p.Payload.Signature = highS(p.Payload.Signature) }, ReasonSignature},
		{"signed for another chain", unchanged, func(p *PaymentPayload) {
			p.Payload.Signature, _ = SignAuthorization(vectorKey(t), knownDomain(t, NetworkBase), p.Payload.Authorization)
		}, ReasonSignature},
		{"signed for another token", unchanged, func(p *PaymentPayload) {
			domain, _ := NewDomain("USDC", "2", 84532, vectorPayee)
			p.Payload.Signature, _ = SignAuthorization(vectorKey(t), domain, p.Payload.Authorization)
		}, ReasonSignature},
		{"signed for another token's name", unchanged, func(p *PaymentPayload) {
			domain, _ := NewDomain("USD Coin", "2", 84532, offer.Asset)
			p.Payload.Signature, _ = SignAuthorization(vectorKey(t), domain, p.Payload.Authorization)
		}, ReasonSignature},
		{"ended and forged", func(a *Authorization) { a.ValidBefore = "0" }, func(p *PaymentPayload) {
			p.Payload.Authorization.From = vectorPayee
		}, ReasonSignature},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			payload := signed(t, offer, now, row.before)
			if row.after != nil {
				row.after(payload)
			}
			checked, err := newChecker(t).Check(offer, payload, now)
			if row.reason == "" {
				if err != nil || !checked.Conclusive || checked.Payer != strings.ToLower(vectorPayer) {
					t.Errorf("a good payment is checked as %+v (%v), want it conclusive and by the payer", checked, err)
				}
				return
			}
			checkRejection(t, payload, row.reason, checked, err)
		})
	}
}

// checkRejection checks the error and the facts about a payment that is rejected with a reason.
func checkRejection(t *testing.T, payload *PaymentPayload, reason string, checked Checked, err error) {
	t.Helper()
	invalid, ok := errors.AsType[*Invalid](err)
	if !ok || invalid.Reason != reason || invalid.Message == "" {
		t.Fatalf("the check says %#v, want an *Invalid with reason %s", err, reason)
	}
	if strings.Contains(invalid.Message, payload.Payload.Signature[2:]) {
		t.Errorf("the message repeats the signature: %s", invalid.Message)
	}
	// A payment out of time may have begun in time: its facts lead to the stored reply. One that is bad
	// for another reason proves nothing about anybody.
	outOfTime := reason == ReasonValidAfter || reason == ReasonValidBefore
	if invalid.OutOfTime != outOfTime {
		t.Errorf("the refusal is out of time: %t, want %t", invalid.OutOfTime, outOfTime)
	}
	want := Checked{}
	if outOfTime {
		want = Checked{Payer: strings.ToLower(vectorPayer), Nonce: payload.Payload.Authorization.Nonce, Conclusive: true}
	}
	if diff := cmp.Diff(want, checked); diff != "" {
		t.Errorf("the facts of a rejected payment (-want +got):\n%s", diff)
	}
}

func TestCheckFacts(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	offer := knownNetwork(t, NetworkBase).Requirements(5000, vectorPayee, 60)
	payload := signed(t, offer, now, func(a *Authorization) { a.Nonce = "0x" + strings.Repeat("AB", 32) })
	want := Checked{
		Payer:       strings.ToLower(vectorPayer),
		Nonce:       "0x" + strings.Repeat("ab", 32),
		ValidBefore: time.Unix(1_800_000_060, 0).UTC(),
		Conclusive:  true,
	}
	got, err := newChecker(t).Check(offer, payload, now)
	noError(t, "check a good payment", err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the facts of a payment (-want +got):\n%s", diff)
	}
	payload.Payload.Signature += strings.Repeat("64", 32)
	want.Conclusive = false
	got, err = newChecker(t).Check(offer, payload, now)
	noError(t, "check a smart wallet's payment", err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the facts of a smart wallet's payment (-want +got):\n%s", diff)
	}
}

func TestCheckWithAForeignOffer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *PaymentRequirements){
		"an unknown network":   func(r *PaymentRequirements) { r.Network = "eip155:1" },
		"another scheme":       func(r *PaymentRequirements) { r.Scheme = "upto" },
		"another asset":        func(r *PaymentRequirements) { r.Asset = vectorPayer },
		"another token name":   func(r *PaymentRequirements) { r.Extra["name"] = "USDC" },
		"no version":           func(r *PaymentRequirements) { delete(r.Extra, "version") },
		"a version that isn't": func(r *PaymentRequirements) { r.Extra["version"] = 2 },
	} {
		now := time.Unix(1_800_000_000, 0)
		offer := knownNetwork(t, NetworkBase).Requirements(5000, vectorPayee, 60)
		payload := signed(t, offer, now, func(*Authorization) {})
		change(&offer)
		_, err := newChecker(t).Check(offer, payload, now)
		if _, invalid := errors.AsType[*Invalid](err); err == nil || invalid {
			t.Errorf("the check with %s in our own offer says %v, want an error that does not blame the payer", name, err)
		}
	}
	if _, err := NewChecker(Network{ID: "eip155:1337", ChainID: 1337, Asset: "0x"}); err == nil {
		t.Error("a checker is made for a malformed token address")
	}
}

// TestRefusalsSayWhat: a refusal names what the payer has to change: v, and how wrong the clock is.
func TestRefusalsSayWhat(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_763_650_000, 0)
	offer := knownNetwork(t, NetworkBaseSepolia).Requirements(5000, vectorPayee, 60)
	at := func(clock time.Duration) func(a *Authorization) {
		return func(a *Authorization) {
			a.ValidAfter = strconv.FormatInt(now.Add(clock-10*time.Minute).Unix(), 10)
			a.ValidBefore = strconv.FormatInt(now.Add(clock+time.Minute).Unix(), 10)
		}
	}
	for _, row := range []struct {
		name   string
		before func(a *Authorization)
		v      byte
		says   string
	}{
		{"v 0", at(0), 0, "ends with v 0 (0x00), want 27 or 28"},
		{"v 1", at(0), 1, "ends with v 1 (0x01), want 27 or 28"},
		{"v 29", at(0), 29, "ends with v 29 (0x1d), want 27 or 28"},
		{"a clock that is behind", at(-90 * time.Second), 27, "your clock is 90 seconds behind"},
		{"a clock that is ahead", at(15 * time.Minute), 27, "your clock is ahead by at least that"},
	} {
		payload := signed(t, offer, now, row.before)
		if raw := fromHex(payload.Payload.Signature); row.v != 27 {
			raw[64] = row.v
			payload.Payload.Signature = hexString(raw)
		}
		if _, err := newChecker(t).Check(offer, payload, now); err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: %v, want it to say %q", row.name, err, row.says)
		}
	}
}
