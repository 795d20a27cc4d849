package devnet

import (
	"crypto/ecdsa"
	"strings"
	"testing"

	"github.com/parley-chat/parley/x402/evm"
)

// noError ends the test if there is an error. Package testkit imports this one.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// keyOf returns the account's private key in the form that signing needs.
func keyOf(t testing.TB, account Account) *ecdsa.PrivateKey {
	t.Helper()
	key, err := evm.HexToECDSA(strings.TrimPrefix(account.PrivateKey, "0x"))
	noError(t, err)
	return key
}

func TestAccountsHaveTheirKeys(t *testing.T) {
	t.Parallel()
	for i, account := range Accounts() {
		if got := evm.PubkeyToAddress(keyOf(t, account).PublicKey).Hex(); got != account.Address {
			t.Errorf("the address of account %d is %s, want %s", i, got, account.Address)
		}
	}
}
