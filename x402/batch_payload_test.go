package x402

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const (
	batchID        = "0xc1dff174783ad884fe991265467539a277133bb411bf3560d010d27289ef1794"
	batchSignature = "0x632b65b3b5b0af265dccc4784fc1ba63ab5634e80d7217eb63af71351d9c66531ad" +
		"fff15055e2eb8c4ac08be741f270608548dbc252a8ec2881c1965c3cace681b"
	batchDeposit = `, "deposit": {"amount": "100000", "authorization": {"erc3009Authorization": {
      "validAfter": "0", "validBefore": "4102444800",
      "salt": "0x1111111111111111111111111111111111111111111111111111111111111111",
      "signature": "0xd45227b4d3f8e5d14785ef75d8248aaebf51bf0f4aa0e818493a661f990eb7503c063e7` +
		`dd7041041397d33e9c9f9ead50ef2628e2209a7ba45887dddd1f55e441b"}}}`
	// goodVoucher is the first voucher of the vectors for Base Sepolia.
	goodVoucher = `{
  "x402Version": 2,
  "resource": {"url": "https://host.example/chat/private/send"},
  "accepted": {"scheme": "batch-settlement", "network": "eip155:84532", "amount": "1000",
    "asset": "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "payTo": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
    "maxTimeoutSeconds": 60, "extra": {"name": "USDC", "version": "2",
      "receiverAuthorizer": "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC", "withdrawDelay": 86400, "minDeposit": "100000"}},
  "payload": {"type": "voucher",
    "channelConfig": {"payer": "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
      "payerAuthorizer": "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266",
      "receiver": "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", "receiverAuthorizer": "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
      "token": "0x036CbD53842c5426634e7929541eC2318f3dCF7e", "withdrawDelay": 86400,
      "salt": "0x0000000000000000000000000000000000000000000000000000000000000000"},
    "voucher": {"channelId": "` + batchID + `", "maxClaimableAmount": "1000",
      "signature": "` + batchSignature + `"}}
}`
)

var (
	goodDeposit = strings.Replace(goodVoucher, `"type": "voucher"`, `"type": "deposit"`+batchDeposit, 1)
	goodRefund  = strings.Replace(goodVoucher, `"type": "voucher"`, `"type": "refund", "amount": "1500"`, 1)
)

// batchParsing is one change to a good payment, and the reason and a part of the message that come of it.
type batchParsing struct {
	name     string
	old, new string
	reason   string // "" if it is still good
	remedy   string
}

func testBatchParsing(t *testing.T, good string, rows []batchParsing) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(good, row.old) {
				t.Fatalf("the good payment does not hold %s", row.old)
			}
			raw := strings.Replace(good, row.old, row.new, 1)
			payment, err := DecodePayment(encoded(raw))
			if _, exact := payment.(*PaymentPayload); exact {
				t.Fatal("the payment counts as one of scheme exact")
			}
			if row.reason == "" {
				if err != nil || string(payment.Raw()) != raw {
					t.Errorf("parsing says %v, want the payment with its raw JSON", err)
				}
				return
			}
			form, ok := errors.AsType[*FormError](err)
			if !ok || form.Reason != row.reason || payment != nil {
				t.Fatalf("parsing says %#v, want a *FormError with reason %s", err, row.reason)
			}
			if !strings.Contains(form.Message, row.remedy) || strings.Contains(form.Message, "632b65b3b5") {
				t.Errorf("the message is %q, want %q in it and no signature", form.Message, row.remedy)
			}
		})
	}
}

