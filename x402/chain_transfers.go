package x402

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/parley-chat/parley/x402/evm"
)

// AuthorizationsIn returns the authorizations of the token asset that a transaction used, each with its transfer. A
// facilitator can put several authorizations into one transaction. The token must emit its events in the order of
// EIP-3009, as USDC does: first AuthorizationUsed, then the Transfer.
func (c *Chain) AuthorizationsIn(ctx context.Context, asset, transaction string) ([]UsedAuthorization, error) {
	logs, err := c.logsIn(ctx, asset, transaction)
	if err != nil {
		return nil, err
	}
	var found []UsedAuthorization
	var open *eventLog // the authorization whose Transfer event has not been read yet
	for i, log := range logs {
		switch {
		case log.Address != evm.HexToAddress(asset):
		case log.is(topicAuthorizationUsed):
			open = &logs[i]
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

// TransferBy returns the transfer that an authorization made in a transaction, or nil if the transaction does not use it.
func (c *Chain) TransferBy(ctx context.Context, asset, authorizer, nonce, transaction string) (*Transfer, error) {
	used, err := c.AuthorizationsIn(ctx, asset, transaction)
	if err != nil {
		return nil, err
	}
	for _, one := range used {
		if strings.EqualFold(one.Authorizer, authorizer) && strings.EqualFold(one.Nonce, nonce) {
			return &one.Transfer, nil
		}
	}
	return nil, nil //nolint:nilnil // it was read, and there is none
}

// TransfersIn returns the transfers of the token asset in a transaction, those of zero too.
func (c *Chain) TransfersIn(ctx context.Context, asset, transaction string) (found []Transfer, err error) {
	logs, err := c.logsIn(ctx, asset, transaction)
	if err != nil {
		return nil, err
	}
	for _, log := range logs {
		if log.Address != evm.HexToAddress(asset) || !log.is(topicTransfer) {
			continue
		}
		transfer, err := log.transfer()
		if err != nil {
			return nil, err
		}
		found = append(found, transfer)
	}
	return found, nil
}

// logsIn returns the events of a transaction. A transaction that failed has none.
func (c *Chain) logsIn(ctx context.Context, asset, transaction string) ([]eventLog, error) {
	receipt, err := readReceipt[struct {
		Logs []eventLog `json:"logs"`
	}](ctx, c, asset, transaction)
	if err != nil {
		return nil, err
	}
	return receipt.Logs, nil
}

// readReceipt decodes the receipt of a transaction into the members that the caller needs.
func readReceipt[T any](ctx context.Context, c *Chain, asset, transaction string) (receipt *T, err error) {
	if !isAddress(asset) || !isHex(transaction, 32, 32) {
		return nil, fmt.Errorf("%q is not a transaction's hash, or %q not a token's address", transaction, asset)
	}
	if err := c.call(ctx, &receipt, "eth_getTransactionReceipt", evm.HexToHash(transaction)); err != nil {
		return nil, err
	}
	if receipt == nil {
		return nil, fmt.Errorf("the chain has no receipt of transaction %s", transaction)
	}
	return receipt, nil
}

// Transfers yields the transfers to an address in the blocks from to until, both included, oldest first. It skips
// transfers of zero, because anybody can make them in the name of any address. It stops after the first error.
func (c *Chain) Transfers(ctx context.Context, asset, to string, from, until uint64) iter.Seq2[Transfer, error] {
	return c.transfers(ctx, asset, to, []any{topicTransfer, nil, addressWord(to)}, from, until)
}

// Payouts yields the transfers from an address. It works like [Chain.Transfers].
func (c *Chain) Payouts(ctx context.Context, asset, holder string, from, until uint64) iter.Seq2[Transfer, error] {
	return c.transfers(ctx, asset, holder, []any{topicTransfer, addressWord(holder), nil}, from, until)
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

// logs yields the events of a contract with these topics in the blocks first to last, oldest first. The events have at least as many topics
// as are given, and three at most; nil is any topic, and a list is any of them. If the endpoint rejects a range of blocks, logs halves the
// range; the next call begins with twice the size that was accepted.
func (c *Chain) logs(ctx context.Context, contract string, topics []any, first, last uint64) iter.Seq2[eventLog, error] {
	return func(yield func(eventLog, error) bool) {
		if !isAddress(contract) {
			yield(eventLog{}, fmt.Errorf("contract %q is not an address", contract))
			return
		}
		for size := min(cmp.Or(2*c.logSize.Load(), logBlocks), logBlocks); first <= last; {
			end := min(first+size-1, last)
			var found []eventLog
			err := c.call(ctx, &found, "eth_getLogs", map[string]any{
				"address": evm.HexToAddress(contract), "topics": topics, "fromBlock": evm.Uint64(first), "toBlock": evm.Uint64(end),
			})
			if rejected, ok := errors.AsType[*rpcError](err); ok && rejected.ofThisCall() && size > 1 {
				size /= 2
				continue
			}
			if err != nil {
				yield(eventLog{}, err)
				return
			}
			c.logSize.Store(size)
			for _, log := range found {
				if log.Removed || log.Address != evm.HexToAddress(contract) {
					continue
				}
				if n := len(log.Topics); n < len(topics) || n > 3 {
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

// eventLog is an event of the token contract.
type eventLog struct{ evm.Log }

// is reports whether the event has this topic. All events that are read here have two indexed parameters.
func (l eventLog) is(topic evm.Hash) bool { return len(l.Topics) == 3 && l.Topics[0] == topic }

// transfer decodes a Transfer event.
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

// addressWord returns an address as a 32-byte word, as in contract arguments and topics.
func addressWord(address string) evm.Hash { return evm.HexToAddress(address).Word() }

func addressOf(word evm.Hash) string { return word.Address().Lower() }

// amountOf converts a word to an amount. It returns an error above 2^64-1 units; no supported token has larger amounts.
func amountOf(word evm.Hash) (uint64, error) {
	amount, ok := word.Uint64()
	if !ok {
		return 0, errors.New("an amount on the chain is larger than 2^64-1 atomic units")
	}
	return amount, nil
}
