package x402

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/x402/evm"
)

// outside is a signer that sees only the JSON of typed data, as an external program does, and hashes it as EIP-712 says.
type outside struct {
	t   *testing.T
	key KeySigner
	as  string // the address that it claims to have
}

func (o outside) Address() string { return o.as }

func (o outside) SignTypedData(_ context.Context, data TypedData) (string, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return "", err
	}
	var read struct {
		Types           map[string][]TypedField
		PrimaryType     string
		Domain, Message map[string]any
	}
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&read); err != nil {
		return "", err
	}
	domain := hashStruct("EIP712Domain", read.Types["EIP712Domain"], read.Domain)
	message := hashStruct(read.PrimaryType, read.Types[read.PrimaryType], read.Message)
	digest := evm.Keccak256Hash([]byte{0x19, 0x01}, domain, message)
	return sign(o.key.key, digest)
}

// hashStruct is hashStruct of EIP-712 for a type without nested types.
func hashStruct(name string, fields []TypedField, values map[string]any) []byte {
	var declared []string
	var encoded []byte
	for _, field := range fields {
		declared = append(declared, field.Type+" "+field.Name)
		var word [32]byte
		switch text := toText(values[field.Name]); {
		case field.Type == "string":
			copy(word[:], evm.Keccak256([]byte(text)))
		case strings.HasPrefix(field.Type, "uint"):
			number, _ := new(big.Int).SetString(text, 10)
			number.FillBytes(word[:])
		case field.Type == "address":
			address := evm.HexToAddress(text)
			copy(word[12:], address[:])
		case field.Type == "bytes32":
			hash := evm.HexToHash(text)
			copy(word[:], hash[:])
		}
		encoded = append(encoded, word[:]...)
	}
	return evm.Keccak256(evm.Keccak256([]byte(name+"("+strings.Join(declared, ",")+")")), encoded)
}

func toText(value any) string {
	if number, ok := value.(json.Number); ok {
		return number.String()
	}
	text, _ := value.(string)
	return text
}

// TestExternalSigner: what an external program signs is what a key in this process signs.
func TestExternalSigner(t *testing.T) {
	t.Parallel()
	key := NewKeySigner(vectorKey(t))
	external := outside{t, key, key.Address()}
	now := time.Now()
	offer := knownNetwork(t, NetworkBaseSepolia).Requirements(5000, vectorPayee, 60)
	if _, err := Sign(t.Context(), external, offer, nil, nil, now); err != nil {
		t.Errorf("sign an exact payment: %v", err)
	}
	terms := ChannelTerms{ReceiverAuthorizer: vectorPayee, WithdrawDelay: 86_400}
	channelOffer := knownNetwork(t, NetworkBaseSepolia).BatchRequirements(5000, vectorPayee, 60, terms)
	channel, err := NewChannelSigner(external, "0x"+strings.Repeat("0", 64), channelOffer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := channel.Sign(t.Context(), 5000, 100_000, now); err != nil {
		t.Errorf("sign a voucher with a deposit: %v", err)
	}
}

// TestWrongSigner: a signature by another key, or none, is an error and is not sent.
func TestWrongSigner(t *testing.T) {
	t.Parallel()
	offer := knownNetwork(t, NetworkBaseSepolia).Requirements(5000, vectorPayee, 60)
	for name, signer := range map[string]Signer{
		"another key": outside{t, NewKeySigner(vectorKey(t)), vectorPayee},
		"text":        prints("signed!"),
		"nothing":     prints(""),
		"an error":    failing{},
	} {
		if _, err := Sign(t.Context(), signer, offer, nil, nil, time.Now()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

type prints string

func (prints) Address() string { return vectorPayer }

func (p prints) SignTypedData(context.Context, TypedData) (string, error) { return string(p), nil }

type failing struct{}

func (failing) Address() string { return vectorPayer }

func (failing) SignTypedData(context.Context, TypedData) (string, error) {
	return "", errors.New("the device is locked")
}
