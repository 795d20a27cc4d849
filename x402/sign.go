package x402

import (
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402/evm"
)

// Sign pays one offer of a 402 response: it authorizes the transfer of exactly the offered amount, from now until
// maxTimeoutSeconds later, under a random nonce, and echoes resource and extensions. An offer that is not scheme exact
// by EIP-3009 on an EVM chain, or that lacks the token's name and version, is an error. Whether the price is
// acceptable is the caller's decision.
func Sign(key *ecdsa.PrivateKey, offer PaymentRequirements, resource *ResourceInfo, extensions map[string]jsontext.Value,
	now time.Time,
) (*PaymentPayload, error) {
	if offer.Scheme != SchemeExact {
		return nil, fmt.Errorf("pay: the offer's scheme is %q, want %q", offer.Scheme, SchemeExact)
	}
	if method, ok := offer.Extra["assetTransferMethod"]; ok && method != "eip3009" {
		return nil, fmt.Errorf("pay: the offer wants another transfer method than EIP-3009")
	}
	domain, err := DomainOf(offer)
	if err != nil {
		return nil, fmt.Errorf("pay: %w", err)
	}
	var nonce [32]byte
	_, _ = rand.Read(nonce[:]) // never fails: without randomness the program ends
	authorization := Authorization{
		From:  evm.PubkeyToAddress(key.PublicKey).Hex(),
		To:    offer.PayTo,
		Value: offer.Amount,
		// Not "now": chains and servers whose clocks lag ours would find it not yet valid.
		ValidAfter:  "0",
		ValidBefore: strconv.FormatInt(now.Unix()+int64(offer.MaxTimeoutSeconds), 10),
		Nonce:       "0x" + hex.EncodeToString(nonce[:]),
	}
	signature, err := SignAuthorization(key, domain, authorization)
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
