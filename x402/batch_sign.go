package x402

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"strconv"
	"time"
)

// VoucherClaim is one row of a batch of claims: a payer's voucher, and how much of it is claimed.
type VoucherClaim struct {
	Voucher ClaimedVoucher `json:"voucher"`
	// Signature is the payer's, as in [Voucher.Signature].
	Signature string `json:"signature"`
	// TotalClaimed is the cumulative amount that is claimed, at most MaxClaimableAmount, a decimal below 2^128. The
	// contract skips the row if it is not above what was claimed before.
	TotalClaimed string `json:"totalClaimed"`
}

// ClaimedVoucher is a voucher in a claim. It contains the channel's configuration in place of its id.
type ClaimedVoucher struct {
	Channel            ChannelConfig `json:"channel"`
	MaxClaimableAmount string        `json:"maxClaimableAmount"`
}

// NewClaim returns the claim of a voucher's whole amount.
func NewClaim(config ChannelConfig, voucher Voucher) VoucherClaim {
	return VoucherClaim{
		Voucher:   ClaimedVoucher{config, voucher.MaxClaimableAmount},
		Signature: voucher.Signature, TotalClaimed: voucher.MaxClaimableAmount,
	}
}

// NewChannelConfig returns the channel of a payer that an offer asks for. The payer's key also signs the vouchers. salt
// is 0x and 64 hex digits. NewChannelConfig returns an error if the offer is not of scheme batch-settlement or its terms
// are malformed.
func NewChannelConfig(payer, salt string, offer PaymentRequirements) (ChannelConfig, error) {
	terms, err := TermsOf(offer)
	if err != nil {
		return ChannelConfig{}, err
	}
	return ChannelConfig{
		Payer: payer, PayerAuthorizer: payer, Receiver: offer.PayTo, ReceiverAuthorizer: terms.ReceiverAuthorizer,
		Token: offer.Asset, WithdrawDelay: terms.WithdrawDelay, Salt: salt,
	}, nil
}

// ChannelIDOf returns the id of a channel on the chain of an offer.
func ChannelIDOf(config ChannelConfig, network string) (string, error) {
	chainID, err := ParseChainID(network)
	if err != nil {
		return "", err
	}
	return NewBatchDomain(chainID).ChannelID(config)
}

// SignVoucher signs a voucher for a cumulative amount in atomic units. signer is the channel's payerAuthorizer.
func (d BatchDomain) SignVoucher(ctx context.Context, signer Signer, channelID string, maxClaimable uint64) (Voucher, error) {
	voucher := Voucher{ChannelID: channelID, MaxClaimableAmount: strconv.FormatUint(maxClaimable, 10)}
	digest, err := d.VoucherDigest(voucher.ChannelID, voucher.MaxClaimableAmount)
	if err != nil {
		return Voucher{}, err
	}
	voucher.Signature, err = signTypedData(ctx, signer,
		d.domain.typedData("Voucher", voucherFields, digest, voucher.ChannelID, voucher.MaxClaimableAmount))
	return voucher, err
}

// SignClaims signs a batch of claims. key belongs to the receiverAuthorizer of every channel in it.
func (d BatchDomain) SignClaims(key *ecdsa.PrivateKey, claims []VoucherClaim) (string, error) {
	digest, err := d.ClaimBatchDigest(claims)
	if err != nil {
		return "", err
	}
	return sign(key, digest)
}

// SignRefund signs a refund of amount atomic units. nonce is the channel's [Channel.RefundNonce]; key belongs to its
// receiverAuthorizer.
func (d BatchDomain) SignRefund(key *ecdsa.PrivateKey, channelID string, nonce, amount uint64) (string, error) {
	digest, err := d.RefundDigest(channelID, nonce, amount)
	if err != nil {
		return "", err
	}
	return sign(key, digest)
}

