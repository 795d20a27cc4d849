package x402

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
)

// What the members of a payment of scheme batch-settlement are, for error messages.
const (
	wantAddress   = "an address in a JSON string: 0x and 40 hex digits"
	wantWord      = "32 bytes in a JSON string: 0x and 64 hex digits"
	wantAmount    = "an amount in atomic units in a JSON string: decimal digits without sign, point and leading zeros, below 2^128"
	wantSeconds   = "Unix seconds in a JSON string: decimal digits without sign and leading zeros"
	wantSignature = "a signature in a JSON string: 0x and 130 hex digits, which are the 65 bytes r, s, v"
	wantObject    = "a JSON object"
)

// batchWants lists the members of a payment of scheme batch-settlement, by JSON pointer.
var batchWants = map[string]string{
	"/payload":      wantObject,
	"/payload/type": `a JSON string: "deposit", "voucher" or "refund"`,
	"/payload/channelConfig": wantObject +
		" {payer, payerAuthorizer, receiver, receiverAuthorizer, token, withdrawDelay, salt}",
	"/payload/channelConfig/payer":              wantAddress,
	"/payload/channelConfig/payerAuthorizer":    wantAddress,
	"/payload/channelConfig/receiver":           wantAddress,
	"/payload/channelConfig/receiverAuthorizer": wantAddress,
	"/payload/channelConfig/token":              wantAddress,
	"/payload/channelConfig/withdrawDelay":      "a JSON number, not a string: whole seconds from 900 to 2592000",
	"/payload/channelConfig/salt":               wantWord,
	"/payload/voucher":                          wantObject + " {channelId, maxClaimableAmount, signature}",
	"/payload/voucher/channelId":                wantWord,
	"/payload/voucher/maxClaimableAmount":       wantAmount,
	"/payload/voucher/signature":                wantSignature,
	"/payload/deposit":                          wantObject + " {amount, authorization}",
	"/payload/deposit/amount":                   wantAmount,
	"/payload/deposit/authorization":            wantObject + " {erc3009Authorization}",
	erc3009Pointer:                              wantObject + " {validAfter, validBefore, salt, signature}",
	erc3009Pointer + "/validAfter":              wantSeconds,
	erc3009Pointer + "/validBefore":             wantSeconds,
	erc3009Pointer + "/salt":                    wantWord,
	erc3009Pointer + "/signature":               wantSignature,
	"/payload/amount":                           wantAmount + "; leave it out to refund everything that is not charged",
}

const erc3009Pointer = "/payload/deposit/authorization/erc3009Authorization"

// serverMembers are the members that a server adds to a refund or sends in commands of its own. A payment that contains
// one could be mistaken for a command.
var serverMembers = []string{"claims", "refundNonce", "refundAuthorizerSignature", "claimAuthorizerSignature", "receiver", "token"}

// batchPayload checks the form of the payload and returns it.
func (w *wireBatchPayload) batchPayload() (BatchPayload, error) {
	payload := BatchPayload{Type: w.Type, ChannelConfig: w.ChannelConfig.ChannelConfig, Voucher: w.Voucher.Voucher}
	switch w.Type {
	case BatchDeposit, BatchVoucher, BatchRefund:
	default:
		return BatchPayload{}, batchFormError(ReasonBatchPayloadType, "/payload/type")
	}
	if err := w.refuseForeign(); err != nil {
		return BatchPayload{}, err
	}
	config, voucher := payload.ChannelConfig, payload.Voucher
	if err := checkForm(ReasonInvalidPayload, batchWants, []formCheck{
		{"/payload/channelConfig/payer", isAddress(config.Payer) && config.Payer != zeroAddress},
		{"/payload/channelConfig/payerAuthorizer", isAddress(config.PayerAuthorizer)},
		{"/payload/channelConfig/receiver", isAddress(config.Receiver)},
		{"/payload/channelConfig/receiverAuthorizer", isAddress(config.ReceiverAuthorizer)},
		{"/payload/channelConfig/token", isAddress(config.Token)},
		{"/payload/channelConfig/withdrawDelay", config.WithdrawDelay > 0 && config.WithdrawDelay < 1<<40},
		{"/payload/channelConfig/salt", isHex(config.Salt, 32, 32)},
		{"/payload/voucher/channelId", isHex(voucher.ChannelID, 32, 32)},
		{"/payload/voucher/maxClaimableAmount", isUint128(voucher.MaxClaimableAmount)},
	}); err != nil {
		return BatchPayload{}, err
	}
	if _, problem := parseSignature(voucher.Signature); problem != "" {
		return BatchPayload{}, &FormError{ReasonBatchVoucherSignature, "payload.voucher.signature " + problem}
	}
	if w.Amount != nil {
		payload.Amount = *w.Amount
		if !isUint128(payload.Amount) {
			return BatchPayload{}, batchFormError(ReasonBatchRefundAmountInvalid, "/payload/amount")
		}
	}
	if w.Deposit != nil {
		deposit, err := w.Deposit.deposit()
		if err != nil {
			return BatchPayload{}, err
		}
		payload.Deposit = deposit
	}
	return payload, nil
}

