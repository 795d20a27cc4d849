package x402

import (
	"errors"
	"strconv"

	"github.com/parley-chat/parley/x402/evm"
)

// The EIP-712 type hashes of the scheme batch-settlement, and of the EIP-3009 message of its deposits.
var (
	channelTypeHash = evm.Keccak256Hash([]byte("ChannelConfig(address payer,address payerAuthorizer,address receiver," +
		"address receiverAuthorizer,address token,uint40 withdrawDelay,bytes32 salt)"))
	voucherTypeHash    = evm.Keccak256Hash([]byte("Voucher(bytes32 channelId,uint128 maxClaimableAmount)"))
	refundTypeHash     = evm.Keccak256Hash([]byte("Refund(bytes32 channelId,uint256 nonce,uint128 amount)"))
	claimEntryType     = "ClaimEntry(bytes32 channelId,uint128 maxClaimableAmount,uint128 totalClaimed)"
	claimEntryTypeHash = evm.Keccak256Hash([]byte(claimEntryType))
	claimBatchTypeHash = evm.Keccak256Hash([]byte("ClaimBatch(ClaimEntry[] claims)" + claimEntryType))
	receiveTypeHash    = evm.Keccak256Hash([]byte("ReceiveWithAuthorization(address from,address to,uint256 value," +
		"uint256 validAfter,uint256 validBefore,bytes32 nonce)"))
)

// BatchDomain is the EIP-712 domain of [BatchSettlementContract] on one chain. Channels, vouchers, claims and refunds are
// hashed in it; deposits are hashed in the token's [Domain]. Create it with [NewBatchDomain] once per chain.
type BatchDomain struct{ domain Domain }

// NewBatchDomain computes the domain of the contract on a chain.
func NewBatchDomain(chainID uint64) BatchDomain {
	domain, err := NewDomain("x402 Batch Settlement", "1", chainID, BatchSettlementContract)
	if err != nil {
		panic("x402: the contract's address is malformed: " + err.Error()) // a constant
	}
	return BatchDomain{domain}
}

// Separator returns the EIP-712 domain separator.
func (d BatchDomain) Separator() [32]byte { return d.domain.separator }

// ChannelID returns the id of a channel: 0x and 64 lower-case hex digits. It is the EIP-712 digest of the configuration,
// so it differs between chains. ChannelID returns an error for a malformed address, delay or salt.
func (d BatchDomain) ChannelID(c ChannelConfig) (string, error) {
	words := [8]evm.Hash{0: channelTypeHash, 6: evm.Word(c.WithdrawDelay), 7: evm.HexToHash(c.Salt)}
	for i, address := range [...]string{c.Payer, c.PayerAuthorizer, c.Receiver, c.ReceiverAuthorizer, c.Token} {
		if !isAddress(address) {
			return "", errors.New("malformed channel configuration: want addresses of 0x and 40 hex digits")
		}
		words[1+i] = addressWord(address)
	}
	if c.WithdrawDelay >= 1<<40 || !isHex(c.Salt, 32, 32) {
		return "", errors.New("malformed channel configuration: want a withdrawDelay of at most 40 bits and a 32-byte salt")
	}
	return evm.Hash(d.domain.digest(words[:]...)).Hex(), nil
}

// VoucherDigest returns the EIP-712 digest that a payer's authorizer signs. maxClaimableAmount is a decimal below 2^128.
func (d BatchDomain) VoucherDigest(channelID, maxClaimableAmount string) ([32]byte, error) {
	amount, ok := uint128(maxClaimableAmount)
	if !ok || !isHex(channelID, 32, 32) {
		return [32]byte{}, errors.New("malformed voucher: want a 32-byte channelId and a decimal below 2^128")
	}
	return d.domain.digest(voucherTypeHash, evm.HexToHash(channelID), amount), nil
}

// RefundDigest returns the EIP-712 digest that a receiver's authorizer signs to refund amount atomic units. nonce is the
// channel's [Channel.RefundNonce].
func (d BatchDomain) RefundDigest(channelID string, nonce, amount uint64) ([32]byte, error) {
	if !isHex(channelID, 32, 32) {
		return [32]byte{}, errors.New("malformed refund: want a 32-byte channelId")
	}
	return d.domain.digest(refundTypeHash, evm.HexToHash(channelID), evm.Word(nonce), evm.Word(amount)), nil
}

// ClaimBatchDigest returns the EIP-712 digest that a receiver's authorizer signs for a batch of claims. The order of the
// claims counts.
func (d BatchDomain) ClaimBatchDigest(claims []VoucherClaim) ([32]byte, error) {
	entries := make([]evm.Hash, 0, len(claims))
	for _, claim := range claims {
		channelID, err := d.ChannelID(claim.Voucher.Channel)
		if err != nil {
			return [32]byte{}, err
		}
		ceiling, okCeiling := uint128(claim.Voucher.MaxClaimableAmount)
		total, okTotal := uint128(claim.TotalClaimed)
		if !okCeiling || !okTotal {
			return [32]byte{}, errors.New("malformed claim: want decimals below 2^128")
		}
		entries = append(entries, hashWords(claimEntryTypeHash, evm.HexToHash(channelID), ceiling, total))
	}
	return d.domain.digest(claimBatchTypeHash, hashWords(entries...)), nil
}

// DepositNonce returns the EIP-3009 nonce of a deposit: keccak256(abi.encode(channelId, salt)), as 0x and 64 lower-case
// hex digits. It returns an error if one of them is not 0x and 64 hex digits.
func DepositNonce(channelID, salt string) (string, error) {
	if !isHex(channelID, 32, 32) || !isHex(salt, 32, 32) {
		return "", errors.New("malformed deposit: want a 32-byte channelId and a 32-byte salt")
	}
	return hashWords(evm.HexToHash(channelID), evm.HexToHash(salt)).Hex(), nil
}

// DepositDigest returns the EIP-712 digest that a payer signs to deposit into a channel, in the domain of the token. It
// returns an error for a malformed address, number, id or salt.
func (d Domain) DepositDigest(payer, channelID string, deposit ChannelDeposit) ([32]byte, error) {
	message, err := depositMessage(payer, channelID, deposit)
	if err != nil {
		return [32]byte{}, err
	}
	return d.authorizationDigest(receiveTypeHash, message)
}

// depositMessage returns the message of EIP-3009 that is signed for a deposit.
func depositMessage(payer, channelID string, deposit ChannelDeposit) (Authorization, error) {
	signed := deposit.Authorization.ERC3009
	nonce, err := DepositNonce(channelID, signed.Salt)
	if err != nil {
		return Authorization{}, err
	}
	if _, ok := uint128(deposit.Amount); !ok {
		return Authorization{}, errors.New("malformed deposit: want an amount below 2^128")
	}
	return Authorization{
		From: payer, To: DepositCollectorContract, Value: deposit.Amount,
		ValidAfter: signed.ValidAfter, ValidBefore: signed.ValidBefore, Nonce: nonce,
	}, nil
}

// uint128 converts a canonical decimal to a 32-byte big-endian word. It returns false if the string is not canonical or
// the number needs more than 128 bits.
func uint128(decimal string) (word [32]byte, ok bool) {
	word, ok = uint256(decimal)
	return word, ok && [16]byte(word[:16]) == [16]byte{}
}

func isUint128(decimal string) bool {
	_, ok := uint128(decimal)
	return ok
}

// channelAmount converts a canonical decimal to an amount of at most [MaxChannelAmount].
func channelAmount(decimal string) (uint64, bool) {
	amount, err := strconv.ParseUint(decimal, 10, 63)
	return amount, err == nil && isDecimal(decimal)
}
