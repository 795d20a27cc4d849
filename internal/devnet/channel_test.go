package devnet

import (
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/x402"
)

func TestLifeOfAPaymentChannel(t *testing.T) {
	t.Parallel()
	w := openWorld(t, t.TempDir())
	alice := Accounts()[0]
	signer := w.payer(alice, 0)

	deposit := w.sign(signer, 1000, 100_000)
	verified, err := w.facilitator.VerifyBatch(t.Context(), deposit, w.offer)
	if err != nil || !verified.IsValid || verified.Payer != alice.Address {
		t.Fatalf("verify says %+v, %v, want that the deposit is valid", verified, err)
	}
	settled := w.wantSettled(w.facilitator.SettleDeposit(t.Context(), deposit, w.offer))
	state, err := x402.ReportedChannel(settled.Extra, signer.ID)
	if err != nil || state.Balance != 100_000 || settled.Amount != "100000" || settled.Payer != alice.Address {
		t.Errorf("the deposit says %+v with %+v, %v", settled, state, err)
	}
	wantBalance(t, w.ledger, alice.Address, genesisBalance-100_000)
	wantBalance(t, w.ledger, x402.BatchSettlementContract, 100_000)
	w.wantRejected(x402.ReasonBatchDepositSimulation)(w.facilitator.SettleDeposit(t.Context(), deposit, w.offer))
	verified, err = w.facilitator.VerifyBatch(t.Context(), deposit.AsVoucher(), w.offer)
	if err != nil || !verified.IsValid {
		t.Errorf("verify of the deposit's voucher says %+v, %v, want that the deposit is there", verified, err)
	}

	w.wantRejected(x402.ReasonBatchPayloadType)(w.facilitator.SettleDeposit(t.Context(), w.sign(signer, 5000, 0), w.offer))
	claims := w.claims(signer, 5000)
	w.wantSettled(w.claim(claims))
	w.wantChannel(signer, x402.Channel{Balance: 100_000, TotalClaimed: 5000})
	w.wantSettled(w.claim(claims)) // skipped
	wantBalance(t, w.ledger, Payee, 0)
	paid := w.wantSettled(w.facilitator.SettleReceiver(t.Context(), receiver))
	if paid.Amount != "5000" {
		t.Errorf("the payout is %s, want 5000", paid.Amount)
	}
	wantBalance(t, w.ledger, Payee, 5000)
	w.wantRejected(x402.ReasonBatchNothingToSettle)(w.facilitator.SettleReceiver(t.Context(), receiver))
	if sums, err := w.chain.Received(t.Context(), Payee, token.Asset); err != nil ||
		sums != (x402.ReceivedSums{Claimed: 5000, Settled: 5000}) {
		t.Errorf("the receiver's sums are %+v, %v", sums, err)
	}

	refunded := w.wantSettled(w.refund(signer, 7000, 500_000, w.ledger.Channel(signer.ID)))
	if refunded.Amount != "93000" {
		t.Errorf("the refund is %s, want what was not charged, 93000", refunded.Amount)
	}
	w.wantChannel(signer, x402.Channel{Balance: 7000, TotalClaimed: 7000, RefundNonce: 1})
	wantBalance(t, w.ledger, alice.Address, genesisBalance-7000)
	w.wantRejected(x402.ReasonBatchRefundNoBalance)(w.refund(signer, 7000, 1, w.ledger.Channel(signer.ID)))

	w.deposit(signer, 3000) // the channel goes on
	w.wantChannel(signer, x402.Channel{Balance: 10_000, TotalClaimed: 7000, RefundNonce: 1})
	if want, got := (Transactions{Deposits: 2, Claims: 2, Claimed: 1, Settlements: 1, Refunds: 1}), w.ledger.Transactions(); got != want {
		t.Errorf("the transactions are %+v, want %+v", got, want)
	}
	_, body := call(t, http.MethodGet, w.facilitator.BaseURL+"/balances/"+Payee, "")
	if want := `{"address":"` + Payee + `","balance":"5000","unsettled":"2000"}`; body != want { // the refund claimed 2000
		t.Errorf("the payee has %s, want %s", body, want)
	}
	if paid := w.wantSettled(w.facilitator.SettleReceiver(t.Context(), receiver)); paid.Amount != "2000" {
		t.Errorf("the next payout is %s, want 2000", paid.Amount)
	}
}

