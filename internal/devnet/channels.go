package devnet

import (
	"math"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/x402"
)

// contractAddress is the contract for payment channels (x402, scheme batch-settlement) in lower case. Its balance is that
// of all channels, and what is claimed and not paid out.
var contractAddress = strings.ToLower(x402.BatchSettlementContract)

// channelDomain is the domain of the contract.
var channelDomain = x402.NewBatchDomain(token.ChainID)

// Revert is the name of the error with which the contract for payment channels rejects a call. Compare it with
// errors.Is.
type Revert string

// Error returns the text that a node's response contains.
func (r Revert) Error() string { return "execution reverted: " + string(r) + "()" }

// The errors of the contract, by their official names.
const (
	RevertInvalidChannel           Revert = "InvalidChannel"
	RevertZeroDeposit              Revert = "ZeroDeposit"
	RevertInvalidSignature         Revert = "InvalidSignature"
	RevertNotReceiverAuthorizer    Revert = "NotReceiverAuthorizer"
	RevertClaimExceedsCeiling      Revert = "ClaimExceedsCeiling"
	RevertClaimExceedsBalance      Revert = "ClaimExceedsBalance"
	RevertWithdrawalAlreadyPending Revert = "WithdrawalAlreadyPending"
	RevertWithdrawalNotPending     Revert = "WithdrawalNotPending"
	RevertWithdrawDelayNotElapsed  Revert = "WithdrawDelayNotElapsed"
	RevertNothingToWithdraw        Revert = "NothingToWithdraw"
	RevertWithdrawAmountExceeds    Revert = "WithdrawAmountExceedsAvailable"
	RevertWithdrawDelayOutOfRange  Revert = "WithdrawDelayOutOfRange"
	RevertEmptyBatch               Revert = "EmptyBatch"
	RevertInvalidRefundNonce       Revert = "InvalidRefundNonce"
	RevertZeroRefund               Revert = "ZeroRefund"
)

// claim is a row of a claim that raises what is claimed from a channel.
type claim struct {
	Channel  string `json:"channel"`
	Receiver string `json:"receiver"`
	Total    uint64 `json:"total,string"`
}

// history is a value at each block that changed it.
type history[T any] struct {
	blocks []int
	values []T
}

// at returns the value at the end of a block.
func (h *history[T]) at(block int) (value T) {
	for i := len(h.blocks) - 1; h != nil && i >= 0; i-- {
		if h.blocks[i] <= block {
			return h.values[i]
		}
	}
	return value
}

// channels is the state of the contract. Ids and addresses are in lower case. The ledger's lock guards it.
type channels struct {
	byID      map[string]*history[x402.Channel]
	receivers map[string]*history[x402.ReceivedSums] // of the only token
}

func newChannels() channels {
	return channels{map[string]*history[x402.Channel]{}, map[string]*history[x402.ReceivedSums]{}}
}

const newestBlock = math.MaxInt

func (c channels) channel(id string) x402.Channel { return at(c.byID, id, newestBlock) }

func (c channels) received(receiver string) x402.ReceivedSums {
	return at(c.receivers, receiver, newestBlock)
}

// at returns an entry at the end of a block, or the zero value.
func at[T any](all map[string]*history[T], name string, block int) (value T) {
	if h := all[name]; h != nil {
		return h.at(block)
	}
	return value
}

// set records an entry that a block changed.
func set[T any](all map[string]*history[T], name string, block int, value T) {
	h := all[name]
	if h == nil {
		h = &history[T]{}
		all[name] = h
	}
	h.blocks, h.values = append(h.blocks, block), append(h.values, value)
}

// apply applies a record in a block. The functions in channel_calls.go have made the checks of the contract.
func (c channels) apply(r record, block int) {
	for _, row := range r.Claims {
		state, sums := c.channel(row.Channel), c.received(row.Receiver)
		sums.Claimed += row.Total - state.TotalClaimed
		state.TotalClaimed = row.Total
		set(c.byID, row.Channel, block, state)
		set(c.receivers, row.Receiver, block, sums)
	}
	state := c.channel(r.Channel)
	switch r.Kind {
	case kindDeposit:
		state.Balance += r.Amount
	case kindSettle:
		sums := c.received(r.To)
		sums.Settled += r.Amount
		set(c.receivers, r.To, block, sums)
		return
	case kindRefund:
		state.RefundNonce++
		state.Balance -= r.Amount
		if state.WithdrawAmount > r.Amount {
			state.WithdrawAmount -= r.Amount
		} else if r.Amount > 0 {
			state.WithdrawAmount, state.WithdrawRequestedAt = 0, 0
		}
	case kindWithdraw:
		state.WithdrawAmount, state.WithdrawRequestedAt = r.Amount, r.Time
	case kindWithdrawn:
		state.WithdrawAmount, state.WithdrawRequestedAt = 0, 0
		state.Balance -= r.Amount
	default:
		return
	}
	set(c.byID, r.Channel, block, state)
}

// Channel returns the state of a channel by its id.
func (l *Ledger) Channel(id string) x402.Channel {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.channels.channel(strings.ToLower(id))
}

// Received returns what a receiver claimed and was paid out over all its channels.
func (l *Ledger) Received(receiver string) x402.ReceivedSums {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.channels.received(strings.ToLower(receiver))
}

// Transactions counts what facilitators sent to the chain.
type Transactions struct {
	Transfers, Deposits int
	Claims, Claimed     int // claims, and the channels in them
	Settlements         int
	Refunds             int
}

// Transactions returns the transactions since the ledger exists.
func (l *Ledger) Transactions() (count Transactions) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		switch r.Kind {
		case kindTransfer:
			count.Transfers++
		case kindDeposit:
			count.Deposits++
		case kindClaim:
			count.Claims++
			count.Claimed += len(r.Claims)
		case kindSettle:
			count.Settlements++
		case kindRefund:
			count.Refunds++
		}
	}
	return count
}

// clamp converts a decimal to a number. Numbers above 2^64-1 are more than all money, whatever their value.
func clamp(decimal string) uint64 {
	number, err := strconv.ParseUint(decimal, 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return number
}
