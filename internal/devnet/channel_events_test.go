package devnet

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// TestChannelEvents: the contract tells what each transaction did, and eth_getLogs finds the events by contract, topic and channel.
func TestChannelEvents(t *testing.T) {
	t.Parallel()
	w := openWorld(t, "")
	signer := w.payer(Accounts()[0], 0)
	deposit := w.wantSettled(w.facilitator.SettleDeposit(t.Context(), w.sign(signer, 1000, 5000), w.offer))
	claim := w.wantSettled(w.claim(w.claims(signer, 2000)))
	again := w.wantSettled(w.claim(w.claims(signer, 3500)))
	payout := w.wantSettled(w.facilitator.SettleReceiver(t.Context(), receiver))
	none := map[string]uint64{}
	of := func(amount uint64) map[string]uint64 { return map[string]uint64{strings.ToLower(signer.ID): amount} }
	for name, one := range map[string]struct {
		transaction string
		want        x402.ChannelTransaction
	}{
		"the deposit":    {deposit.Transaction, x402.ChannelTransaction{Deposited: of(5000), Claimed: none, Refunded: none, Settled: none}},
		"the claim":      {claim.Transaction, x402.ChannelTransaction{Deposited: none, Claimed: of(2000), Refunded: none, Settled: none}},
		"the next claim": {again.Transaction, x402.ChannelTransaction{Deposited: none, Claimed: of(1500), Refunded: none, Settled: none}},
		"the payout": {payout.Transaction, x402.ChannelTransaction{Deposited: none, Claimed: none, Refunded: none,
			Settled: map[string]uint64{strings.ToLower(Payee): 3500}}},
	} {
		did, err := w.chain.ChannelTransaction(t.Context(), token.Asset, one.transaction)
		if diff := cmp.Diff(one.want, did); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := w.chain.ChannelTransaction(t.Context(), token.Asset, nonce(99)); err == nil {
		t.Error("an unknown transaction has events")
	}
	noError(t, w.ledger.RefundChannel(signer.Config, 500))
	for _, test := range []struct {
		name, address, topics string
		want                  int
	}{
		{"all of the contract", x402.BatchSettlementContract, `null`, 6},
		{"claims", x402.BatchSettlementContract, `"` + topicClaimed.Hex() + `"`, 2},
		{"refunds of the channel", x402.BatchSettlementContract, `"` + topicRefunded.Hex() + `","` + signer.ID + `"`, 1},
		{"refunds of another channel", x402.BatchSettlementContract, `"` + topicRefunded.Hex() + `","` + nonce(1) + `"`, 0},
		{"claims by the token", token.Asset, `"` + topicClaimed.Hex() + `"`, 0},
		{"an address without events", evm.HexToAddress("0x1").Hex(), `null`, 0},
	} {
		body := `{"jsonrpc":"2.0","id":1,"method":"eth_getLogs","params":[{"address":"` + test.address +
			`","fromBlock":"0x0","toBlock":"latest","topics":[` + test.topics + `]}]}`
		_, reply := call(t, http.MethodPost, w.facilitator.BaseURL+"/rpc", body)
		if n := strings.Count(reply, `"logIndex"`); n != test.want {
			t.Errorf("%s: %d events, want %d: %s", test.name, n, test.want, reply)
		}
	}
}
