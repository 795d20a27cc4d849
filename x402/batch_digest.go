package x402

import (
	"encoding/binary"
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
	addresses := [...]string{c.Payer, c.PayerAuthorizer, c.Receiver, c.ReceiverAuthorizer, c.Token}
	var encoded [8 * 32]byte
	copy(encoded[0:], channelTypeHash[:])
	for i, address := range addresses {
		if !isAddress(address) {
			return "", errors.New("malformed channel configuration: want addresses of 0x and 40 hex digits")
		}
		putHex(encoded[44+32*i:64+32*i], address)
	}
	if c.WithdrawDelay >= 1<<40 || !isHex(c.Salt, 32, 32) {
		return "", errors.New("malformed channel configuration: want a withdrawDelay of at most 40 bits and a 32-byte salt")
	}
	binary.BigEndian.PutUint64(encoded[216:224], c.WithdrawDelay)
	putHex(encoded[224:256], c.Salt)
	return evm.Hash(d.domain.digest(encoded[:])).Hex(), nil
}

// VoucherDigest returns the EIP-712 digest that a payer's authorizer signs. maxClaimableAmount is a decimal below 2^128.
func (d BatchDomain) VoucherDigest(channelID, maxClaimableAmount string) ([32]byte, error) {
	amount, ok := uint128(maxClaimableAmount)
	if !ok || !isHex(channelID, 32, 32) {
		return [32]byte{}, errors.New("malformed voucher: want a 32-byte channelId and a decimal below 2^128")
	}
	var encoded [3 * 32]byte
	copy(encoded[0:], voucherTypeHash[:])
	putHex(encoded[32:64], channelID)
	copy(encoded[64:], amount[:])
	return d.domain.digest(encoded[:]), nil
}

// RefundDigest returns the EIP-712 digest that a receiver's authorizer signs to refund amount atomic units. nonce is the
// channel's [Channel.RefundNonce].
func (d BatchDomain) RefundDigest(channelID string, nonce, amount uint64) ([32]byte, error) {
	if !isHex(channelID, 32, 32) {
		return [32]byte{}, errors.New("malformed refund: want a 32-byte channelId")
	}
	var encoded [4 * 32]byte
	copy(encoded[0:], refundTypeHash[:])
	putHex(encoded[32:64], channelID)
	binary.BigEndian.PutUint64(encoded[88:96], nonce)
	binary.BigEndian.PutUint64(encoded[120:128], amount)
	return d.domain.digest(encoded[:]), nil
}

// ClaimBatchDigest returns the EIP-712 digest that a receiver's authorizer signs for a batch of claims. The order of the
// claims counts.
func (d BatchDomain) ClaimBatchDigest(claims []VoucherClaim) ([32]byte, error) {
	entries := make([]byte, 0, 32*len(claims))
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
		var encoded [4 * 32]byte
		copy(encoded[0:], claimEntryTypeHash[:])
		putHex(encoded[32:64], channelID)
		copy(encoded[64:], ceiling[:])
		copy(encoded[96:], total[:])
		entries = append(entries, evm.Keccak256(encoded[:])...)
	}
	var encoded [2 * 32]byte
	copy(encoded[0:], claimBatchTypeHash[:])
	copy(encoded[32:], evm.Keccak256(entries))
	return d.domain.digest(encoded[:]), nil
}

// DepositNonce returns the EIP-3009 nonce of a deposit: keccak256(abi.encode(channelId, salt)), as 0x and 64 lower-case
// hex digits. It returns an error if one of them is not 0x and 64 hex digits.
func DepositNonce(channelID, salt string) (string, error) {
	if !isHex(channelID, 32, 32) || !isHex(salt, 32, 32) {
		return "", errors.New("malformed deposit: want a 32-byte channelId and a 32-byte salt")
	}
	var encoded [2 * 32]byte
	putHex(encoded[:32], channelID)
	putHex(encoded[32:], salt)
	return evm.Keccak256Hash(encoded[:]).Hex(), nil
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

// channelAmount converts a canonical decimal to an amount of at most [MaxChannelAmount].
func channelAmount(decimal string) (uint64, bool) {
	amount, err := strconv.ParseUint(decimal, 10, 63)
	return amount, err == nil && isDecimal(decimal)
}