// SignDeposit signs a deposit of amount atomic units of the token of domain. It is valid from now until validity later.
// Its salt is random.
func SignDeposit(
	ctx context.Context, signer Signer, domain Domain, channelID string, amount uint64, now time.Time, validity time.Duration,
) (ChannelDeposit, error) {
	deposit := ChannelDeposit{
		Amount: strconv.FormatUint(amount, 10),
		Authorization: DepositAuthorization{ERC3009Deposit{
			ValidAfter:  "0", // not now: see Sign
			ValidBefore: strconv.FormatInt(now.Add(validity).Unix(), 10),
			Salt:        randomWord(),
		}},
	}
	message, err := depositMessage(signer.Address(), channelID, deposit)
	if err != nil {
		return ChannelDeposit{}, err
	}
	deposit.Authorization.ERC3009.Signature, err = domain.signAuthorization(ctx, signer, "ReceiveWithAuthorization", receiveTypeHash, message)
	return deposit, err
}

// ChannelSigner signs a payer's messages for one channel. The payer's key also signs the vouchers.
type ChannelSigner struct {
	// Config and ID are the channel.
	Config ChannelConfig
	ID     string

	signer Signer
	offer  PaymentRequirements
	domain BatchDomain
	token  Domain
}

// NewChannelSigner returns a signer for the channel that an offer asks for. salt is 0x and 64 hex digits. It returns an
// error if the offer is not of scheme batch-settlement by EIP-3009 on an EVM chain, or lacks the token's name or version.
func NewChannelSigner(signer Signer, salt string, offer PaymentRequirements) (*ChannelSigner, error) {
	config, err := NewChannelConfig(signer.Address(), salt, offer)
	if err != nil {
		return nil, fmt.Errorf("pay by channel: %w", err)
	}
	token, err := DomainOf(offer)
	if err != nil {
		return nil, fmt.Errorf("pay by channel: %w", err)
	}
	domain := NewBatchDomain(token.ChainID)
	id, err := domain.ChannelID(config)
	if err != nil {
		return nil, fmt.Errorf("pay by channel: %w", err)
	}
	return &ChannelSigner{config, id, signer, offer, domain, token}, nil
}

// Sign returns a payment of type [BatchDeposit] if deposit is not 0, else of type [BatchVoucher]. maxClaimable is the
// cumulative amount, including the request. Resource and extensions are left to the caller.
func (s *ChannelSigner) Sign(ctx context.Context, maxClaimable, deposit uint64, now time.Time) (*BatchPayment, error) {
	voucher, err := s.domain.SignVoucher(ctx, s.signer, s.ID, maxClaimable)
	if err != nil {
		return nil, fmt.Errorf("pay by channel: %w", err)
	}
	payload := BatchPayload{Type: BatchVoucher, ChannelConfig: s.Config, Voucher: voucher}
	if deposit > 0 {
		signed, err := s.SignDeposit(ctx, deposit, now)
		if err != nil {
			return nil, err
		}
		payload.Type, payload.Deposit = BatchDeposit, &signed
	}
	return &BatchPayment{X402Version: Version, Accepted: s.offer, Payload: payload}, nil
}

// SignDeposit returns a deposit of amount atomic units into the channel.
func (s *ChannelSigner) SignDeposit(ctx context.Context, amount uint64, now time.Time) (ChannelDeposit, error) {
	deposit, err := SignDeposit(ctx, s.signer, s.token, s.ID, amount, now, time.Duration(s.offer.MaxTimeoutSeconds)*time.Second)
	if err != nil {
		return ChannelDeposit{}, fmt.Errorf("deposit into channel: %w", err)
	}
	return deposit, nil
}

// SignRefund returns a payment of type [BatchRefund]. charged is what the channel was charged; amount is what to refund,
// or 0 for everything that is not charged.
func (s *ChannelSigner) SignRefund(ctx context.Context, charged, amount uint64) (*BatchPayment, error) {
	payment, err := s.Sign(ctx, charged, 0, time.Time{})
	if err != nil {
		return nil, err
	}
	payment.Payload.Type = BatchRefund
	if amount > 0 {
		payment.Payload.Amount = strconv.FormatUint(amount, 10)
	}
	return payment, nil
}

// Signed reports whether the channel's payer signed a voucher for a cumulative amount.
func (s *ChannelSigner) Signed(maxClaimable uint64, signature string) bool {
	voucher := Voucher{ChannelID: s.ID, MaxClaimableAmount: strconv.FormatUint(maxClaimable, 10), Signature: signature}
	return s.domain.VerifyVoucher(voucher, s.Config.PayerAuthorizer) == nil
}
