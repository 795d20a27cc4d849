package devnet

import (
	"testing"
	"time"

	"github.com/parley-chat/parley/x402"
)

func TestVerifyChannelPayments(t *testing.T) {
	t.Parallel()
	alice := Accounts()[0]
	for name, row := range map[string]struct {
		max, deposit uint64
		change       func(w *world, p *x402.BatchPayment)
		reason       string
	}{
		"a voucher":               {2000, 0, nil, ""},
		"a top-up":                {12_000, 5000, nil, ""},
		"the whole balance":       {10_000, 0, nil, ""},
		"more than the balance":   {10_001, 0, nil, x402.ReasonBatchExceedsBalance},
		"more than a top-up":      {10_002, 1, nil, x402.ReasonBatchExceedsBalance},
		"what is claimed":         {1000, 0, nil, x402.ReasonBatchBelowClaimed},
		"a refund of what is not": {1000, 0, func(_ *world, p *x402.BatchPayment) { p.Payload.Type = x402.BatchRefund }, ""},
		"a refund below the claim": {999, 0, func(_ *world, p *x402.BatchPayment) { p.Payload.Type = x402.BatchRefund },
			x402.ReasonBatchBelowClaimed},
		"an unknown channel": {2000, 0, func(w *world, p *x402.BatchPayment) { *p = *w.sign(w.payer(alice, 9), 2000, 0) },
			x402.ReasonBatchChannelNotFound},
		"a deposit without money": {2000, genesisBalance, nil, x402.ReasonBatchInsufficientBalance},
		"another channel's voucher": {2000, 0, func(w *world, p *x402.BatchPayment) { p.Payload.Voucher.ChannelID = w.payer(alice, 9).ID },
			x402.ReasonBatchChannelID},
		"another amount's signature": {2000, 0, func(_ *world, p *x402.BatchPayment) { p.Payload.Voucher.MaxClaimableAmount = "3000" },
			x402.ReasonBatchVoucherSignature},
		"another amount deposited": {2000, 5, func(_ *world, p *x402.BatchPayment) { p.Payload.Deposit.Amount = "6" },
			x402.ReasonBatchDepositSignature},
		"an expired deposit": {2000, 5, func(w *world, _ *x402.BatchPayment) { w.ledger.Advance(time.Hour) },
			x402.ReasonBatchValidBefore},
		"another payee": {2000, 0, func(w *world, _ *x402.BatchPayment) { w.offer.PayTo = alice.Address }, x402.ReasonBatchReceiver},
		"another asset": {2000, 0, func(w *world, _ *x402.BatchPayment) { w.offer.Asset = alice.Address }, x402.ReasonBatchToken},
		"another delay": {2000, 0, func(w *world, _ *x402.BatchPayment) { w.offer.Extra["withdrawDelay"] = 900 },
			x402.ReasonBatchWithdrawDelay},
		"another authorizer": {2000, 0, func(w *world, _ *x402.BatchPayment) { w.offer.Extra["receiverAuthorizer"] = alice.Address },
			x402.ReasonBatchReceiverAuthorizer},
		"another network": {2000, 0, func(w *world, _ *x402.BatchPayment) { w.offer.Network = x402.NetworkBase },
			x402.ReasonBatchNetworkMismatch},
		"another scheme": {2000, 0, func(w *world, _ *x402.BatchPayment) { w.offer.Scheme = x402.SchemeExact }, x402.ReasonBatchScheme},
		"another token name": {2000, 5, func(w *world, _ *x402.BatchPayment) { w.offer.Extra["name"] = "USD Coin" },
			x402.ReasonBatchDepositSignature},
		"no token name": {2000, 5, func(w *world, _ *x402.BatchPayment) { delete(w.offer.Extra, "name") }, x402.ReasonBatchMissingDomain},
		"a delay of a minute": {2000, 0, func(w *world, p *x402.BatchPayment) {
			p.Payload.ChannelConfig.WithdrawDelay, w.offer.Extra["withdrawDelay"] = 60, 60
			p.Payload.Voucher.ChannelID, _ = channelDomain.ChannelID(p.Payload.ChannelConfig)
		}, x402.ReasonBatchWithdrawDelayRange},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := openWorld(t, "")
			signer := w.payer(alice, 0)
			w.deposit(signer, 10_000)
			w.wantSettled(w.claim(w.claims(signer, 1000)))
			payment := w.sign(signer, row.max, row.deposit)
			if row.change != nil {
				row.change(w, payment)
				payment = w.receive(payment)
			}
			verdict, err := w.facilitator.VerifyBatch(t.Context(), payment, w.offer)
			if err != nil || verdict.IsValid != (row.reason == "") || verdict.InvalidReason != row.reason {
				t.Errorf("verify says %+v, %v, want %q", verdict, err, row.reason)
			}
			if row.reason == "" {
				if state, err := x402.ReportedChannel(verdict.Extra, signer.ID); err != nil || state.Balance != 10_000 || state.TotalClaimed != 1000 {
					t.Errorf("the verdict names the channel %+v, %v", state, err)
				}
			}
		})
	}
}
