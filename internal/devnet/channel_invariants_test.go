package devnet

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/parley-chat/parley/x402"
)

// TestChannelInvariants makes random calls, valid and not. No money appears or disappears, and no channel pays twice.
func TestChannelInvariants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := openWorld(t, dir)
	signers := []*x402.ChannelSigner{w.payer(Accounts()[0], 0), w.payer(Accounts()[0], 1), w.payer(Accounts()[1], 0)}
	random := rand.New(rand.NewPCG(1, 2))
	check := func(ledger *Ledger) {
		t.Helper()
		var all, balances, claimed uint64
		for _, account := range append(addresses(), Payee, x402.BatchSettlementContract) {
			all += ledger.Balance(account)
		}
		for _, signer := range signers {
			state := ledger.Channel(signer.ID)
			if state.TotalClaimed > state.Balance || state.WithdrawAmount > 0 != (state.WithdrawRequestedAt > 0) {
				t.Fatalf("a channel is in the impossible state %+v", state)
			}
			balances, claimed = balances+state.Balance, claimed+state.TotalClaimed
		}
		sums := ledger.Received(Payee)
		if all != 10*genesisBalance || sums.Claimed != claimed || ledger.Balance(Payee) != sums.Settled ||
			ledger.Balance(contractAddress) != balances-sums.Settled {
			t.Fatalf("the sums are wrong: %d in all, %d in channels, %+v received, %d in the contract", all, balances, sums,
				ledger.Balance(contractAddress))
		}
	}
	for range 400 {
		signer := signers[random.IntN(len(signers))]
		state, amount := w.ledger.Channel(signer.ID), random.Uint64N(9000)
		switch random.IntN(7) {
		case 0:
			_, _ = w.facilitator.SettleDeposit(t.Context(), w.sign(signer, state.TotalClaimed+1+random.Uint64N(9), amount+1), w.offer)
		case 1:
			_, _ = w.claim(append(w.claims(signer, amount), w.claims(signers[0], random.Uint64N(9000))...))
		case 2:
			_, _ = w.facilitator.SettleReceiver(t.Context(), receiver)
		case 3:
			_, _ = w.refund(signer, random.Uint64N(9000), amount, state)
		case 4:
			_ = w.ledger.InitiateWithdraw(signer.Config, amount)
		case 5:
			w.ledger.Advance(time.Duration(random.IntN(24)) * time.Hour)
			_, _ = w.ledger.FinalizeWithdraw(signer.Config)
		case 6:
			_ = w.ledger.DepositIntoChannel(signer.Config, amount)
		}
		check(w.ledger)
	}
	noError(t, w.ledger.Close())
	check(openLedger(t, dir))
	if w.ledger.Received(Payee).Settled == 0 {
		t.Error("nothing was paid out, so nothing was tested")
	}
}

func addresses() (all []string) {
	for _, account := range Accounts() {
		all = append(all, account.Address)
	}
	return all
}
