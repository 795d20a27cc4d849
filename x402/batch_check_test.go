package x402

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newBatchChecker(t testing.TB) BatchChecker {
	t.Helper()
	checker, err := NewBatchChecker(networks...)
	noError(t, "set-up", err)
	return checker
}

// signedBatch returns a payment for the offer. change edits the payload before the voucher, and the deposit if there is
// one, are signed by the payer's key.
func signedBatch(t testing.TB, offer PaymentRequirements, deposit string, change func(p *BatchPayload)) *BatchPayment {
	t.Helper()
	key := keyOf(t, batchPayerKey)
	config, err := NewChannelConfig(batchPayer, batchSalt, offer)
	noError(t, "set-up", err)
	payload := BatchPayload{Type: BatchVoucher, ChannelConfig: config, Voucher: Voucher{MaxClaimableAmount: "1000"}}
	if deposit != "" {
		payload.Type = BatchDeposit
		payload.Deposit = &ChannelDeposit{deposit, DepositAuthorization{ERC3009Deposit{
			ValidAfter: "0", ValidBefore: "1900000060", Salt: "0x" + strings.Repeat("11", 32),
		}}}
	}
	if change != nil {
		change(&payload)
	}
	domain := NewBatchDomain(84532)
	if payload.Voucher.ChannelID == "" {
		payload.Voucher.ChannelID, err = domain.ChannelID(payload.ChannelConfig)
	}
	noError(t, "set-up", err)
	digest, err := domain.VoucherDigest(payload.Voucher.ChannelID, payload.Voucher.MaxClaimableAmount)
	noError(t, "set-up", err)
	if payload.Voucher.Signature == "" {
		payload.Voucher.Signature, err = sign(key, digest)
	}
	noError(t, "set-up", err)
	if payload.Deposit != nil && payload.Deposit.Authorization.ERC3009.Signature == "" {
		digest, err := knownDomain(t, offer.Network).DepositDigest(payload.ChannelConfig.Payer, payload.Voucher.ChannelID, *payload.Deposit)
		noError(t, "set-up", err)
		if payload.Deposit.Authorization.ERC3009.Signature, err = sign(key, digest); err != nil {
			t.Fatal(err)
		}
	}
	return &BatchPayment{X402Version: 2, Accepted: offer, Payload: payload}
}

