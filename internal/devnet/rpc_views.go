package devnet

import (
	"errors"
	"math/big"
	"slices"

	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// view is a view function of a contract: how many words it takes, and what it returns at the end of a block. The caller holds the
// ledger's lock.
type view struct {
	arguments int
	read      func(l *Ledger, arguments []evm.Hash, block int) ([]evm.Hash, error)
}

// views are the view functions of the token and of the contract for payment channels, by selector.
var views = map[evm.Address]map[string]view{
	tokenAddress: {
		selectorOf("name()"):    {0, func(*Ledger, []evm.Hash, int) ([]evm.Hash, error) { return textOf(token.AssetName), nil }},
		selectorOf("version()"): {0, func(*Ledger, []evm.Hash, int) ([]evm.Hash, error) { return textOf(token.AssetVersion), nil }},
		selectorOf("balanceOf(address)"): {1, func(l *Ledger, a []evm.Hash, block int) ([]evm.Hash, error) {
			return []evm.Hash{evm.Word(l.balanceAt(a[0].Address().Lower(), block))}, nil
		}},
		selectorOf("authorizationState(address,bytes32)"): {2, func(l *Ledger, a []evm.Hash, block int) ([]evm.Hash, error) {
			closed, ok := l.closed[authorization{a[0].Address().Lower(), a[1].Hex()}]
			if ok && closed <= block {
				return []evm.Hash{evm.Word(1)}, nil
			}
			return []evm.Hash{{}}, nil
		}},
	},
	evm.HexToAddress(contractAddress): {
		selectorOf("channels(bytes32)"): {1, func(l *Ledger, a []evm.Hash, block int) ([]evm.Hash, error) {
			state := at(l.channels.byID, a[0].Hex(), block)
			return []evm.Hash{evm.Word(state.Balance), evm.Word(state.TotalClaimed)}, nil
		}},
		selectorOf("pendingWithdrawals(bytes32)"): {1, func(l *Ledger, a []evm.Hash, block int) ([]evm.Hash, error) {
			state := at(l.channels.byID, a[0].Hex(), block)
			return []evm.Hash{evm.Word(state.WithdrawAmount), evm.Word(uint64(state.WithdrawRequestedAt))}, nil //nolint:gosec // not negative
		}},
		selectorOf("refundNonce(bytes32)"): {1, func(l *Ledger, a []evm.Hash, block int) ([]evm.Hash, error) {
			return []evm.Hash{evm.Word(at(l.channels.byID, a[0].Hex(), block).RefundNonce)}, nil
		}},
		selectorOf("receivers(address,address)"): {2, func(l *Ledger, a []evm.Hash, block int) ([]evm.Hash, error) {
			if a[1].Address() != tokenAddress {
				return []evm.Hash{{}, {}}, nil
			}
			sums := at(l.channels.receivers, a[0].Address().Lower(), block)
			return []evm.Hash{evm.Word(sums.Claimed), evm.Word(sums.Settled)}, nil
		}},
		selectorOf("getChannelId((address,address,address,address,address,uint40,bytes32))"): {7,
			func(_ *Ledger, a []evm.Hash, _ int) ([]evm.Hash, error) {
				delay, _ := a[5].Uint64()
				id, err := channelDomain.ChannelID(x402.ChannelConfig{
					Payer: a[0].Address().Hex(), PayerAuthorizer: a[1].Address().Hex(), Receiver: a[2].Address().Hex(),
					ReceiverAuthorizer: a[3].Address().Hex(), Token: a[4].Address().Hex(), WithdrawDelay: delay, Salt: a[6].Hex(),
				})
				return []evm.Hash{evm.HexToHash(id)}, err
			}},
		selectorOf("getVoucherDigest(bytes32,uint128)"): {2, func(_ *Ledger, a []evm.Hash, _ int) ([]evm.Hash, error) {
			digest, err := channelDomain.VoucherDigest(a[0].Hex(), new(big.Int).SetBytes(a[1][:]).String())
			return []evm.Hash{digest}, err
		}},
	},
}

func selectorOf(signature string) string { return string(evm.Keccak256([]byte(signature))[:4]) }

// textOf encodes a text of at most 32 bytes as the result of a function.
func textOf(text string) []evm.Hash {
	var padded evm.Hash
	copy(padded[:], text)
	return []evm.Hash{evm.Word(evm.HashLength), evm.Word(uint64(len(text))), padded}
}

// message is the call object of eth_call. Clients use either of the names data and input.
type message struct {
	To    evm.Address `json:"to"`
	Data  evm.Bytes   `json:"data"`
	Input evm.Bytes   `json:"input"`
}

// call implements eth_call.
func (c chain) call(call message, number evm.BlockNumber) (any, error) {
	input := slices.Concat(call.Data, call.Input)
	contract, ok := views[call.To]
	if !ok {
		return evm.Bytes{}, nil
	}
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	at, ok := c.ledger.blockNumber(number)
	if !ok {
		return nil, errors.New("header not found")
	}
	selector := min(4, len(input))
	called, ok := contract[string(input[:selector])]
	arguments := input[selector:].Words()
	if !ok || len(input) != selector+evm.HashLength*called.arguments {
		return nil, errors.New("execution reverted")
	}
	words, err := called.read(c.ledger, arguments, at)
	if err != nil {
		return nil, errors.New("execution reverted")
	}
	return evm.Join(words...), nil
}