func TestParseVoucher(t *testing.T) {
	t.Parallel()
	config, high := `"channelConfig": {`, highS(batchSignature)
	testBatchParsing(t, goodVoucher, []batchParsing{
		{"the good voucher", "", "", "", ""},
		{"unknown members", `"type"`, `"future": {"a": 1}, "type"`, "", ""},
		{"an id in upper case", batchID, "0x" + strings.ToUpper(batchID[2:]), "", ""},
		{"a channelState echoed", `"minDeposit"`, `"channelState": {"balance": "1"}, "minDeposit"`, "", ""},
		{"the largest amount", `"maxClaimableAmount": "1000"`, `"maxClaimableAmount": "340282366920938463463374607431768211455"`, "", ""},
		{"version 1", `"x402Version": 2`, `"x402Version": 1`, ReasonInvalidVersion, "version 2 only"},
		{"no type", `"type": "voucher",`, ``, ReasonBatchPayloadType, `"deposit", "voucher" or "refund"`},
		{"another type", `"type": "voucher"`, `"type": "claim"`, ReasonBatchPayloadType, `"deposit", "voucher" or "refund"`},
		{"a type that is a number", `"type": "voucher"`, `"type": 1`, ReasonInvalidPayload, `payload.type has the wrong JSON type`},
		{"no channel", config, `"was": {`, ReasonInvalidPayload, "payload.channelConfig.payer is missing"},
		{"channel null", config, `"channelConfig": null, "was": {`, ReasonInvalidPayload, "payload.channelConfig.payer is missing"},
		{"channel an array", config, `"channelConfig": [], "was": {`, ReasonInvalidPayload, "payload.channelConfig has the wrong JSON type"},
		{"payer zero", `"payer": "` + batchPayer, `"payer": "` + zeroAddress, ReasonInvalidPayload, "payload.channelConfig.payer"},
		{"a payer without 0x", `"payer": "0x`, `"payer": "`, ReasonInvalidPayload, "0x and 40 hex digits"},
		{"a short token", `"token": "0x036C`, `"token": "0x03`, ReasonInvalidPayload, "payload.channelConfig.token"},
		{"a delay in text", `"withdrawDelay": 86400,
`, `"withdrawDelay": "86400",
`, ReasonInvalidPayload,
			"payload.channelConfig.withdrawDelay has the wrong JSON type or is out of range; it is a JSON number, not a string"},
		{"a delay with a fraction", `"withdrawDelay": 86400,
`, `"withdrawDelay": 86400.5,
`, ReasonInvalidPayload, "whole seconds"},
		{"a negative delay", `"withdrawDelay": 86400,
`, `"withdrawDelay": -1,
`, ReasonInvalidPayload, "whole seconds"},
		{"a delay of 41 bits", `"withdrawDelay": 86400,
`, `"withdrawDelay": 1099511627776,
`, ReasonInvalidPayload, "from 900 to 2592000"},
		{"a delay of 65 bits", `"withdrawDelay": 86400,
`, `"withdrawDelay": 36893488147419103232,
`, ReasonInvalidPayload, "from 900 to 2592000"},
		{"a salt that is a number", batchSalt, "0", ReasonInvalidPayload, "payload.channelConfig.salt is missing or malformed; it must be 32"},
		{"no id", `"channelId"`, `"was"`, ReasonInvalidPayload, "payload.voucher.channelId"},
		{"an id of 31 bytes", batchID, batchID[:64], ReasonInvalidPayload, "0x and 64 hex digits"},
		{"an amount that is a number", `"maxClaimableAmount": "1000"`, `"maxClaimableAmount": 1000`, ReasonInvalidPayload, "in a JSON string"},
		{"an amount with a zero in front", `"1000",
      "sig`, `"01000",
      "sig`, ReasonInvalidPayload, "leading zeros"},
		{"a negative amount", `"maxClaimableAmount": "1000"`, `"maxClaimableAmount": "-1000"`, ReasonInvalidPayload, "without sign"},
		{"an amount with a point", `"maxClaimableAmount": "1000"`, `"maxClaimableAmount": "0.001"`, ReasonInvalidPayload, "atomic units"},
		{"an amount in hex", `"maxClaimableAmount": "1000"`, `"maxClaimableAmount": "0x3e8"`, ReasonInvalidPayload, "decimal digits"},
		{"an amount of 129 bits", `"maxClaimableAmount": "1000"`, `"maxClaimableAmount": "340282366920938463463374607431768211456"`,
			ReasonInvalidPayload, "below 2^128"},
		{"no signature", `"signature": "` + batchSignature + `"`, `"was": 1`, ReasonBatchVoucherSignature, "is missing"},
		{"a signature of 64 bytes", batchSignature, batchSignature[:130], ReasonBatchVoucherSignature, "EIP-2098"},
		{"a signature of 66 bytes", batchSignature, batchSignature + "00", ReasonBatchVoucherSignature, "has 66 bytes"},
		{"a signature with v 0", batchSignature, batchSignature[:130] + "00", ReasonBatchVoucherSignature, "add 27"},
		{"a signature with v 1", batchSignature, batchSignature[:130] + "01", ReasonBatchVoucherSignature, "add 27"},
		{"a signature with v 29", batchSignature, batchSignature[:130] + "1d", ReasonBatchVoucherSignature, "0x1b or 0x1c"},
		{"a signature with a high s", batchSignature, high, ReasonBatchVoucherSignature, "low-s twin"},
		{"a signature that is not hex", batchSignature, batchSignature[:130] + "zz", ReasonBatchVoucherSignature, "hex digits"},
		{"a signature with 0X", batchSignature, "0X" + batchSignature[2:], ReasonBatchVoucherSignature, "hex digits"},
		{"a deposit in a voucher", `"type": "voucher"`, `"type": "voucher"` + batchDeposit, ReasonInvalidPayload, `set it to "deposit"`},
		{"a refund's amount in a voucher", `"type": "voucher"`, `"type": "voucher", "amount": "1"`, ReasonInvalidPayload,
			"only a refund has an amount"},
		{"a server's member", `"type"`, `"claims": [], "type"`, ReasonInvalidPayload, "payload.claims"},
		{"a server's member in another case", `"type"`, `"RefundNonce": "0", "type"`, ReasonInvalidPayload, "payload.refundNonce"},
		{"a duplicate name", `"type"`, `"type": "voucher", "type"`, ReasonInvalidPayload, "duplicate names"},
		{"a lookalike in the voucher", `"channelId"`, `"channelID": "0x", "channelId"`, ReasonInvalidPayload, "letter case"},
		{"a lookalike in the channel", `"payer"`, `"PAYER": "0x", "payer"`, ReasonInvalidPayload, "letter case"},
		{"permit2 accepted", `"minDeposit"`, `"assetTransferMethod": "permit2", "minDeposit"`, ReasonUnsupportedPayload, "EIP-3009 only"},
		{"accepted without amount", `"amount": "1000",`, ``, ReasonInvalidPayload, "accepted.amount"},
	})
}

