package x402

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-chat/parley/x402/evm"
)

// Function selectors of [BatchSettlementContract].
var (
	selectorChannels           = evm.Keccak256([]byte("channels(bytes32)"))[:4]
	selectorPendingWithdrawals = evm.Keccak256([]byte("pendingWithdrawals(bytes32)"))[:4]
	selectorRefundNonce        = evm.Keccak256([]byte("refundNonce(bytes32)"))[:4]
	selectorReceivers          = evm.Keccak256([]byte("receivers(address,address)"))[:4]
)

// ReceivedSums are the amounts of a receiver over all its channels of one token, in atomic units.
type ReceivedSums struct {
	// Claimed is what was claimed since the contract exists. Settled is the part that was paid out.
	Claimed, Settled uint64
}

// Channel returns the state of a channel at the newest block, and the time of that block. channelID is 0x and 64 hex
// digits. The state of a channel without a deposit is zero.
func (c *Chain) Channel(ctx context.Context, channelID string) (Channel, time.Time, error) {
	if !isHex(channelID, 32, 32) {
		return Channel{}, time.Time{}, fmt.Errorf("%q is not a channel's id", channelID)
	}
	newest, err := c.block(ctx, evm.LatestBlock)
	if err != nil {
		return Channel{}, time.Time{}, err
	}
	// Read everything at one block: between two calls a deposit or a claim could be mined, or another node could answer.
	at, id := evm.BlockNumber(newest.Number), evm.HexToHash(channelID)
	var channel Channel
	var withdrawnAt uint64
	for _, view := range []struct {
		selector []byte
		into     []*uint64
	}{
		{selectorChannels, []*uint64{&channel.Balance, &channel.TotalClaimed}},
		{selectorPendingWithdrawals, []*uint64{&channel.WithdrawAmount, &withdrawnAt}},
		{selectorRefundNonce, []*uint64{&channel.RefundNonce}},
	} {
		if err := c.numbers(ctx, at, view.into, view.selector, id); err != nil {
			return Channel{}, time.Time{}, err
		}
	}
	channel.WithdrawRequestedAt = int64(withdrawnAt) //nolint:gosec // at most 40 bits
	return channel, newest.time(), nil
}

// Received returns what a receiver claimed and was paid out in a token, at the newest block.
func (c *Chain) Received(ctx context.Context, receiver, asset string) (ReceivedSums, error) {
	if !isAddress(receiver) || !isAddress(asset) {
		return ReceivedSums{}, fmt.Errorf("receiver %q or token %q is not an address", receiver, asset)
	}
	var sums ReceivedSums
	err := c.numbers(ctx, evm.LatestBlock, []*uint64{&sums.Claimed, &sums.Settled}, selectorReceivers, addressWord(receiver),
		addressWord(asset))
	return sums, err
}

// numbers calls a view function of the contract and stores its results, one word each.
func (c *Chain) numbers(ctx context.Context, at evm.BlockNumber, into []*uint64, selector []byte, arguments ...evm.Hash) error {
	output, err := c.view(ctx, BatchSettlementContract, at, selector, arguments...)
	if err != nil {
		return err
	}
	words := output.Words()
	if len(words) != len(into) { // an address without a contract returns no data
		return fmt.Errorf("there is no contract for payment channels at %s", BatchSettlementContract)
	}
	for i, number := range into {
		if *number, err = amountOf(words[i]); err != nil {
			return err
		}
	}
	return nil
}
