package x402_test

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// outside is a signer that sees only the JSON of typed data, as an external program does.
type outside struct {
	key *ecdsa.PrivateKey
	as  string // the address that it claims to have
}

func (o outside) Address() string { return o.as }

func (o outside) SignTypedData(_ context.Context, data x402.TypedData) (string, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return "", err
	}
	return testkit.SignTypedData(o.key, text)
}

// TestExternalSigner: what an external program signs is what a key in this process signs.
func TestExternalSigner(t *testing.T) {
	t.Parallel()
	key, payee := testkit.NewKey(), testkit.Address(testkit.NewKey())
	external := outside{key, testkit.Address(key)}
	offer := testkit.PlayMoney.Requirements(5000, payee, 60)
	if _, err := x402.Sign(t.Context(), external, offer, nil, nil, time.Now()); err != nil {
		t.Errorf("sign an exact payment: %v", err)
	}
	terms := x402.ChannelTerms{ReceiverAuthorizer: payee, WithdrawDelay: 86_400}
	channel, err := x402.NewChannelSigner(external, "0x"+strings.Repeat("0", 64), testkit.PlayMoney.BatchRequirements(5000, payee, 60, terms))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := channel.Sign(t.Context(), 5000, 100_000, time.Now()); err != nil {
		t.Errorf("sign a voucher with a deposit: %v", err)
	}
}

// prints is a signer that prints something.
type prints string

func (prints) Address() string { return testkit.Address(testkit.NewKey()) }

func (p prints) SignTypedData(context.Context, x402.TypedData) (string, error) { return string(p), nil }

// locked is a signer that fails.
type locked struct{ prints }

func (locked) SignTypedData(context.Context, x402.TypedData) (string, error) {
	return "", errors.New("the device is locked")
}

// raw is a signer whose signatures end with a v of 0 or 1, which contracts reject.
type raw struct{ outside }

func (r raw) SignTypedData(ctx context.Context, data x402.TypedData) (string, error) {
	signature, err := r.outside.SignTypedData(ctx, data)
	return signature[:130] + map[string]string{"1b": "00", "1c": "01"}[signature[130:]], err
}

// TestWrongSigner: a signature by another key, one that contracts reject, or none, is an error and is not sent.
func TestWrongSigner(t *testing.T) {
	t.Parallel()
	offer, rawKey := testkit.PlayMoney.Requirements(5000, testkit.Address(testkit.NewKey()), 60), testkit.NewKey()
	for name, signer := range map[string]x402.Signer{
		"another key": outside{testkit.NewKey(), testkit.Address(testkit.NewKey())},
		"a raw v":     raw{outside{rawKey, testkit.Address(rawKey)}},
		"text":        prints("signed!"),
		"nothing":     prints(""),
		"an error":    locked{},
	} {
		if _, err := x402.Sign(t.Context(), signer, offer, nil, nil, time.Now()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