func TestParseDepositAndRefund(t *testing.T) {
	t.Parallel()
	testBatchParsing(t, goodDeposit, []batchParsing{
		{"the good deposit", "", "", "", ""},
		{"a smart wallet's signature", `ddd1f55e441b"`, `ddd1f55e441b` + strings.Repeat("00", 100) + `"`, "", ""},
		{"no deposit", batchDeposit, "", ReasonInvalidPayload, `payload.type is "voucher"`},
		{"deposit null", `"deposit": {`, `"deposit": null, "was": {`, ReasonInvalidPayload, "payload.deposit is missing"},
		{"no authorization", `"authorization"`, `"was"`, ReasonBatchERC3009Required, "erc3009Authorization is missing"},
		{"neither of two authorizations", `"erc3009Authorization"`, `"was"`, ReasonBatchERC3009Required,
			"{validAfter, validBefore, salt, signature}"},
		{"both authorizations", `"erc3009Authorization"`, `"permit2Authorization": {}, "erc3009Authorization"`, ReasonInvalidPayload,
			"exactly one"},
		{"permit2", `"erc3009Authorization"`, `"permit2Authorization"`, ReasonBatchERC3009Required, "EIP-3009"},
		{"a deposit that is a number", `"amount": "100000"`, `"amount": 100000`, ReasonInvalidPayload,
			"payload.deposit.amount has the wrong JSON type"},
		{"a deposit of 129 bits", `"amount": "100000"`, `"amount": "` + unlimited[:39] + `"`, ReasonInvalidPayload, "payload.deposit.amount"},
		{"a time that is a number", `"validBefore": "4102444800"`, `"validBefore": 4102444800`, ReasonInvalidPayload, "in a JSON string"},
		{"a time in words", `"validBefore": "4102444800"`, `"validBefore": "tomorrow"`, ReasonInvalidPayload, "erc3009Authorization.validBefore"},
		{"a short salt", "0x1111", "0x11", ReasonInvalidPayload, "erc3009Authorization.salt"},
		{"a deposit's signature of 64 bytes", `ddd1f55e441b"`, `ddd1f55e44"`, ReasonBatchDepositSignature, "at least 65"},
		{"a lookalike in the deposit", `"validAfter"`, `"validafter": "9", "validAfter"`, ReasonInvalidPayload, "letter case"},
	})
	testBatchParsing(t, goodRefund, []batchParsing{
		{"the good refund", "", "", "", ""},
		{"a refund of everything", `, "amount": "1500"`, "", "", ""},
		{"a refund's amount that is a number", `"1500"`, `1500`, ReasonInvalidPayload, "payload.amount has the wrong JSON type"},
		{"a malformed refund's amount", `"1500"`, `""`, ReasonBatchRefundAmountInvalid, "leave it out"},
		{"a deposit in a refund", `"type": "refund", "amount": "1500"`, `"type": "refund"` + batchDeposit, ReasonInvalidPayload, `"deposit"`},
	})
}

