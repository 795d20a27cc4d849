package x402

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

// TestBatchCommandsOnTheWire: what a facilitator receives, member by member as the official server sends it.
func TestBatchCommandsOnTheWire(t *testing.T) {
	t.Parallel()
	config := `{"payer":"` + batchPayer + `","payerAuthorizer":"` + batchPayer + `","receiver":"` + batchReceiver +
		`","receiverAuthorizer":"` +
		batchAuthorizer + `","token":"0x036CbD53842c5426634e7929541eC2318f3dCF7e","withdrawDelay":86400,"salt":"` + batchSalt + `"}`
	claim := `{"voucher":{"channel":` + config + `,"maxClaimableAmount":"1000"},"signature":"` + batchSignature + `","totalClaimed":"1000"}`
	none := `{"scheme":"batch-settlement","network":"eip155:84532","amount":"0","asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e",` +
		`"payTo":"` +
		batchReceiver + `","maxTimeoutSeconds":0,"extra":{}}`
	offer, err := json.Marshal(batchOffer(t))
	noError(t, "set-up", err)
	envelope := func(requirements, payload string) string {
		return `{"x402Version":2,"paymentPayload":{"x402Version":2,"accepted":` + requirements + `,"payload":` + payload +
			`},"paymentRequirements":` + requirements + `}`
	}
	payment, err := ParseBatchPayment([]byte(goodVoucher))
	noError(t, "set-up", err)
	receiver := ChannelReceiver{NetworkBaseSepolia, knownNetwork(t, NetworkBaseSepolia).Asset, batchReceiver}
	claims := []VoucherClaim{NewClaim(payment.Payload.ChannelConfig, payment.Payload.Voucher)}
	refund := NewRefundCommand(payment.Payload.ChannelConfig, payment.Payload.Voucher, 99_000, Channel{Balance: 100_000, RefundNonce: 3})
	refund.RefundAuthorizerSignature, refund.ClaimAuthorizerSignature = "0x01", "0x02"
	claimed := NewRefundCommand(payment.Payload.ChannelConfig, payment.Payload.Voucher, 99_000, Channel{Balance: 100_000, TotalClaimed: 1000})
	voucher := `{"channelId":"` + batchID + `","maxClaimableAmount":"1000","signature":"` + batchSignature + `"}`
	for _, row := range []struct {
		name string
		send func(f *Facilitator) (*SettleResponse, error)
		want string
	}{
		{"claim", func(f *Facilitator) (*SettleResponse, error) {
			return f.SettleClaims(t.Context(), receiver, claims, "0x03")
		},
			envelope(none, `{"type":"claim","claims":[`+claim+`],"claimAuthorizerSignature":"0x03"}`)},
		{"settle", func(f *Facilitator) (*SettleResponse, error) { return f.SettleReceiver(t.Context(), receiver) },
			envelope(none, `{"type":"settle","receiver":"`+batchReceiver+`","token":"0x036CbD53842c5426634e7929541eC2318f3dCF7e"}`)},
		{"refund", func(f *Facilitator) (*SettleResponse, error) {
			return f.SettleRefund(t.Context(), refund, batchOffer(t))
		},
			envelope(string(offer), `{"type":"refund","channelConfig":`+config+`,"voucher":`+voucher+`,"amount":"99000","refundNonce":"3",`+
				`"claims":[`+claim+
				`],"refundAuthorizerSignature":"0x01","claimAuthorizerSignature":"0x02"}`)},
		{"refund without claims", func(f *Facilitator) (*SettleResponse, error) {
			claimed.Claims = nil
			return f.SettleRefund(t.Context(), claimed, batchOffer(t))
		},
			envelope(string(offer), `{"type":"refund","channelConfig":`+config+`,"voucher":`+voucher+
				`,"amount":"99000","refundNonce":"0","claims":[],"refundAuthorizerSignature":""}`)},
		{"deposit", func(f *Facilitator) (*SettleResponse, error) {
			return f.SettleDeposit(t.Context(), payment, batchOffer(t))
		},
			`{"x402Version":2,"paymentPayload":` + goodVoucher + `,"paymentRequirements":` + string(offer) + `}`},
	} {
		facilitator, _ := facilitatorReplying(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if diff := cmp.Diff(row.want, string(body)); diff != "" || r.URL.Path != "/settle" {
				t.Errorf("%s: the body to %s (-want +got):\n%s", row.name, r.URL.Path, diff)
			}
			says(200, `{"success":true,"transaction":"`+hash+`","network":"eip155:84532"}`)(w, r)
		})
		if verdict, err := row.send(facilitator); err != nil || !verdict.Success {
			t.Errorf("%s: %+v, %v, want a success", row.name, verdict, err)
		}
	}
}

