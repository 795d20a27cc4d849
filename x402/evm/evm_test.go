package evm

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"github.com/google/go-cmp/cmp"
)

// TestChecksum has the examples of EIP-55.
func TestChecksum(t *testing.T) {
	t.Parallel()
	for _, want := range []string{
		"0x52908400098527886E0F7030069857D2E4169EE7", "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
		"0xde709f2102306220921060314715629080e2fb77", "0x27b1fdb04752bbc536007a920d24acb045561c26",
		"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed", "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
		"0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB", "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
	} {
		for _, form := range []string{want, strings.ToLower(want), "0x" + strings.ToUpper(want[2:])} {
			if got := HexToAddress(form).Hex(); got != want {
				t.Errorf("the checksum of %s is %s, want %s", form, got, want)
			}
		}
	}
}

func TestMalformedHexIsZero(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("ab", 20)
	for _, s := range []string{"", "0x", digits, "0x" + digits[2:], "0x" + digits + "ab", "0x" + digits[1:] + "g", "0X" + digits} {
		if got := HexToAddress(s); got != (Address{}) {
			t.Errorf("%q is the address %s, want the zero address", s, got)
		}
		if got := HexToHash(s); got != (Hash{}) {
			t.Errorf("%q is the hash %s, want the zero hash", s, got)
		}
	}
}

// TestKeccak256 has the hash of nothing, which EIP-1052 gives for accounts without code, and selectors and topics that
// ERC-20's contracts are called by.
func TestKeccak256(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		"":                                  "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470",
		"Transfer(address,address,uint256)": "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",
		"transfer(address,uint256)":         "a9059cbb2ab09eb219583f4a59a5d0623ade346d962bcd4e46b11da047c9049b",
	} {
		if got := hex.EncodeToString(Keccak256([]byte(data))); got != want {
			t.Errorf("the hash of %q is %s, want %s", data, got, want)
		}
		half := len(data) / 2
		if got := Keccak256Hash([]byte(data[:half]), []byte(data[half:])).Hex(); got != "0x"+want {
			t.Errorf("the hash of %q in two parts is %s, want %s", data, got, want)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	key, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	again, err := HexToECDSA(hex.EncodeToString(FromECDSA(key)))
	if err != nil || again.D.Cmp(key.D) != 0 || //nolint:staticcheck // as in FromECDSA
		PubkeyToAddress(again.PublicKey) != PubkeyToAddress(key.PublicKey) {
		t.Errorf("a key read again is %v, want the same", err)
	}
	order := secp256k1.Params().N
	for name, private := range map[string][]byte{
		"nothing": nil, "31 bytes": make([]byte, 31), "33 bytes": append([]byte{0}, FromECDSA(key)...), "zero": make([]byte, 32),
		"the order": order.Bytes(), "above it": new(big.Int).Add(order, big.NewInt(1)).Bytes(),
	} {
		if _, err := ToECDSA(private); err == nil {
			t.Errorf("%s is a key", name)
		}
	}
	secret := strings.Repeat("zz", 32)
	if _, err := HexToECDSA(secret); err == nil || strings.Contains(err.Error(), "z") {
		t.Errorf("a key that is not hex says %v, want an error that does not quote it", err)
	}
	if _, err := Sign(Hash{}, nil); err == nil {
		t.Error("no key signs")
	}
	if _, err := Ecrecover(Hash{}, [SignatureLength]byte{64: 2}); err == nil {
		t.Error("a signature with v 2 has a signer")
	}
}

// TestJSON: what JSON-RPC carries comes back the same, and malformed or absent values are errors, never zero.
func TestJSON(t *testing.T) {
	t.Parallel()
	type everything struct {
		A Address
		H Hash
		B Bytes
		N Uint64
		L BlockNumber
		M BlockNumber
	}
	const text = `{"A":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed","H":"0x%064x","B":"0x00ff","N":"0xffffffffffffffff","L":"latest",` +
		`"M":"0x14a34"}`
	want := fmt.Sprintf(text, 7)
	var values everything
	if err := json.Unmarshal([]byte(want), &values); err != nil {
		t.Fatalf("read %s: %v", want, err)
	}
	got, err := json.Marshal(values)
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("written again: %v (-want +got):\n%s", err, diff)
	}
	for into, malformed := range map[any][]string{
		new(Address): {`null`, `1`, `""`, `"0x"`, `"0x12"`, `"` + strings.Repeat("ab", 20) + `"`},
		new(Hash):    {`null`, `""`, `"0x12"`, `"0x` + strings.Repeat("ab", 33) + `"`, `"0x` + strings.Repeat("gg", 32) + `"`},
		new(Bytes):   {`null`, `[]`, `"00"`, `"0x0"`, `"0xzz"`},
		new(Uint64): {`null`, `1`, `""`, `"0x"`, `"0x00"`, `"0x01"`, `"10"`, `"-0x1"`, `"0x-1"`, `"0x+1"`, `"0x1_0"`,
			`"0x10000000000000000"`},
		new(BlockNumber): {`null`, `1`, `""`, `"newest"`, `"0x8000000000000000"`, `"0x01"`},
	} {
		for _, data := range malformed {
			if err := json.Unmarshal([]byte(data), into); err == nil {
				t.Errorf("%s is read as %T", data, into)
			}
		}
	}
}

func BenchmarkKeccak256(b *testing.B) {
	data := make([]byte, 7*32)
	b.ReportAllocs()
	for b.Loop() {
		Keccak256Hash(data)
	}
}
