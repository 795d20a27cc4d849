package devnet

import (
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// isChannelContract reports whether an address is a contract of the scheme batch-settlement.
func isChannelContract(address evm.Address) bool {
	return address == evm.HexToAddress(x402.BatchSettlementContract) || address == evm.HexToAddress(x402.DepositCollectorContract)
}

// tokenEvents returns the events that the token emits for a record of the channel contract. A deposit by EIP-3009 goes
// through the collector.
func (r record) tokenEvents(moved evm.Log, authorized func(topic evm.Hash) evm.Log) []evm.Log {
	switch {
	case r.Amount == 0:
		return nil
	case r.Kind != kindDeposit || r.Nonce == "":
		return []evm.Log{moved}
	}
	collected, forwarded, collector := moved, moved, addressTopic(x402.DepositCollectorContract)
	collected.Topics = []evm.Hash{topicTransfer, moved.Topics[1], collector}
	forwarded.Topics = []evm.Hash{topicTransfer, collector, moved.Topics[2]}
	return []evm.Log{authorized(topicAuthorizationUsed), collected, forwarded}
}

// The events of the contract.
var (
	topicCreated           = evm.Keccak256Hash([]byte("ChannelCreated(bytes32,(address,address,address,address,address,uint40,bytes32))"))
	topicDeposited         = evm.Keccak256Hash([]byte("Deposited(bytes32,address,uint128,uint128)"))
	topicClaimed           = evm.Keccak256Hash([]byte("Claimed(bytes32,address,uint128,uint128)"))
	topicSettled           = evm.Keccak256Hash([]byte("Settled(address,address,address,uint128)"))
	topicRefunded          = evm.Keccak256Hash([]byte("Refunded(bytes32,address,uint128)"))
	topicWithdrawInitiated = evm.Keccak256Hash([]byte("WithdrawInitiated(bytes32,uint128,uint40)"))
	topicWithdrawFinalized = evm.Keccak256Hash([]byte("WithdrawFinalized(bytes32,address,uint128)"))
)

// events returns the events that the contract emits for a record in a block. Their sender is the contract itself, because the
// ledger does not store who sent a transaction.
func (c channels) events(r record, block int) []evm.Log {
	sender := addressTopic(contractAddress)
	var events []evm.Log
	emit := func(data []evm.Hash, topics ...evm.Hash) {
		events = append(events, evm.Log{Address: evm.HexToAddress(contractAddress), Topics: topics, Data: evm.Join(data...)})
	}
	claimed := map[string]uint64{}
	for _, row := range r.Claims {
		before := max(at(c.byID, row.Channel, block-1).TotalClaimed, claimed[row.Channel])
		claimed[row.Channel] = row.Total
		emit([]evm.Hash{evm.Word(row.Total - before), evm.Word(row.Total)}, topicClaimed, evm.HexToHash(row.Channel), sender)
	}
	id, amount := evm.HexToHash(r.Channel), evm.Word(r.Amount)
	switch r.Kind {
	case kindDeposit:
		if at(c.byID, r.Channel, block-1).Balance == 0 {
			emit(r.Config.words(), topicCreated, id)
		}
		emit([]evm.Hash{amount, evm.Word(at(c.byID, r.Channel, block).Balance)}, topicDeposited, id, sender)
	case kindSettle:
		emit([]evm.Hash{amount}, topicSettled, addressTopic(r.To), addressTopic(token.Asset), sender)
	case kindRefund:
		emit([]evm.Hash{amount}, topicRefunded, id, sender)
	case kindWithdraw:
		until := evm.Word(uint64(r.Time) + r.Config.WithdrawDelay) //nolint:gosec // positive
		emit([]evm.Hash{amount, until}, topicWithdrawInitiated, id)
	case kindWithdrawn:
		emit([]evm.Hash{amount}, topicWithdrawFinalized, id, sender)
	}
	return events
}

// words is the configuration as the contract encodes it.
func (c channelConfig) words() []evm.Hash {
	return []evm.Hash{addressTopic(c.Payer), addressTopic(c.PayerAuthorizer), addressTopic(c.Receiver), addressTopic(c.ReceiverAuthorizer),
		addressTopic(c.Token), evm.Word(c.WithdrawDelay), evm.HexToHash(c.Salt)}
}