func TestBatchCheck(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_900_000_000, 0)
	other := "0x" + strings.Repeat("0", 63) + "1"
	for _, row := range []struct {
		name    string
		deposit string
		change  func(p *BatchPayload)
		reason  string
	}{
		{"a voucher", "", nil, ""},
		{"a deposit", "100000", nil, ""},
		{"addresses in lower case", "", func(p *BatchPayload) { p.ChannelConfig.Payer = strings.ToLower(p.ChannelConfig.Payer) }, ""},
		{"another salt", "", func(p *BatchPayload) { p.ChannelConfig.Salt = other }, ""},
		{"another receiver", "", func(p *BatchPayload) { p.ChannelConfig.Receiver = batchPayer }, ReasonBatchReceiver},
		{"another authorizer", "", func(p *BatchPayload) { p.ChannelConfig.ReceiverAuthorizer = batchPayer }, ReasonBatchReceiverAuthorizer},
		{"another token", "", func(p *BatchPayload) { p.ChannelConfig.Token = batchPayer }, ReasonBatchToken},
		{"a shorter delay", "", func(p *BatchPayload) { p.ChannelConfig.WithdrawDelay = 900 }, ReasonBatchWithdrawDelay},
		{"a longer delay", "", func(p *BatchPayload) { p.ChannelConfig.WithdrawDelay++ }, ReasonBatchWithdrawDelay},
		{"a smart wallet signs the vouchers", "", func(p *BatchPayload) { p.ChannelConfig.PayerAuthorizer = zeroAddress },
			ReasonBatchVoucherSignature},
		{"the id of another channel", "", func(p *BatchPayload) { p.Voucher.ChannelID = other }, ReasonBatchChannelID},
		{"the id on another chain", "", func(p *BatchPayload) { p.Voucher.ChannelID, _ = NewBatchDomain(8453).ChannelID(p.ChannelConfig) },
			ReasonBatchChannelID},
		{"another's signature", "", func(p *BatchPayload) { p.ChannelConfig.PayerAuthorizer = batchReceiver }, ReasonBatchVoucherSignature},
		{"a signature for another amount", "", func(p *BatchPayload) {
			p.Voucher.Signature, p.Voucher.MaxClaimableAmount = batchSignature, "1001"
		}, ReasonBatchVoucherSignature},
		{"a signature with a high s", "", func(p *BatchPayload) { p.Voucher.Signature = highS(batchSignature) }, ReasonBatchVoucherSignature},
		{"a signature of 64 bytes", "", func(p *BatchPayload) { p.Voucher.Signature = batchSignature[:130] }, ReasonBatchVoucherSignature},
		{"a signature with v 0", "", func(p *BatchPayload) { p.Voucher.Signature = batchSignature[:130] + "00" }, ReasonBatchVoucherSignature},
		{"more than a ledger holds", "", func(p *BatchPayload) { p.Voucher.MaxClaimableAmount = "9223372036854775808" },
			ReasonBatchExceedsBalance},
		{"a deposit of nothing", "0", nil, ReasonInvalidPayload},
		{"a deposit that a ledger cannot hold", "9223372036854775808", nil, ReasonInvalidPayload},
		{"a deposit signed by another", "5", func(p *BatchPayload) { p.Deposit.Authorization.ERC3009.Signature = batchSignature },
			ReasonBatchDepositSignature},
		{"an expired deposit", "5", func(p *BatchPayload) { p.Deposit.Authorization.ERC3009.ValidBefore = "1900000010" }, ReasonBatchValidBefore},
		{"a deposit valid for days", "5", func(p *BatchPayload) { p.Deposit.Authorization.ERC3009.ValidBefore = "1990000000" },
			ReasonBatchValidBefore},
		{"a deposit of tomorrow", "5", func(p *BatchPayload) { p.Deposit.Authorization.ERC3009.ValidAfter = "1900000001" },
			ReasonBatchValidAfter},
		{"a refund of nothing", "", func(p *BatchPayload) { p.Type, p.Amount = BatchRefund, "0" }, ReasonBatchRefundAmountInvalid},
		{"a refund of some", "", func(p *BatchPayload) { p.Type, p.Amount = BatchRefund, "7" }, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			offer := batchOffer(t)
			_, err := newBatchChecker(t).Check(offer, signedBatch(t, offer, row.deposit, row.change), now)
			if row.reason == "" {
				if err != nil {
					t.Errorf("the check says %v, want no error", err)
				}
				return
			}
			if bad, ok := errors.AsType[*Invalid](err); !ok || bad.Reason != row.reason || bad.Message == "" {
				t.Errorf("the check says %#v, want an *Invalid with reason %s", err, row.reason)
			}
		})
	}
}

func TestBatchCheckFacts(t *testing.T) {
	t.Parallel()
	offer, checker, now := batchOffer(t), newBatchChecker(t), time.Unix(1_900_000_000, 0)
	deposit := signedBatch(t, offer, "100000", nil)
	want := BatchChecked{
		Type: "deposit", ChannelID: batchID, Payer: strings.ToLower(batchPayer), PayerAuthorizer: strings.ToLower(batchPayer), Max: 1000,
		Deposit:      100_000,
		DepositNonce: "0x7b31d990ae936b826fd3f91df48a78fcc2be14268ea91623e587b3e36ab9f7e4", ValidBefore: time.Unix(1_900_000_060, 0).UTC(),
		Conclusive: true,
	}
	got, err := checker.Check(offer, deposit, now)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("the deposit: %v (-want +got):\n%s", err, diff)
	}
	late, err := checker.Check(offer, deposit, now.Add(time.Hour))
	if bad, ok := errors.AsType[*Invalid](err); !ok || !bad.OutOfTime || late.DepositNonce != want.DepositNonce {
		t.Errorf("the expired deposit is %+v, %v, want its nonce and that only its time is wrong", late, err)
	}
	long := signedBatch(t, offer, "100000", func(p *BatchPayload) { p.Deposit.Authorization.ERC3009.Signature = batchSignature + "00" })
	if got, err = checker.Check(offer, long, now); err != nil || got.Conclusive {
		t.Errorf("a smart wallet's deposit is %+v, %v, want one that the chain must judge", got, err)
	}
	forged := signedBatch(t, offer, "100000", func(p *BatchPayload) { p.Deposit.Authorization.ERC3009.Signature = batchSignature })
	if got, err = checker.CheckContract(offer, forged, now); err != nil || got.Conclusive {
		t.Errorf("a contract's deposit with 65 bytes is %+v, %v, want one that the chain must judge", got, err)
	}
	for name, change := range map[string]func(r *PaymentRequirements){
		"network": func(r *PaymentRequirements) { r.Network = "eip155:1" }, "scheme": func(r *PaymentRequirements) { r.Scheme = SchemeExact },
		"asset": func(r *PaymentRequirements) { r.Asset = batchPayer }, "token name": func(r *PaymentRequirements) { r.Extra["name"] = "x" },
		"delay":      func(r *PaymentRequirements) { r.Extra["withdrawDelay"] = 10 },
		"authorizer": func(r *PaymentRequirements) { delete(r.Extra, "receiverAuthorizer") },
	} {
		foreign := batchOffer(t)
		change(&foreign)
		_, err := checker.Check(foreign, deposit, now)
		if _, isInvalid := errors.AsType[*Invalid](err); err == nil || isInvalid {
			t.Errorf("an offer with another %s gives %v, want a mistake of the server", name, err)
		}
	}
}

