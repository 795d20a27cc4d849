package x402

import (
	"context"
	"fmt"

	"github.com/parley-chat/parley/x402/evm"
)

// Event topics of [BatchSettlementContract].
var (
	topicDeposited = evm.Keccak256Hash([]byte("Deposited(bytes32,address,uint128,uint128)"))
	topicClaimed   = evm.Keccak256Hash([]byte("Claimed(bytes32,address,uint128,uint128)"))
	topicSettled   = evm.Keccak256Hash([]byte("Settled(address,address,address,uint128)"))
	topicRefunded  = evm.Keccak256Hash([]byte("Refunded(bytes32,address,uint128)"))
)

// ChannelTransaction is what a transaction did with channels, and its fee.
type ChannelTransaction struct {
	// Deposited, Claimed and Refunded are the amounts by channel id, in atomic units.
	Deposited, Claimed, Refunded map[string]uint64
	// Settled are the amounts that were paid out in a token, by receiver.
	Settled map[string]uint64
	// GasUsed and Fee, in wei, are what the transaction cost the facilitator. They are 0 if the endpoint does not report them.
	GasUsed, Fee uint64
}

// ChannelTransaction reads what a transaction did with channels. Payouts in another token than asset are left out.
func (c *Chain) ChannelTransaction(ctx context.Context, asset, transaction string) (ChannelTransaction, error) {
	if !isAddress(asset) || !isHex(transaction, 32, 32) {
		return ChannelTransaction{}, fmt.Errorf("%q is not a transaction's hash, or %q not a token's address", transaction, asset)
	}
	var receipt *struct {
		Logs              []evm.Log  `json:"logs"`
		GasUsed           evm.Uint64 `json:"gasUsed"`
		EffectiveGasPrice evm.Uint64 `json:"effectiveGasPrice"`
		L1Fee             evm.Uint64 `json:"l1Fee"` // of OP Stack chains such as Base
	}
	if err := c.call(ctx, &receipt, "eth_getTransactionReceipt", evm.HexToHash(transaction)); err != nil {
		return ChannelTransaction{}, err
	}
	if receipt == nil {
		return ChannelTransaction{}, fmt.Errorf("the chain has no receipt of transaction %s", transaction)
	}
	did := ChannelTransaction{
		Deposited: map[string]uint64{}, Claimed: map[string]uint64{}, Refunded: map[string]uint64{}, Settled: map[string]uint64{},
		GasUsed: uint64(receipt.GasUsed), Fee: uint64(receipt.GasUsed*receipt.EffectiveGasPrice + receipt.L1Fee),
	}
	for _, log := range receipt.Logs {
		if log.Address != evm.HexToAddress(BatchSettlementContract) || len(log.Topics) < 3 || len(log.Data) < evm.HashLength {
			continue
		}
		amount, err := amountOf(evm.Hash(log.Data[:evm.HashLength]))
		if err != nil {
			return ChannelTransaction{}, err
		}
		switch id := log.Topics[1].Hex(); log.Topics[0] {
		case topicDeposited:
			did.Deposited[id] += amount
		case topicClaimed:
			did.Claimed[id] += amount
		case topicRefunded:
			did.Refunded[id] += amount
		case topicSettled:
			if log.Topics[2] == addressWord(asset) {
				did.Settled[addressOf(log.Topics[1])] += amount
			}
		}
	}
	return did, nil
}
