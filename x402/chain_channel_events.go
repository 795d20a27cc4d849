package x402

import (
	"context"
	"fmt"
	"iter"

	"github.com/parley-chat/parley/x402/evm"
)

// Event topics of [BatchSettlementContract].
var (
	topicCreated           = evm.Keccak256Hash([]byte("ChannelCreated(bytes32,(address,address,address,address,address,uint40,bytes32))"))
	topicDeposited         = evm.Keccak256Hash([]byte("Deposited(bytes32,address,uint128,uint128)"))
	topicClaimed           = evm.Keccak256Hash([]byte("Claimed(bytes32,address,uint128,uint128)"))
	topicSettled           = evm.Keccak256Hash([]byte("Settled(address,address,address,uint128)"))
	topicRefunded          = evm.Keccak256Hash([]byte("Refunded(bytes32,address,uint128)"))
	topicWithdrawInitiated = evm.Keccak256Hash([]byte("WithdrawInitiated(bytes32,uint128,uint40)"))
	topicWithdrawFinalized = evm.Keccak256Hash([]byte("WithdrawFinalized(bytes32,address,uint128)"))
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
	receipt, err := readReceipt[struct {
		Logs              []evm.Log  `json:"logs"`
		GasUsed           evm.Uint64 `json:"gasUsed"`
		EffectiveGasPrice evm.Uint64 `json:"effectiveGasPrice"`
		L1Fee             evm.Uint64 `json:"l1Fee"` // of OP Stack chains such as Base
	}](ctx, c, asset, transaction)
	if err != nil {
		return ChannelTransaction{}, err
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

// CreatedChannel is a channel whose first deposit, or the first one after everything was refunded, is on the chain.
type CreatedChannel struct {
	ID     string
	Config ChannelConfig
}

// ChannelsCreated yields the channels of all receivers that were created in the blocks from to until, both included, oldest first. It
// stops after the first error.
func (c *Chain) ChannelsCreated(ctx context.Context, from, until uint64) iter.Seq2[CreatedChannel, error] {
	return func(yield func(CreatedChannel, error) bool) {
		for log, err := range c.logs(ctx, BatchSettlementContract, []any{topicCreated, nil}, from, until) {
			var created CreatedChannel
			if err == nil {
				created, err = log.created()
			}
			if !yield(created, err) || err != nil {
				return
			}
		}
	}
}

// The kinds of a [ChannelEvent].
const (
	EventWithdrawInitiated = "withdraw initiated"
	EventWithdrawFinalized = "withdraw finalized"
	EventClaimed           = "claimed"
	EventRefunded          = "refunded"
)

var eventTopics = map[string]evm.Hash{
	EventWithdrawInitiated: topicWithdrawInitiated, EventWithdrawFinalized: topicWithdrawFinalized,
	EventClaimed: topicClaimed, EventRefunded: topicRefunded,
}

// ChannelEvent tells that something happened to a channel. Claimed, in atomic units, is what was claimed in all, if it is a claim.
type ChannelEvent struct {
	ID, Kind string
	Claimed  uint64
}

// ChannelEvents yields the events of these kinds of the channels of all receivers in the blocks from to until, both included, oldest first.
// It stops after the first error.
func (c *Chain) ChannelEvents(ctx context.Context, from, until uint64, kinds ...string) iter.Seq2[ChannelEvent, error] {
	names, topics := map[evm.Hash]string{}, []evm.Hash{}
	for _, kind := range kinds {
		names[eventTopics[kind]], topics = kind, append(topics, eventTopics[kind])
	}
	return func(yield func(ChannelEvent, error) bool) {
		for log, err := range c.logs(ctx, BatchSettlementContract, []any{topics, nil}, from, until) {
			var event ChannelEvent
			if err == nil {
				event = ChannelEvent{ID: log.Topics[1].Hex(), Kind: names[log.Topics[0]]}
			}
			if words := log.Data.Words(); event.Kind == EventClaimed {
				if len(words) != 2 {
					err = fmt.Errorf("the Claimed in transaction %s has no sum", log.TransactionHash)
				} else {
					event.Claimed, err = amountOf(words[1])
				}
			}
			if !yield(event, err) || err != nil {
				return
			}
		}
	}
}

// created decodes a ChannelCreated event: the members of the configuration are one word each.
func (l eventLog) created() (CreatedChannel, error) {
	words := l.Data.Words()
	if len(words) != 7 {
		return CreatedChannel{}, fmt.Errorf("the ChannelCreated in transaction %s has no configuration", l.TransactionHash)
	}
	delay, _ := words[5].Uint64() // 40 bits
	return CreatedChannel{l.Topics[1].Hex(), ChannelConfig{
		Payer: addressOf(words[0]), PayerAuthorizer: addressOf(words[1]), Receiver: addressOf(words[2]), ReceiverAuthorizer: addressOf(words[3]),
		Token: addressOf(words[4]), WithdrawDelay: delay, Salt: words[6].Hex(),
	}}, nil
}