func TestBatchVerdicts(t *testing.T) {
	t.Parallel()
	payment, err := ParseBatchPayment([]byte(goodVoucher))
	noError(t, "set-up", err)
	members := `"channelId":"` + batchID + `","balance":"100000","totalClaimed":"5","withdrawRequestedAt":7,"refundNonce":"1"`
	want := Channel{Balance: 100_000, TotalClaimed: 5, WithdrawRequestedAt: 7, RefundNonce: 1}
	facilitator, _ := facilitatorReplying(t, says(200, `{"isValid":true,"payer":"`+batchPayer+`","extra":{`+members+`}}`),
		says(200, `{"success":true,"transaction":"`+hash+`","network":"eip155:84532","amount":"100000","extra":{"channelState":{`+members+`}}}`))
	verified, err := facilitator.VerifyBatch(t.Context(), payment.AsVoucher(), batchOffer(t))
	if err != nil || !verified.IsValid {
		t.Fatalf("verify says %+v, %v, want that it is valid", verified, err)
	}
	settled, err := facilitator.SettleDeposit(t.Context(), payment, batchOffer(t))
	if err != nil || !settled.Success || settled.Amount != "100000" {
		t.Fatalf("settle says %+v, %v, want a success", settled, err)
	}
	for name, extra := range map[string]jsontext.Value{"verify": verified.Extra, "settle": settled.Extra} {
		got, err := ReportedChannel(extra, batchID)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: the channel: %v (-want +got):\n%s", name, err, diff)
		}
	}
	for name, bad := range map[string]string{
		"nothing": ``, "null": `null`, "an array": `[]`, "no id": `{"balance":"1"}`, "another channel": `{"channelId":"` + batchSalt +
			`","balance":"1","totalClaimed":"0","refundNonce":"0"}`,
		"a number": `{` + strings.Replace(members, `"100000"`, `100000`, 1) + `}`, "too much": `{` +
			strings.Replace(members, `"100000"`, `"9223372036854775808"`, 1) + `}`,
		"claimed more than there is": `{` + strings.Replace(members, `"5"`, `"100001"`, 1) + `}`, "a time in text": `{` +
			strings.Replace(members, `7`, `"7"`, 1) + `}`,
	} {
		if got, err := ReportedChannel(jsontext.Value(bad), batchID); err == nil {
			t.Errorf("%s describes the channel %v, want an error", name, got)
		}
	}
}

// TestBatchPaymentResponse: the header has the members that the official clients read.
func TestBatchPaymentResponse(t *testing.T) {
	t.Parallel()
	state := Channel{Balance: 100_000}.State(batchID, 2000)
	header, err := EncodeSettleResponse(&SettleResponse{
		Success: true, Network: NetworkBaseSepolia, Payer: batchPayer, Extra: BatchExtra{ChargedAmount: "1000", ChannelState: &state}.Encode(),
	})
	noError(t, "set-up", err)
	raw, _ := decodeBase64(HeaderPaymentResponse, header)
	want := fmt.Sprintf(`{"success":true,"transaction":"","network":"eip155:84532","payer":%q,"extra":{"chargedAmount":"1000",`+
		`"channelState":{"channelId":%q,`+
		`"balance":"100000","totalClaimed":"0","withdrawRequestedAt":0,"refundNonce":"0","chargedCumulativeAmount":"2000"}}}`, batchPayer,
		batchID)
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Errorf("PAYMENT-RESPONSE (-want +got):\n%s", diff)
	}
	response, err := DecodeSettleResponse(header)
	noError(t, "set-up", err)
	extra, err := DecodeBatchExtra(response.Extra)
	if diff := cmp.Diff(BatchExtra{"1000", &state}, extra); err != nil || diff != "" {
		t.Errorf("the extra member: %v (-want +got):\n%s", err, diff)
	}
}

