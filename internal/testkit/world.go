// Package testkit is the world that the tests of several packages share: a database, a play-money payment network, wallets and
// payments, requests and replies, agents, processes. Only tests import it.
package testkit

import (
	"crypto/ecdsa"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// Dollar is one US dollar in atomic units of USDC.
const Dollar = 1_000_000

// PlayMoney is the network that the dev network imitates.
var PlayMoney, _ = x402.LookupNetwork(x402.NetworkBaseSepolia)

// World is a database and a payment network, as one test sees them.
type World struct {
	T           testing.TB
	DatabaseURL string
	Ledger      *devnet.Ledger
	Facilitator *devnet.Facilitator
	*Secrets
}

// NewWorld returns a world with an empty payment network on a database.
func NewWorld(t testing.TB, databaseURL string) *World {
	t.Helper()
	ledger, err := devnet.OpenLedger("")
	if err != nil {
		t.Fatal(err)
	}
	return &World{T: t, DatabaseURL: databaseURL, Ledger: ledger, Facilitator: devnet.NewFacilitator(ledger), Secrets: &Secrets{}}
}

// ForTest returns the same world for another test, which fails if something goes wrong.
func (w *World) ForTest(t testing.TB) *World {
	other := *w
	other.T = t
	return &other
}

// Wallet returns a new wallet with money, in atomic units.
func (w *World) Wallet(amount uint64) *ecdsa.PrivateKey {
	w.T.Helper()
	key := NewKey()
	if amount > 0 {
		if err := w.Ledger.Mint(Address(key), amount); err != nil {
			w.T.Fatal(err)
		}
	}
	return key
}

// NewKey returns the key of a wallet without money.
func NewKey() *ecdsa.PrivateKey {
	key, err := evm.GenerateKey()
	if err != nil {
		panic(err)
	}
	return key
}

// Address is the address of a wallet.
func Address(key *ecdsa.PrivateKey) string { return evm.PubkeyToAddress(key.PublicKey).Hex() }

// Revenue is what the payee has, in atomic units.
func (w *World) Revenue() uint64 { return w.Ledger.Balance(devnet.Payee) }

// Eventually waits until a condition holds, and reports whether it did before the patience ended.
func Eventually(patience time.Duration, holds func() bool) bool {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if holds() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}
