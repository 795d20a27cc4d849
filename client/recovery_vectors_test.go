package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// recoveryVector has the numbers of a recovery vector for batch-settlement: docs/schemes/batch-settlement-recovery-vectors/v0 of
// x402-foundation/x402, pull request 2491, at 6c09bf65. Each call costs 10 from a channel of 1000.
type recoveryVector struct {
	scenario    string
	claimed     uint64 // on the chain
	unavailable bool   // the chain
	local       uint64 // what the client believes to be charged
	// charged is what the server has charged at each request, in the corrective 402 to it. After these it accepts.
	charged []uint64
	signed  []uint64 // the vouchers that the client may sign
	status  int
	after   uint64 // what the client believes in the end
}

var recoveryVectors = []recoveryVector{
	{scenario: "happy-path", charged: []uint64{100}, signed: []uint64{10, 110}, status: 200, after: 110},
	{scenario: "cas-conflict", local: 100, charged: []uint64{110}, signed: []uint64{110, 120}, status: 200, after: 120},
	{scenario: "invalid-corrective-state", claimed: 150, charged: []uint64{100, 100}, signed: []uint64{10}, status: 402},
	{scenario: "loop-guard", charged: []uint64{100, 200, 200}, signed: []uint64{10, 110}, status: 402, after: 100},
	{scenario: "loop-guard-unchanged", charged: []uint64{100, 100, 100}, signed: []uint64{10, 110}, status: 402, after: 100},
	{scenario: "transient-state-unavailable", claimed: 40, unavailable: true, charged: []uint64{50, 50}, signed: []uint64{10}, status: 402},
}

// Channel is the chain of a vector.
func (v recoveryVector) Channel(context.Context, string) (x402.Channel, time.Time, error) {
	if v.unavailable {
		return x402.Channel{}, time.Time{}, errors.New("the endpoint is unavailable")
	}
	return x402.Channel{Balance: 1000, TotalClaimed: v.claimed}, time.Now(), nil
}

// TestRecoveryVectors: a client corrects its state once, and only by what the chain and its own signatures allow. The vectors leave out
// the voucher that proves what was charged (voucherState); the first corrective 402 has it here, because the client has lost its state.
func TestRecoveryVectors(t *testing.T) {
	t.Parallel()
	for _, v := range recoveryVectors {
		t.Run(v.scenario, func(t *testing.T) {
			t.Parallel()
			sepolia, _ := x402.LookupNetwork(devnet.NetworkID)
			offers := []x402.PaymentRequirements{sepolia.BatchRequirements(10, devnet.Payee, 60, x402.ChannelTerms{
				ReceiverAuthorizer: devnet.Accounts()[2].Address, WithdrawDelay: 86_400,
			})}
			signer, err := x402.NewChannelSigner(x402.NewKeySigner(accountKey(t, 0)), "0x"+strings.Repeat("0", 64), offers[0])
			testkit.NoError(t, err)
			store := &client.MemoryChannels{}
			testkit.NoError(t, store.Save(signer.ID, client.PaymentChannel{Charged: v.local, Signed: v.local, Balance: 1000}))
			channels := channelPayer(t, store)
			channels.Chain = v
			var signed []uint64
			response, _, err := channels.Pay(t.Context(), &x402.PaymentRequired{Accepts: offers}, 0, func(
				ctx context.Context, header string,
			) (*http.Response, error) {
				payment, err := x402.DecodePayment(header)
				testkit.NoError(t, err)
				signed = append(signed, amountOf(t, payment))
				return v.respond(ctx, t, signer, offers, len(signed)), nil
			})
			testkit.NoError(t, err)
			_ = response.Body.Close()
			stored, err := store.Load(signer.ID)
			if response.StatusCode != v.status || !slices.Equal(signed, v.signed) || stored.Charged != v.after || err != nil {
				t.Errorf("status %d after vouchers for %v, then charged %d (%v); want %+v", response.StatusCode, signed, stored.Charged, err, v)
			}
		})
	}
}

func amountOf(t *testing.T, payment x402.Payment) (amount uint64) {
	t.Helper()
	batch, ok := payment.(*x402.BatchPayment)
	if !ok || batch.Payload.Type != x402.BatchVoucher {
		t.Fatalf("a payment %+v, want a voucher", payment)
	}
	_, err := fmt.Sscan(batch.Payload.Voucher.MaxClaimableAmount, &amount)
	testkit.NoError(t, err)
	return amount
}

// respond is the server's response to a request.
func (v recoveryVector) respond(
	ctx context.Context, t *testing.T, signer *x402.ChannelSigner, offers []x402.PaymentRequirements, request int,
) *http.Response {
	t.Helper()
	recorded := httptest.NewRecorder()
	chain := x402.Channel{Balance: 1000, TotalClaimed: v.claimed}
	if request > len(v.charged) {
		state := chain.State(signer.ID, v.after)
		header, err := x402.EncodeSettleResponse(&x402.SettleResponse{Success: true, Network: devnet.NetworkID,
			Extra: x402.BatchExtra{ChargedAmount: "10", ChannelState: &state}.Encode()})
		testkit.NoError(t, err)
		recorded.Header().Set(x402.HeaderPaymentResponse, header)
		return recorded.Result()
	}
	charged := v.charged[request-1]
	var newest *x402.VoucherState
	if request == 1 && v.after > 0 {
		proof, err := signer.Sign(ctx, charged, 0, time.Now())
		testkit.NoError(t, err)
		newest = &x402.VoucherState{SignedMaxClaimable: fmt.Sprint(charged), Signature: proof.Payload.Voucher.Signature}
	}
	demand(t, recorded, &x402.PaymentRequired{
		Error: x402.ReasonBatchCumulativeMismatch, Accepts: x402.Corrective(offers, chain.State(signer.ID, charged), newest),
	})
	return recorded.Result()
}