func TestChannelSigner(t *testing.T) {
	t.Parallel()
	offer, now := batchOffer(t), time.Unix(1_900_000_000, 0)
	signer, err := NewChannelSigner(NewKeySigner(keyOf(t, batchPayerKey)), batchSalt, offer)
	noError(t, "set-up", err)
	voucher, err := signer.Sign(t.Context(), 1000, 0, now)
	noError(t, "set-up", err)
	wantHex(t, "the voucher's signature", voucher.Payload.Voucher.Signature, batchSignature)
	deposit, err := signer.Sign(t.Context(), 1000, 100_000, now)
	noError(t, "set-up", err)
	refund, err := signer.SignRefund(t.Context(), 1000, 0)
	noError(t, "set-up", err)
	for want, payment := range map[string]*BatchPayment{BatchVoucher: voucher, BatchDeposit: deposit, BatchRefund: refund} {
		header, err := EncodeBatchPayment(payment)
		noError(t, "set-up", err)
		payment, err := DecodePayment(header)
		received, ok := payment.(*BatchPayment)
		if !ok {
			t.Fatalf("our own %s is malformed: %v", want, err)
		}
		checked, err := newBatchChecker(t).Check(offer, received, now)
		if err != nil || checked.Type != want || checked.ChannelID != signer.ID || checked.Max != 1000 {
			t.Errorf("our own %s checks as %+v, %v", want, checked, err)
		}
	}
	if !signer.Signed(1000, batchSignature) || signer.Signed(1001, batchSignature) || signer.Signed(1000, "0x") {
		t.Error("the signer does not tell its own vouchers from others")
	}
	for name, change := range map[string]func(r *PaymentRequirements){
		"exact":                 func(r *PaymentRequirements) { r.Scheme = SchemeExact },
		"permit2":               func(r *PaymentRequirements) { r.Extra["assetTransferMethod"] = "permit2" },
		"no token name":         func(r *PaymentRequirements) { delete(r.Extra, "name") },
		"no delay":              func(r *PaymentRequirements) { delete(r.Extra, "withdrawDelay") },
		"a payee without form":  func(r *PaymentRequirements) { r.PayTo = "x" },
		"another kind of chain": func(r *PaymentRequirements) { r.Network = "solana:1" },
	} {
		odd := batchOffer(t)
		change(&odd)
		if _, err := NewChannelSigner(NewKeySigner(keyOf(t, batchPayerKey)), batchSalt, odd); err == nil {
			t.Errorf("an offer with %s has a signer, want an error", name)
		}
	}
}

func TestChannelOnTheChain(t *testing.T) {
	t.Parallel()
	number := func(n int) string { return fmt.Sprintf("%064x", n) }
	endpoint := newEndpoint(t, func(n int, call rpcCall) (string, error) {
		switch n {
		case 1:
			return `{"number":"0x10","timestamp":"0x20"}`, nil
		case 2: // channels
			return `"0x` + number(100) + number(5) + `"`, nil
		case 3: // pendingWithdrawals
			return `"0x` + number(95) + number(7) + `"`, nil
		case 4, 5: // refundNonce, receivers
			return `"0x` + number(1) + strings.Repeat(number(2), n-4) + `"`, nil
		case 6:
			return `"0x` + strings.Repeat("f", 128) + `"`, nil
		}
		return `"0x"`, nil
	})
	got, at, err := endpoint.Channel(t.Context(), batchID)
	want := Channel{Balance: 100, TotalClaimed: 5, WithdrawAmount: 95, WithdrawRequestedAt: 7, RefundNonce: 1}
	if diff := cmp.Diff(want, got); err != nil || diff != "" || at.Unix() != 32 {
		t.Errorf("the channel at %s: %v (-want +got):\n%s", at, err, diff)
	}
	for i, selector := range map[int]string{1: "0x7a7ebd7b", 2: "", 3: ""} {
		params := string(endpoint.calls[i].Params[0]) + string(endpoint.calls[i].Params[1])
		if !strings.Contains(params, selector) || !strings.Contains(params, batchID[2:]) || !strings.HasSuffix(params, `"0x10"`) {
			t.Errorf("call %d asks for %s, want the channel at block 0x10", i, params)
		}
	}
	sums, err := endpoint.Received(t.Context(), batchReceiver, knownNetwork(t, NetworkBaseSepolia).Asset)
	if err != nil || sums != (ReceivedSums{1, 2}) {
		t.Errorf("the receiver's sums are %+v, %v", sums, err)
	}
	for name, call := range map[string]func() error{
		"amounts above 64 bits": func() error { _, err := endpoint.Received(t.Context(), batchReceiver, batchPayer); return err },
		"no contract":           func() error { _, err := endpoint.Received(t.Context(), batchReceiver, batchPayer); return err },
		"a malformed id":        func() error { _, _, err := endpoint.Channel(t.Context(), "0x12"); return err },
		"a malformed receiver":  func() error { _, err := endpoint.Received(t.Context(), "x", batchPayer); return err },
	} {
		if err := call(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s: %v, want an error", name, err)
		}
	}
}
