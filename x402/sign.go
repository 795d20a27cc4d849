package x402

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402/evm"
)

// Sign creates a signed payment for one of the payment requirements of a 402 response. The payment authorizes the
// transfer of exactly the required amount, is valid from now until maxTimeoutSeconds later, has a random nonce, and
// echoes resource and extensions. Sign returns an error if the payment requirements are not of scheme exact by EIP-3009
// on an EVM chain, or if they lack the token's name or version. Sign does not limit the amount: the caller decides
// whether the price is acceptable.
func Sign(ctx context.Context, signer Signer, offer PaymentRequirements, resource *ResourceInfo, extensions map[string]jsontext.Value,
	now time.Time,
) (*PaymentPayload, error) {
	if offer.Scheme != SchemeExact {
		return nil, fmt.Errorf("pay: the offer's scheme is %q, want %q", offer.Scheme, SchemeExact)
	}
	if method, ok := offer.Extra["assetTransferMethod"]; ok && method != "eip3009" {
		return nil, fmt.Errorf("pay: the offer requires a transfer method other than EIP-3009")
	}
	domain, err := DomainOf(offer)
	if err != nil {
		return nil, fmt.Errorf("pay: %w", err)
	}
	authorization := Authorization{
		From:  signer.Address(),
		To:    offer.PayTo,
		Value: offer.Amount,
		// ValidAfter is 0 and not now, because the authorization would not be valid yet on a chain or server whose
		// clock is behind.
		ValidAfter:  "0",
		ValidBefore: strconv.FormatInt(now.Unix()+int64(offer.MaxTimeoutSeconds), 10),
		Nonce:       randomWord(),
	}
	signature, err := domain.signAuthorization(ctx, signer, "TransferWithAuthorization", transferTypeHash, authorization)
	if err != nil {
		return nil, fmt.Errorf("pay: %w", err)
	}
	return &PaymentPayload{
		X402Version: Version,
		Resource:    resource,
		Accepted:    offer,
		Payload:     ExactPayload{signature, authorization},
		Extensions:  extensions,
	}, nil
}

// randomWord returns 32 random bytes: 0x and 64 hex digits.
func randomWord() string {
	var word [32]byte
	_, _ = rand.Read(word[:]) // never returns an error: the program ends if there is no randomness
	return "0x" + hex.EncodeToString(word[:])
}

// signAuthorization signs a message of EIP-3009 that has the members of an Authorization.
func (d Domain) signAuthorization(ctx context.Context, signer Signer, primaryType string, typeHash evm.Hash,
	a Authorization) (string, error) {
	digest, err := d.authorizationDigest(typeHash, a)
	if err != nil {
		return "", err
	}
	return signTypedData(ctx, signer,
		d.typedData(primaryType, authorizationFields, digest, a.From, a.To, a.Value, a.ValidAfter, a.ValidBefore, a.Nonce))
}