// refuseForeign rejects members that do not belong to the payload's type.
func (w *wireBatchPayload) refuseForeign() error {
	for name := range w.Unknown {
		for _, member := range serverMembers {
			if strings.EqualFold(name, member) {
				return &FormError{ReasonInvalidPayload, "payload." + member + " is a member that only a server sends to its facilitator; remove it"}
			}
		}
	}
	switch {
	case w.Type == BatchDeposit && w.Deposit == nil:
		return &FormError{ReasonInvalidPayload, "payload.deposit is missing; it is " + batchWants["/payload/deposit"] +
			`. Without a deposit payload.type is "voucher"`}
	case w.Type != BatchDeposit && w.Deposit != nil:
		return &FormError{ReasonInvalidPayload, fmt.Sprintf(`payload.deposit is present, but payload.type is %q; set it to "deposit" or remove `+
			"the deposit", w.Type)}
	case w.Type != BatchRefund && w.Amount != nil:
		return &FormError{ReasonInvalidPayload, fmt.Sprintf("payload.amount is present, but payload.type is %q; only a refund has an amount, a "+
			"deposit has deposit.amount", w.Type)}
	}
	return nil
}

// deposit checks the form of a deposit and returns it.
func (w *wireDeposit) deposit() (*ChannelDeposit, error) {
	permit2 := false
	for name := range w.Authorization.Unknown {
		permit2 = permit2 || strings.EqualFold(name, "permit2Authorization")
	}
	signed := w.Authorization.ERC3009
	switch {
	case permit2 && signed != nil:
		return nil, &FormError{ReasonInvalidPayload, "payload.deposit.authorization has both erc3009Authorization and permit2Authorization; " +
			"it must have exactly one, and this server takes erc3009Authorization only"}
	case permit2:
		return nil, &FormError{ReasonBatchERC3009Required, "payload.deposit.authorization has permit2Authorization, which this server does not " +
			"offer; sign ReceiveWithAuthorization (EIP-3009) and send erc3009Authorization"}
	case signed == nil:
		return nil, batchFormError(ReasonBatchERC3009Required, erc3009Pointer)
	}
	if err := checkForm(ReasonInvalidPayload, batchWants, []formCheck{
		{"/payload/deposit/amount", isUint128(w.Amount)},
		{erc3009Pointer + "/validAfter", isUint256(signed.ValidAfter)},
		{erc3009Pointer + "/validBefore", isUint256(signed.ValidBefore)},
		{erc3009Pointer + "/salt", isHex(signed.Salt, 32, 32)},
	}); err != nil {
		return nil, err
	}
	if !isHex(signed.Signature, signatureBytes, maxSignatureBytes) {
		return nil, &FormError{ReasonBatchDepositSignature,
			fmt.Sprintf("payload.deposit.authorization.erc3009Authorization.signature is missing or not "+
				"0x and hex digits for at least %d and at most %d bytes", signatureBytes, maxSignatureBytes)}
	}
	return &ChannelDeposit{w.Amount, DepositAuthorization{signed.ERC3009Deposit}}, nil
}

// batchFormError describes a member that is missing or malformed.
func batchFormError(reason, pointer string) error {
	return checkForm(reason, batchWants, []formCheck{{pointer, false}})
}

// batchJSONError is jsonFormError, and adds what the member should be.
func batchJSONError(err error) error {
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		pointer := string(semantic.JSONPointer)
		if want, ok := batchWants[pointer]; ok {
			return &FormError{ReasonInvalidPayload, fmt.Sprintf("%s has the wrong JSON type or is out of range; it is %s", dotted(pointer), want)}
		}
	}
	return jsonFormError("payment payload", err)
}
