package devnet

import (
	"fmt"

	"github.com/parley-chat/parley/x402/evm"
)

// tip appends an empty block, unless the newest block is an empty one of the current second, and returns the number of
// the newest block. The caller of tip and of the functions below holds the ledger's lock.
func (l *Ledger) tip() int {
	n, now := len(l.records), l.clock().Unix()
	if n == 0 || l.records[n-1].Kind != kindEmpty || l.records[n-1].Time < now {
		l.mine(record{Kind: kindEmpty, Time: now})
	}
	return len(l.records)
}

// blockNumber resolves a number or a name. It returns false if the block does not exist yet.
func (l *Ledger) blockNumber(number evm.BlockNumber) (int, bool) {
	switch {
	case number == evm.EarliestBlock:
		return 0, true
	case number < 0: // latest, pending, safe and finalized are the same here
		return l.tip(), true
	}
	return int(number), int(number) <= len(l.records)
}

// blockTime returns the time of a block in Unix seconds. The time of block 0 is 0.
func (l *Ledger) blockTime(at int) int64 {
	if at == 0 {
		return 0
	}
	return l.records[at-1].Time
}

// balanceAt calculates the balance at the end of a block by reverting later records from the current balance.
func (l *Ledger) balanceAt(address string, at int) uint64 {
	balance := l.balances[address]
	for i := len(l.records) - 1; i >= at; i-- {
		r := l.records[i]
		if r.From == address {
			balance += r.Amount
		}
		if r.To == address {
			balance -= r.Amount
		}
	}
	return balance
}

// hash returns the transaction hash of the record in block at. For a record without one it generates a hash.
func (r record) hash(at int) evm.Hash {
	if r.Transaction == "" {
		return evm.Keccak256Hash(fmt.Appendf(nil, "%s %s %d", NetworkID, r.Kind, at))
	}
	return evm.HexToHash(r.Transaction)
}

// events returns the events that the token contract and the contract for payment channels would emit in a block. Those of the
// token are in the order of EIP-3009.
func (l *Ledger) events(at int) []evm.Log {
	r := l.records[at-1]
	authorized := func(topic evm.Hash) evm.Log {
		return evm.Log{Topics: []evm.Hash{topic, addressTopic(r.From), evm.HexToHash(r.Nonce)}, Data: evm.Bytes{}}
	}
	moved := evm.Log{Topics: []evm.Hash{topicTransfer, addressTopic(r.From), addressTopic(r.To)}, Data: evm.Join(evm.Word(r.Amount))}
	var events []evm.Log
	switch r.Kind {
	case kindMint: // from address 0, as in ERC-20
		events = []evm.Log{moved}
	case kindTransfer:
		events = []evm.Log{authorized(topicAuthorizationUsed), moved}
	case kindCancel:
		events = []evm.Log{authorized(topicAuthorizationCanceled)}
	case kindDeposit, kindSettle, kindRefund, kindWithdrawn:
		events = r.tokenEvents(moved, authorized)
	}
	for i := range events {
		events[i].Address = tokenAddress
	}
	events = append(events, l.channels.events(r, at)...)
	for i := range events {
		events[i].BlockNumber, events[i].TransactionHash, events[i].LogIndex = evm.Uint64(at), r.hash(at), evm.Uint64(i)
	}
	return events
}

func addressTopic(address string) evm.Hash { return evm.HexToAddress(address).Word() }
