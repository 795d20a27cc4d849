package x402

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"

	"github.com/parley-chat/parley/x402/evm"
)

// AuthorizationsIn returns the authorizations of the token asset that a transaction used, each with its transfer; a
// facilitator may put several into one transaction. The token must leave its events in EIP-3009's order, as USDC does:
// AuthorizationUsed, then the transfer that it made.
func (c *Chain) AuthorizationsIn(ctx context.Context, asset, transaction string) ([]UsedAuthorization, error) {
	if !isAddress(asset) || !isHex(transaction, 32, 32) {
		return nil, fmt.Errorf("%q is not a transaction's hash, or %q not a token's address", transaction, asset)
	}
	var receipt *struct {
		Logs []eventLog `json:"logs"`
	}
	if err := c.call(ctx, &receipt, "eth_getTransactionReceipt", evm.HexToHash(transaction)); err != nil {
		return nil, err
	}
	if receipt == nil {
		return nil, fmt.Errorf("the chain has no receipt of transaction %s", transaction)
	}
	var found []UsedAuthorization
	var open *eventLog // the authorization whose transfer has not come yet
	for i, log := range receipt.Logs {
		switch {
		case log.Address != evm.HexToAddress(asset):
		case log.is(topicAuthorizationUsed):
			open = &receipt.Logs[i]
		case open != nil && log.is(topicTransfer) && log.Topics[1] == open.Topics[1]:
			transfer, err := log.transfer()
			if err != nil {
				return nil, err
			}
			found = append(found, UsedAuthorization{transfer.From, open.Topics[2].Hex(), transfer})
			open = nil
		}
	}
	return found, nil
}

// Transfers yields what moved to an address in the blocks from and until, both included, oldest first. Transfers of
// nothing, which anybody can make in anybody's name, are left out. After an error nothing more comes.
func (c *Chain) Transfers(ctx context.Context, asset, to string, from, until uint64) iter.Seq2[Transfer, error] {
	return c.transfers(ctx, asset, to, []any{topicTransfer, nil, addressWord(to)}, from, until)
}

// Payouts yields what moved away from an address, as [Chain.Transfers] does for what came.
func (c *Chain) Payouts(ctx context.Context, asset, holder string, from, until uint64) iter.Seq2[Transfer, error] {
	return c.transfers(ctx, asset, holder, []any{topicTransfer, addressWord(holder)}, from, until)
}

func (c *Chain) transfers(ctx context.Context, asset, holder string, topics []any, first, last uint64) iter.Seq2[Transfer, error] {
	return func(yield func(Transfer, error) bool) {
		if !isAddress(holder) {
			yield(Transfer{}, fmt.Errorf("holder %q is not an address", holder))
			return
		}
		for log, err := range c.logs(ctx, asset, topics, first, last) {
			var transfer Transfer
			if err == nil {
				transfer, err = log.transfer()
			}
			if err == nil && transfer.Amount == 0 {
				continue
			}
			if !yield(transfer, err) || err != nil {
				return
			}
		}
	}
}

// logs yields the token's events with these topics in the blocks first to last, oldest first. Where the endpoint
// refuses so many blocks at once, it asks for half as many, and stays with that.
func (c *Chain) logs(ctx context.Context, asset string, topics []any, first, last uint64) iter.Seq2[eventLog, error] {
	return func(yield func(eventLog, error) bool) {
		if !isAddress(asset) {
			yield(eventLog{}, fmt.Errorf("token contract %q is not an address", asset))
			return
		}
		for size := uint64(logBlocks); first <= last; {
			end := min(first+size-1, last)
			var found []eventLog
			err := c.call(ctx, &found, "eth_getLogs", map[string]any{
				"address": evm.HexToAddress(asset), "topics": topics, "fromBlock": evm.Uint64(first), "toBlock": evm.Uint64(end),
			})
			if refused, ok := errors.AsType[*rpcRefusal](err); ok && refused.ofThisCall() && size > 1 {
				size /= 2
				continue
			}
			if err != nil {
				yield(eventLog{}, err)
				return
			}
			for _, log := range found {
				if log.Removed || log.Address != evm.HexToAddress(asset) {
					continue
				}
				if len(log.Topics) != 3 { // three in each of the events that are asked for
					yield(eventLog{}, fmt.Errorf("an event in transaction %s has %d topics", log.TransactionHash, len(log.Topics)))
					return
				}
				if !yield(log, nil) {
					return
				}
			}
			first = end + 1
		}
	}
}

// eventLog is an event that a contract left.
type eventLog struct {
	Address         evm.Address `json:"address"`
	Topics          []evm.Hash  `json:"topics"`
	Data            evm.Bytes   `json:"data"`
	BlockNumber     evm.Uint64  `json:"blockNumber"`
	TransactionHash evm.Hash    `json:"transactionHash"`
	LogIndex        evm.Uint64  `json:"logIndex"`
	Removed         bool        `json:"removed"`
}

// is tells whether the event is that one; all that are read here have two indexed members.
func (l eventLog) is(topic evm.Hash) bool { return len(l.Topics) == 3 && l.Topics[0] == topic }

// transfer reads the event Transfer.
func (l eventLog) transfer() (Transfer, error) {
	if len(l.Data) != evm.HashLength {
		return Transfer{}, fmt.Errorf("the Transfer in transaction %s has no amount", l.TransactionHash)
	}
	amount, err := amountOf(evm.Hash(l.Data))
	return Transfer{
		From: addressOf(l.Topics[1]), To: addressOf(l.Topics[2]), Amount: amount,
		Transaction: l.TransactionHash.Hex(), Block: uint64(l.BlockNumber), LogIndex: uint64(l.LogIndex),
	}, err
}

// addressWord is an address as the word that contracts take and topics hold.
func addressWord(address string) evm.Hash {
	return evm.HexToAddress(address).Word()
}

func addressOf(word evm.Hash) string {
	address := word.Address()
	return "0x" + hex.EncodeToString(address[:])
}

// amountOf reads an amount; no token worth paying with has more than 2^64-1 units.
func amountOf(word evm.Hash) (uint64, error) {
	const high = evm.HashLength - 8
	if [high]byte(word[:high]) != [high]byte{} {
		return 0, errors.New("an amount on the chain is larger than 2^64-1 atomic units")
	}
	return binary.BigEndian.Uint64(word[high:]), nil
}
