package devnet

import (
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"math/big"
	"strings"
	"testing"

	"github.com/decred/dcrd/dcrec/secp256k1/v4"

	"github.com/parley-chat/parley/x402/evm"
)

const (
	mnemonic = "test test test test test test test test test test test junk"
	hardened = 1 << 31
)

// node is a private key of BIP-32 with its chain code.
type node struct {
	key  *big.Int
	code []byte
}

// child derives a key as BIP-32's CKDpriv.
func (n node) child(t *testing.T, index uint32) node {
	t.Helper()
	var data []byte
	if index >= hardened {
		data = append([]byte{0}, n.key.FillBytes(make([]byte, 32))...)
	} else {
		data = secp256k1.PrivKeyFromBytes(n.key.FillBytes(make([]byte, 32))).PubKey().SerializeCompressed()
	}
	mac := hmac.New(sha512.New, n.code)
	mac.Write(binary.BigEndian.AppendUint32(data, index))
	sum := mac.Sum(nil)
	key := new(big.Int).SetBytes(sum[:32])
	key.Add(key, n.key).Mod(key, secp256k1.Params().N)
	return node{key, sum[32:]}
}

// keyOf returns the account's private key in the form that signing needs.
func keyOf(t testing.TB, account Account) *ecdsa.PrivateKey {
	t.Helper()
	key, err := evm.HexToECDSA(strings.TrimPrefix(account.PrivateKey, "0x"))
	if err != nil {
		t.Fatalf("the private key of account %s: %v", account.Address, err)
	}
	return key
}

// derive returns the private key at m/44'/60'/0'/0/index of the mnemonic (BIP-39 without a passphrase, BIP-32, BIP-44).
func derive(t *testing.T, index uint32) []byte {
	t.Helper()
	seed, err := pbkdf2.Key(sha512.New, mnemonic, []byte("mnemonic"), 2048, 64)
	if err != nil {
		t.Fatalf("make the seed: %v", err)
	}
	mac := hmac.New(sha512.New, []byte("Bitcoin seed"))
	mac.Write(seed)
	sum := mac.Sum(nil)
	n := node{new(big.Int).SetBytes(sum[:32]), sum[32:]}
	for _, step := range []uint32{hardened + 44, hardened + 60, hardened, 0, index} {
		n = n.child(t, step)
	}
	return n.key.FillBytes(make([]byte, 32))
}

func TestAccountsComeFromTheMnemonic(t *testing.T) {
	t.Parallel()
	for i, account := range Accounts() {
		if got := "0x" + hex.EncodeToString(derive(t, uint32(i))); got != account.PrivateKey {
			t.Errorf("the mnemonic's key %d is %s, want %s", i, got, account.PrivateKey)
		}
		if got := evm.PubkeyToAddress(keyOf(t, account).PublicKey).Hex(); got != account.Address {
			t.Errorf("the address of account %d is %s, want %s", i, got, account.Address)
		}
	}
	key, err := evm.ToECDSA(derive(t, 10))
	if err != nil {
		t.Fatalf("the payee's key: %v", err)
	}
	if got := evm.PubkeyToAddress(key.PublicKey).Hex(); got != Payee {
		t.Errorf("the address of the mnemonic's key 10 is %s, want the payee %s", got, Payee)
	}
}