// TestClaimBatches: one bad row holds the others, and rows that are claimed already hold nobody.
func TestClaimBatches(t *testing.T) {
	t.Parallel()
	w := openWorld(t, "")
	first, second := w.payer(Accounts()[0], 0), w.payer(Accounts()[1], 0)
	w.deposit(first, 10_000)
	w.deposit(second, 10_000)
	good := w.claims(first, 2000)
	change := func(edit func(row *x402.VoucherClaim)) []x402.VoucherClaim {
		rows := w.claims(second, 3000)
		edit(&rows[0])
		return append(good[:1:1], rows...)
	}
	for _, row := range []struct {
		name   string
		claims []x402.VoucherClaim
		want   Revert
	}{
		{"more than the balance", append(good[:1:1], w.claims(second, 10_001)...), RevertClaimExceedsBalance},
		{"more than the voucher", change(func(row *x402.VoucherClaim) { row.TotalClaimed = "3001" }), RevertClaimExceedsCeiling},
		{"another's signature", change(func(row *x402.VoucherClaim) { row.Signature = good[0].Signature }), RevertInvalidSignature},
		{"a changed voucher", change(func(row *x402.VoucherClaim) { row.Voucher.MaxClaimableAmount = "4000" }), RevertInvalidSignature},
		{"a channel without a deposit", append(good[:1:1], w.claims(w.payer(Accounts()[1], 7), 1000)...), RevertClaimExceedsBalance},
		{"nothing", nil, RevertEmptyBatch},
	} {
		verdict, err := w.claim(row.claims)
		if err != nil || verdict.ErrorReason != x402.ReasonBatchClaimSimulation || verdict.ErrorMessage != row.want.Error() {
			t.Errorf("a batch with %s: %+v, %v, want a failed simulation with %s", row.name, verdict, err, row.want)
		}
	}
	w.wantRejected(x402.ReasonBatchClaimSimulation)(w.facilitator.SettleClaims(t.Context(), receiver, good, w.signClaims(good, Accounts()[3])))
	w.wantRejected(x402.ReasonBatchAuthorizerNotPresent)(w.facilitator.SettleClaims(t.Context(), receiver, good, ""))
	w.wantChannel(first, x402.Channel{Balance: 10_000})

	part := w.claims(second, 3000)
	part[0].TotalClaimed = "1500"
	lower := w.claims(first, 1000) // before and behind a higher one
	w.wantSettled(w.claim(slices.Concat(lower, good, part, lower)))
	w.wantChannel(first, x402.Channel{Balance: 10_000, TotalClaimed: 2000})
	w.wantChannel(second, x402.Channel{Balance: 10_000, TotalClaimed: 1500})
	w.wantSettled(w.claim(append(good, w.claims(second, 3000)...)))
	w.wantChannel(second, x402.Channel{Balance: 10_000, TotalClaimed: 3000})
	if paid := w.wantSettled(w.facilitator.SettleReceiver(t.Context(), receiver)); paid.Amount != "5000" {
		t.Errorf("the payout is %s, want 5000", paid.Amount)
	}
}