// TestDecodePaymentOfEitherScheme: the scheme decides, not words elsewhere in the payment.
func TestDecodePaymentOfEitherScheme(t *testing.T) {
	t.Parallel()
	payment, err := DecodePayment(encoded(strings.Replace(goodPayload, "Send a private message", "batch-settlement", 1)))
	if _, exact := payment.(*PaymentPayload); err != nil || !exact {
		t.Errorf("a payment of scheme exact that mentions the other: %#v, %v", payment, err)
	}
	for name, bad := range map[string]string{"nothing": "", "base64url": "-_==", "junk": encoded("batch-settlement"),
		"an array": encoded(`["batch-settlement"]`)} {
		payment, err := DecodePayment(bad)
		if _, ok := errors.AsType[*FormError](err); !ok || payment != nil {
			t.Errorf("%s: decoding says %#v, want a *FormError", name, err)
		}
	}
	if _, err := ParseBatchPayment([]byte(goodPayload)); err == nil {
		t.Error("a payment of scheme exact is parsed as a voucher")
	}
}

func TestAsVoucher(t *testing.T) {
	t.Parallel()
	deposit, err := ParseBatchPayment([]byte(goodDeposit))
	noError(t, "set-up", err)
	want, err := ParseBatchPayment([]byte(goodVoucher))
	noError(t, "set-up", err)
	got := deposit.AsVoucher()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(BatchPayment{})); diff != "" || got.Raw() != nil ||
		deposit.Payload.Deposit == nil {
		t.Errorf("the deposit as a voucher (-want +got):\n%s", diff)
	}
}

// batchOffer is the offer that the vectors for Base Sepolia pay.
func batchOffer(t testing.TB) PaymentRequirements {
	return knownNetwork(t, NetworkBaseSepolia).BatchRequirements(1000, batchReceiver, 60,
		ChannelTerms{ReceiverAuthorizer: batchAuthorizer, WithdrawDelay: 86400, MinDeposit: 100_000})
}

func TestBatchRequirementsOnTheWire(t *testing.T) {
	t.Parallel()
	raw, err := json.Marshal(batchOffer(t))
	want := `{"scheme":"batch-settlement","network":"eip155:84532","amount":"1000","asset":"0x036CbD53842c5426634e7929541eC2318f3dCF7e",` +
		`"payTo":"` + batchReceiver + `","maxTimeoutSeconds":60,"extra":{"minDeposit":"100000","name":"USDC",` +
		fmt.Sprintf(`"receiverAuthorizer":%q,"version":"2","withdrawDelay":86400}}`, batchAuthorizer)
	if diff := cmp.Diff(want, string(raw)); err != nil || diff != "" {
		t.Errorf("the offer: %v (-want +got):\n%s", err, diff)
	}
}
