package devnet

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/x402"
)

// receiverTerms are those of the tests' server. Account 2 is its receiverAuthorizer.
var (
	receiverTerms = x402.ChannelTerms{ReceiverAuthorizer: Accounts()[2].Address, WithdrawDelay: 86_400}
	receiver      = x402.ChannelReceiver{Network: NetworkID, Asset: token.Asset, PayTo: Payee}
)

// world is a running dev network, and what the tests' server and payers do with it.
type world struct {
	*testing.T
	network     *Facilitator
	ledger      *Ledger
	facilitator *x402.Facilitator
	chain       *x402.Chain
	offer       x402.PaymentRequirements
}

func openWorld(t *testing.T, dir string) *world {
	network, ledger, facilitator := serve(t, dir)
	return &world{t, network, ledger, facilitator, &x402.Chain{URL: facilitator.BaseURL + "/rpc"},
		token.BatchRequirements(1000, Payee, 60, receiverTerms)}
}

// payer returns the signer for channel n of an account.
func (w *world) payer(account Account, n int) *x402.ChannelSigner {
	w.Helper()
	signer, err := x402.NewChannelSigner(x402.NewKeySigner(keyOf(w.T, account)), nonce(n), w.offer)
	noError(w, err)
	return signer
}

// sign returns a payment as the server receives it.
func (w *world) sign(signer *x402.ChannelSigner, maxClaimable, deposit uint64) *x402.BatchPayment {
	w.Helper()
	payment, err := signer.Sign(w.Context(), maxClaimable, deposit, w.ledger.Now())
	noError(w, err)
	return w.receive(payment)
}

func (w *world) receive(payment *x402.BatchPayment) *x402.BatchPayment {
	w.Helper()
	header, err := x402.EncodeBatchPayment(payment)
	noError(w, err)
	decoded, err := x402.DecodePayment(header)
	received, _ := decoded.(*x402.BatchPayment)
	noError(w, err)
	return received
}

// deposit settles a deposit with its first voucher.
func (w *world) deposit(signer *x402.ChannelSigner, amount uint64) {
	w.Helper()
	w.wantSettled(w.facilitator.SettleDeposit(w.Context(), w.sign(signer, w.ledger.Channel(signer.ID).TotalClaimed+1000, amount), w.offer))
}

func (w *world) claims(signer *x402.ChannelSigner, maxClaimable uint64) []x402.VoucherClaim {
	w.Helper()
	payment := w.sign(signer, maxClaimable, 0)
	return []x402.VoucherClaim{x402.NewClaim(payment.Payload.ChannelConfig, payment.Payload.Voucher)}
}

// signClaims signs with the key of an account, which should be the receiverAuthorizer.
func (w *world) signClaims(claims []x402.VoucherClaim, by Account) string {
	w.Helper()
	signature, err := channelDomain.SignClaims(keyOf(w.T, by), claims)
	noError(w, err)
	return signature
}

func (w *world) claim(claims []x402.VoucherClaim) (*x402.SettleResponse, error) {
	w.Helper()
	return w.facilitator.SettleClaims(w.Context(), receiver, claims, w.signClaims(claims, Accounts()[2]))
}

// refund asks for a refund with the newest voucher.
func (w *world) refund(signer *x402.ChannelSigner, charged, amount uint64, state x402.Channel) (*x402.SettleResponse, error) {
	w.Helper()
	payment := w.sign(signer, charged, 0)
	command := x402.NewRefundCommand(signer.Config, payment.Payload.Voucher, amount, state)
	var err error
	if command.RefundAuthorizerSignature, err = channelDomain.SignRefund(keyOf(w.T, Accounts()[2]), signer.ID, state.RefundNonce,
		amount); err != nil {
		w.Fatal(err)
	}
	if len(command.Claims) > 0 {
		command.ClaimAuthorizerSignature = w.signClaims(command.Claims, Accounts()[2])
	}
	return w.facilitator.SettleRefund(w.Context(), command, w.offer)
}

func (w *world) wantSettled(verdict *x402.SettleResponse, err error) *x402.SettleResponse {
	w.Helper()
	if err != nil || !verdict.Success {
		w.Fatalf("settle says %+v, %v, want a success", verdict, err)
	}
	return verdict
}

// wantRejected returns a function for the result of a settlement.
func (w *world) wantRejected(reason string) func(*x402.SettleResponse, error) {
	return func(verdict *x402.SettleResponse, err error) {
		w.Helper()
		if err != nil || verdict.Success || verdict.ErrorReason != reason {
			w.Errorf("settle says %+v, %v, want a rejection with %s", verdict, err, reason)
		}
	}
}

// wantChannel compares the chain's and the ledger's state of a channel.
func (w *world) wantChannel(signer *x402.ChannelSigner, want x402.Channel) {
	w.Helper()
	got, _, err := w.chain.Channel(w.Context(), signer.ID)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		w.Errorf("the channel: %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(want, w.ledger.Channel(signer.ID)); diff != "" {
		w.Errorf("the channel in the ledger (-want +got):\n%s", diff)
	}
}