func TestWithdrawals(t *testing.T) {
	t.Parallel()
	w := openWorld(t, "")
	alice := Accounts()[0]
	signer := w.payer(alice, 0)
	w.deposit(signer, 10_000)
	revert := func(want Revert, err error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("the contract says %v, want %s", err, want)
		}
	}
	_, err := w.ledger.FinalizeWithdraw(signer.Config)
	revert(RevertWithdrawalNotPending, err)
	revert(RevertNothingToWithdraw, w.ledger.InitiateWithdraw(signer.Config, 0))
	revert(RevertWithdrawAmountExceeds, w.ledger.InitiateWithdraw(signer.Config, 10_001))
	noError(t, w.ledger.InitiateWithdraw(signer.Config, 9000))
	revert(RevertWithdrawalAlreadyPending, w.ledger.InitiateWithdraw(signer.Config, 1))
	at := w.ledger.Channel(signer.ID).WithdrawRequestedAt
	if at == 0 || time.Since(time.Unix(at, 0)) > time.Minute {
		t.Errorf("the withdrawal was initiated at %d, want now", at)
	}
	w.wantChannel(signer, x402.Channel{Balance: 10_000, WithdrawAmount: 9000, WithdrawRequestedAt: at})
	w.wantSettled(w.claim(w.claims(signer, 4000))) // in time
	w.ledger.Advance(86_000 * time.Second)
	_, err = w.ledger.FinalizeWithdraw(signer.Config)
	revert(RevertWithdrawDelayNotElapsed, err)
	w.ledger.Advance(400 * time.Second)
	amount, err := w.ledger.FinalizeWithdraw(signer.Config)
	if err != nil || amount != 6000 {
		t.Errorf("the withdrawal is %d, %v, want what is not claimed, 6000", amount, err)
	}
	w.wantChannel(signer, x402.Channel{Balance: 4000, TotalClaimed: 4000})
	wantBalance(t, w.ledger, alice.Address, genesisBalance-4000)
	w.wantRejected(x402.ReasonBatchClaimSimulation)(w.claim(w.claims(signer, 5000))) // too late
}

func TestRefunds(t *testing.T) {
	t.Parallel()
	w := openWorld(t, "")
	signer := w.payer(Accounts()[0], 0)
	w.deposit(signer, 10_000)
	noError(t, w.ledger.InitiateWithdraw(signer.Config, 5000))
	at := w.ledger.Channel(signer.ID).WithdrawRequestedAt
	w.wantSettled(w.refund(signer, 1000, 2000, x402.Channel{}))
	w.wantChannel(signer, x402.Channel{Balance: 8000, TotalClaimed: 1000, WithdrawAmount: 3000, WithdrawRequestedAt: at, RefundNonce: 1})
	w.wantRejected(x402.ReasonBatchRefundSimulation)(w.refund(signer, 1000, 2000, x402.Channel{TotalClaimed: 1000})) // the nonce is used
	w.wantRejected(x402.ReasonBatchRefundSimulation)(w.refund(signer, 1000, 0, w.ledger.Channel(signer.ID)))
	if err := w.ledger.RefundChannel(signer.Config, 3000); err != nil {
		t.Errorf("the receiver's own refund: %v", err)
	}
	w.wantChannel(signer, x402.Channel{Balance: 5000, TotalClaimed: 1000, RefundNonce: 2}) // the withdrawal is over
	if err := w.ledger.RefundChannel(signer.Config, 0); !errors.Is(err, RevertZeroRefund) {
		t.Errorf("a refund of nothing says %v", err)
	}
	payment := w.sign(signer, 1000, 0)
	command := x402.NewRefundCommand(signer.Config, payment.Payload.Voucher, 1, w.ledger.Channel(signer.ID))
	w.wantRejected(x402.ReasonBatchAuthorizerMismatch)(w.facilitator.SettleRefund(t.Context(), command, w.offer))
}

// TestPlainDeposits: a payer can deposit by itself, also from an account that nobody authorized.
func TestPlainDeposits(t *testing.T) {
	t.Parallel()
	w := openWorld(t, "")
	signer := w.payer(Accounts()[0], 0)
	noError(t, w.ledger.DepositIntoChannel(signer.Config, 4000))
	w.wantChannel(signer, x402.Channel{Balance: 4000})
	for name, row := range map[string]struct {
		change func(c *x402.ChannelConfig)
		amount uint64
		want   error
	}{
		"nothing":        {func(*x402.ChannelConfig) {}, 0, RevertZeroDeposit},
		"too much":       {func(*x402.ChannelConfig) {}, genesisBalance, errInsufficientBalance},
		"no receiver":    {func(c *x402.ChannelConfig) { c.Receiver = zeroAddress }, 1, RevertInvalidChannel},
		"another token":  {func(c *x402.ChannelConfig) { c.Token = Payee }, 1, RevertInvalidChannel},
		"a short delay":  {func(c *x402.ChannelConfig) { c.WithdrawDelay = 899 }, 1, RevertWithdrawDelayOutOfRange},
		"a long delay":   {func(c *x402.ChannelConfig) { c.WithdrawDelay = 2_592_001 }, 1, RevertWithdrawDelayOutOfRange},
		"a payer's form": {func(c *x402.ChannelConfig) { c.Payer = "alice" }, 1, RevertInvalidChannel},
	} {
		config := signer.Config
		row.change(&config)
		if err := w.ledger.DepositIntoChannel(config, row.amount); !errors.Is(err, row.want) {
			t.Errorf("a deposit with %s says %v, want %v", name, err, row.want)
		}
	}
}

