package x402

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
)

// parseSignature returns the 65 bytes r, s, v of a signature of a private key, or why the contracts would reject it whatever it signs, as a
// phrase for the payer. They accept v 27 or 28 and a low s. A server that accepted more could not settle or claim.
func parseSignature(signature string) (raw []byte, problem string) {
	if signature == "" {
		return nil, "is missing"
	}
	if !isHex(signature, 1, maxSignatureBytes) {
		return nil, "is not 0x and an even number of hex digits"
	}
	raw, _ = hex.DecodeString(signature[2:])
	switch {
	case len(raw) == signatureBytes-1:
		return nil, "has 64 bytes (EIP-2098), which the contract rejects: send 65 bytes r, s, v"
	case len(raw) != signatureBytes:
		return nil, fmt.Sprintf("has %d bytes, want 65 bytes r, s, v by a private key", len(raw))
	case raw[64] != 27 && raw[64] != 28:
		return nil, fmt.Sprintf("ends with v %d (0x%02x), want 27 or 28 (0x1b or 0x1c): add 27 to a v of 0 or 1", raw[64], raw[64])
	case bytes.Compare(raw[32:64], halfOrder[:]) > 0:
		return nil, "has a high s, which the contract rejects: use its low-s twin"
	}
	return raw, ""
}

// SignedBy reports whether the key of an address made a signature over an EIP-712 digest of this scheme, in the form that the
// contract accepts: 65 bytes, v 27 or 28, low s.
func SignedBy(digest [32]byte, signature, address string) bool {
	signer, err := RecoverHex(digest, signature)
	return err == nil && strings.EqualFold(signer, address)
}

// VerifyVoucher checks that the key of authorizer signed the voucher, and that the contract accepts the signature. The
// error is an [*Invalid].
func (d BatchDomain) VerifyVoucher(voucher Voucher, authorizer string) error {
	digest, err := d.VoucherDigest(voucher.ChannelID, voucher.MaxClaimableAmount)
	if err != nil {
		return invalid(ReasonBatchVoucherSignature, "%s", err)
	}
	signer, err := RecoverHex(digest, voucher.Signature)
	if err != nil {
		return invalid(ReasonBatchVoucherSignature, "voucher.signature: %s; sign {channelId, maxClaimableAmount} with EIP-712 by the key of "+
			"channelConfig.payerAuthorizer", err)
	}
	if !strings.EqualFold(signer, authorizer) {
		return invalid(ReasonBatchVoucherSignature, "voucher.signature is not by channelConfig.payerAuthorizer %s: sign exactly this voucher "+
			"with its key, in %s", authorizer, d.domain)
	}
	return nil
}
