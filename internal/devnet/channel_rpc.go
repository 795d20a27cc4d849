package devnet

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math/big"

	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// channelView is a view function of the contract for payment channels: how many words it takes, and what it returns at the
// end of a block.
type channelView struct {
	arguments int
	read      func(c channels, arguments []evm.Hash, block int) ([]evm.Hash, error)
}

// channelViews are the views by selector.
var channelViews = map[string]channelView{
	selectorOf("channels(bytes32)"): {1, func(c channels, a []evm.Hash, block int) ([]evm.Hash, error) {
		state := at(c.byID, a[0].Hex(), block)
		return []evm.Hash{number(state.Balance), number(state.TotalClaimed)}, nil
	}},
	selectorOf("pendingWithdrawals(bytes32)"): {1, func(c channels, a []evm.Hash, block int) ([]evm.Hash, error) {
		state := at(c.byID, a[0].Hex(), block)
		return []evm.Hash{number(state.WithdrawAmount), number(uint64(state.WithdrawRequestedAt))}, nil //nolint:gosec // not negative
	}},
	selectorOf("refundNonce(bytes32)"): {1, func(c channels, a []evm.Hash, block int) ([]evm.Hash, error) {
		return []evm.Hash{number(at(c.byID, a[0].Hex(), block).RefundNonce)}, nil
	}},
	selectorOf("receivers(address,address)"): {2, func(c channels, a []evm.Hash, block int) ([]evm.Hash, error) {
		if a[1].Address() != tokenAddress {
			return []evm.Hash{{}, {}}, nil
		}
		sums := at(c.receivers, lower(a[0].Address()), block)
		return []evm.Hash{number(sums.Claimed), number(sums.Settled)}, nil
	}},
	selectorOf("getChannelId((address,address,address,address,address,uint40,bytes32))"): {7,
		func(_ channels, a []evm.Hash, _ int) ([]evm.Hash, error) {
			id, err := channelDomain.ChannelID(x402.ChannelConfig{
				Payer: lower(a[0].Address()), PayerAuthorizer: lower(a[1].Address()), Receiver: lower(a[2].Address()),
				ReceiverAuthorizer: lower(a[3].Address()), Token: lower(a[4].Address()), WithdrawDelay: binary.BigEndian.Uint64(a[5][24:]),
				Salt: a[6].Hex(),
			})
			return []evm.Hash{evm.HexToHash(id)}, err
		}},
	selectorOf("getVoucherDigest(bytes32,uint128)"): {2, func(_ channels, a []evm.Hash, _ int) ([]evm.Hash, error) {
		digest, err := channelDomain.VoucherDigest(a[0].Hex(), new(big.Int).SetBytes(a[1][:]).String())
		return []evm.Hash{digest}, err
	}},
}

func selectorOf(signature string) string { return string(evm.Keccak256([]byte(signature))[:4]) }

func number(n uint64) (word evm.Hash) {
	copy(word[:], wordOf(n))
	return word
}

func lower(address evm.Address) string { return "0x" + hex.EncodeToString(address[:]) }

// call implements eth_call of the contract at the end of a block.
func (c channels) call(input string, block int) (evm.Bytes, error) {
	view, ok := channelViews[input[:min(4, len(input))]]
	if !ok || len(input) != 4+evm.HashLength*view.arguments {
		return nil, errors.New("execution reverted")
	}
	var arguments []evm.Hash
	for rest := input[4:]; rest != ""; rest = rest[evm.HashLength:] {
		arguments = append(arguments, evm.Hash([]byte(rest[:evm.HashLength])))
	}
	words, err := view.read(c, arguments, block)
	if err != nil {
		return nil, errors.New("execution reverted")
	}
	var output evm.Bytes
	for _, word := range words {
		output = append(output, word[:]...)
	}
	return output, nil
}

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

// The events of the contract. WithdrawInitiated is missing, because the ledger does not store what it contains. So is the ChannelCreated
// of a deposit in a journal of an older version.
var (
	topicCreated           = evm.Keccak256Hash([]byte("ChannelCreated(bytes32,(address,address,address,address,address,uint40,bytes32))"))
	topicDeposited         = evm.Keccak256Hash([]byte("Deposited(bytes32,address,uint128,uint128)"))
	topicClaimed           = evm.Keccak256Hash([]byte("Claimed(bytes32,address,uint128,uint128)"))
	topicSettled           = evm.Keccak256Hash([]byte("Settled(address,address,address,uint128)"))
	topicRefunded          = evm.Keccak256Hash([]byte("Refunded(bytes32,address,uint128)"))
	topicWithdrawFinalized = evm.Keccak256Hash([]byte("WithdrawFinalized(bytes32,address,uint128)"))
)

// events returns the events that the contract emits for a record in a block. Their sender is the contract itself, because the
// ledger does not store who sent a transaction.
func (c channels) events(r record, block int) []evm.Log {
	sender := addressTopic(contractAddress)
	var events []evm.Log
	emit := func(data evm.Bytes, topics ...evm.Hash) {
		events = append(events, evm.Log{Address: evm.HexToAddress(contractAddress), Topics: topics, Data: data})
	}
	claimed := map[string]uint64{}
	for _, row := range r.Claims {
		before := max(at(c.byID, row.Channel, block-1).TotalClaimed, claimed[row.Channel])
		claimed[row.Channel] = row.Total
		emit(append(wordOf(row.Total-before), wordOf(row.Total)...), topicClaimed, evm.HexToHash(row.Channel), sender)
	}
	id := evm.HexToHash(r.Channel)
	switch r.Kind {
	case kindDeposit:
		if r.Config != nil && at(c.byID, r.Channel, block-1).Balance == 0 {
			emit(r.Config.words(), topicCreated, id)
		}
		emit(append(wordOf(r.Amount), wordOf(at(c.byID, r.Channel, block).Balance)...), topicDeposited, id, sender)
	case kindSettle:
		emit(wordOf(r.Amount), topicSettled, addressTopic(r.To), addressTopic(token.Asset), sender)
	case kindRefund:
		emit(wordOf(r.Amount), topicRefunded, id, sender)
	case kindWithdrawn:
		emit(wordOf(r.Amount), topicWithdrawFinalized, id, sender)
	}
	return events
}

// words is the configuration as the contract encodes it.
func (c channelConfig) words() evm.Bytes {
	var words evm.Bytes
	for _, address := range []string{c.Payer, c.PayerAuthorizer, c.Receiver, c.ReceiverAuthorizer, c.Token} {
		word := addressTopic(address)
		words = append(words, word[:]...)
	}
	salt := evm.HexToHash(c.Salt)
	return append(append(words, wordOf(c.WithdrawDelay)...), salt[:]...)
}