func TestChannelsSurvive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := openWorld(t, dir)
	signer := w.payer(Accounts()[0], 0)
	w.deposit(signer, 10_000)
	w.wantSettled(w.claim(w.claims(signer, 2000)))
	w.wantSettled(w.claim(w.claims(signer, 1000))) // a block without effect
	w.wantSettled(w.facilitator.SettleReceiver(t.Context(), receiver))
	w.wantSettled(w.refund(signer, 3000, 1000, w.ledger.Channel(signer.ID)))
	noError(t, w.ledger.InitiateWithdraw(signer.Config, 500))
	w.ledger.Advance(48 * time.Hour)
	_, err := w.ledger.FinalizeWithdraw(signer.Config)
	noError(t, err)
	before, balance := w.ledger.Channel(signer.ID), w.ledger.Balance(Accounts()[0].Address)
	noError(t, w.ledger.Close())
	again := openLedger(t, dir)
	if diff := cmp.Diff(before, again.Channel(signer.ID)); diff != "" ||
		again.Received(Payee) != (x402.ReceivedSums{Claimed: 3000, Settled: 2000}) {
		t.Errorf("after a restart the receiver has %+v (-before +after):\n%s", again.Received(Payee), diff)
	}
	wantBalance(t, again, Accounts()[0].Address, balance)
	if again.Now().Before(time.Now().Add(47 * time.Hour)) {
		t.Errorf("the clock is %s after a restart, which is before the newest block", again.Now())
	}
}

// TestMalformedChannelRequests: what is not a request of the scheme has status 400, and is never a success.
func TestMalformedChannelRequests(t *testing.T) {
	t.Parallel()
	w := openWorld(t, "")
	offer := `{"scheme":"batch-settlement","network":"` + NetworkID + `","amount":"0","asset":"` + token.Asset + `","payTo":"` + Payee + `"}`
	config := `{"payer":"0x","withdrawDelay":900}`
	for name, payload := range map[string]string{
		"nothing": `null`, "an unknown type": `{"type":"open"}`, "a type that is a number": `{"type":1}`, "an array": `[]`,
		"a claim without rows' form": `{"type":"claim","claims":[{"voucher":{"channel":` + config +
			`,"maxClaimableAmount":"1"},"signature":"0x","totalClaimed":"1"}],"claimAuthorizerSignature":"0x"}`,
		"a claim with unknown members":   `{"type":"claim","claims":[],"claimAuthorizerSignature":"0x","extra":1}`,
		"a payout to nobody":             `{"type":"settle","receiver":"","token":""}`,
		"a refund without a channel":     `{"type":"refund","channelConfig":` + config + `,"amount":"1","refundNonce":"0","claims":[]}`,
		"a refund that a payer sent":     `{"type":"refund","channelConfig":` + config + `,"amount":"1"}`,
		"a claim with amounts as number": `{"type":"claim","claims":[{"totalClaimed":1}]}`,
	} {
		body := `{"x402Version":2,"paymentPayload":{"x402Version":2,"accepted":` + offer + `,"payload":` + payload + `},"paymentRequirements":` +
			offer + `}`
		wantRefused(t, w.facilitator, name, body, http.StatusBadRequest, "")
	}
	body := `{"x402Version":1,"paymentPayload":{"accepted":` + offer + `},"paymentRequirements":` + offer + `}`
	if status, reply := call(t, http.MethodPost, w.facilitator.BaseURL+"/settle", body); status != http.StatusBadRequest {
		t.Errorf("version 1: status %d, %s, want 400", status, reply)
	}
}