func TestMatchBatch(t *testing.T) {
	t.Parallel()
	exact := knownNetwork(t, NetworkBaseSepolia).Requirements(1000, batchReceiver, 60)
	offers := []PaymentRequirements{exact, batchOffer(t)}
	for _, row := range []struct {
		name   string
		change func(r *PaymentRequirements)
		want   bool
	}{
		{"the offer", func(*PaymentRequirements) {}, true},
		{"only what decides", func(r *PaymentRequirements) {
			delete(r.Extra, "minDeposit")
			delete(r.Extra, "name")
			r.MaxTimeoutSeconds = 1
		}, true},
		{"an echoed correction", func(r *PaymentRequirements) { r.Extra["channelState"] = map[string]any{"balance": "1"} }, true},
		{"a delay as JSON decodes it", func(r *PaymentRequirements) { r.Extra["withdrawDelay"] = 86400.0 }, true},
		{"addresses in lower case", func(r *PaymentRequirements) {
			r.Asset, r.PayTo, r.Extra["receiverAuthorizer"] = strings.ToLower(r.Asset), strings.ToLower(r.PayTo), strings.ToLower(batchAuthorizer)
		}, true},
		{"another scheme", func(r *PaymentRequirements) { r.Scheme = SchemeExact }, false},
		{"another network", func(r *PaymentRequirements) { r.Network = NetworkBase }, false},
		{"another amount", func(r *PaymentRequirements) { r.Amount = "999" }, false},
		{"another asset", func(r *PaymentRequirements) { r.Asset = batchPayer }, false},
		{"another payee", func(r *PaymentRequirements) { r.PayTo = batchPayer }, false},
		{"another authorizer", func(r *PaymentRequirements) { r.Extra["receiverAuthorizer"] = batchPayer }, false},
		{"no authorizer", func(r *PaymentRequirements) { delete(r.Extra, "receiverAuthorizer") }, false},
		{"another delay", func(r *PaymentRequirements) { r.Extra["withdrawDelay"] = 900 }, false},
		{"a delay in text", func(r *PaymentRequirements) { r.Extra["withdrawDelay"] = "86400" }, false},
		{"a delay with a fraction", func(r *PaymentRequirements) { r.Extra["withdrawDelay"] = 86400.5 }, false},
		{"permit2", func(r *PaymentRequirements) { r.Extra["assetTransferMethod"] = "permit2" }, false},
		{"no extra", func(r *PaymentRequirements) { r.Extra = nil }, false},
	} {
		accepted := batchOffer(t)
		row.change(&accepted)
		got, ok := MatchBatch(offers, &BatchPayment{Accepted: accepted})
		if ok != row.want || ok && cmp.Diff(offers[1], got) != "" {
			t.Errorf("%s: matched %t with %v, want %t", row.name, ok, got, row.want)
		}
	}
	if _, ok := Match(offers[1:], &PaymentPayload{X402Version: 1, Accepted: exact}); ok {
		t.Error("a payment of version 1 matches an offer of payment channels")
	}
}

func TestFits(t *testing.T) {
	t.Parallel()
	sums := ChannelSums{Charged: 3000, Balance: 10_000, TotalClaimed: 2000}
	for _, row := range []struct {
		name    string
		checked BatchChecked
		sums    ChannelSums
		reason  string
	}{
		{"the next voucher", BatchChecked{Type: BatchVoucher, Max: 4000}, sums, ""},
		{"the voucher before", BatchChecked{Type: BatchVoucher, Max: 3000}, sums, ReasonBatchCumulativeMismatch},
		{"a skipped voucher", BatchChecked{Type: BatchVoucher, Max: 5000}, sums, ReasonBatchCumulativeMismatch},
		{"a claimed voucher", BatchChecked{Type: BatchVoucher, Max: 2000}, sums, ReasonBatchBelowClaimed},
		{"less than claimed", BatchChecked{Type: BatchVoucher, Max: 1000}, sums, ReasonBatchBelowClaimed},
		{"the last of the balance", BatchChecked{Type: BatchVoucher, Max: 10_000}, ChannelSums{9000, 10_000, 0}, ""},
		{"more than the balance", BatchChecked{Type: BatchVoucher, Max: 10_001}, ChannelSums{9001, 10_000, 0}, ReasonBatchExceedsBalance},
		{"a top-up in time", BatchChecked{Type: BatchDeposit, Max: 10_001, Deposit: 1}, ChannelSums{9001, 10_000, 0}, ""},
		{"a first deposit", BatchChecked{Type: BatchDeposit, Max: 1000, Deposit: 1000}, ChannelSums{}, ""},
		{"a deposit that is too small", BatchChecked{Type: BatchDeposit, Max: 1000, Deposit: 999}, ChannelSums{}, ReasonBatchExceedsBalance},
		{"a refund", BatchChecked{Type: BatchRefund, Max: 3000}, sums, ""},
		{"a refund when all is claimed", BatchChecked{Type: BatchRefund, Max: 2000}, ChannelSums{2000, 10_000, 2000}, ""},
		{"a refund with a price", BatchChecked{Type: BatchRefund, Max: 4000}, sums, ReasonBatchCumulativeMismatch},
		{"a refund below the claim", BatchChecked{Type: BatchRefund, Max: 1999}, sums, ReasonBatchBelowClaimed},
		{"the largest amounts", BatchChecked{Type: BatchDeposit, Max: MaxChannelAmount, Deposit: MaxChannelAmount},
			ChannelSums{MaxChannelAmount - 1000, MaxChannelAmount, 0}, ""},
	} {
		err := row.checked.Fits(row.sums, 1000)
		bad, _ := errors.AsType[*Invalid](err)
		if row.reason == "" && err != nil || row.reason != "" && (bad == nil || bad.Reason != row.reason || bad.Message == "") {
			t.Errorf("%s: %v, want %q", row.name, err, row.reason)
		}
	}
}

func TestCorrective(t *testing.T) {
	t.Parallel()
	exact := knownNetwork(t, NetworkBaseSepolia).Requirements(1000, batchReceiver, 60)
	offers := []PaymentRequirements{exact, batchOffer(t)}
	before := maps.Clone(offers[1].Extra)
	state := Channel{Balance: 100_000, TotalClaimed: 5, WithdrawRequestedAt: 7, RefundNonce: 1}.State(batchID, 4000)
	corrected := Corrective(offers, state, &VoucherState{"4000", batchSignature})
	if diff := cmp.Diff(before, offers[1].Extra); diff != "" {
		t.Errorf("the server's own offer changed (-before +after):\n%s", diff)
	}
	header, err := EncodePaymentRequired(&PaymentRequired{X402Version: 2, Error: ReasonBatchCumulativeMismatch,
		Resource: ResourceInfo{URL: "https://x"}, Accepts: corrected})
	noError(t, "set-up", err)
	required, err := DecodePaymentRequired(header)
	noError(t, "set-up", err)
	if diff := cmp.Diff(exact, required.Accepts[0]); diff != "" {
		t.Errorf("the offer of scheme exact (-want +got):\n%s", diff)
	}
	gotState, gotVoucher, ok := Correction(required.Accepts[1])
	if diff := cmp.Diff(state, gotState); !ok || diff != "" {
		t.Errorf("the channel's state: %t (-want +got):\n%s", ok, diff)
	}
	if diff := cmp.Diff(&VoucherState{"4000", batchSignature}, gotVoucher); diff != "" {
		t.Errorf("the voucher (-want +got):\n%s", diff)
	}
	if charged, ok := gotState.Charged(); !ok || charged != 4000 {
		t.Errorf("%d was charged (%t), want 4000", charged, ok)
	}
	if _, _, ok := Correction(batchOffer(t)); ok {
		t.Error("a plain offer is a correction")
	}
	if _, ok := MatchBatch(offers, &BatchPayment{Accepted: required.Accepts[1]}); !ok {
		t.Error("the echo of the corrected offer does not match")
	}
}
