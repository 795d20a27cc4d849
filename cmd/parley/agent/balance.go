package agent

import (
	"context"
	"errors"

	"github.com/parley-chat/parley/x402"
)

// errNoChain means that the balance cannot be read.
var errNoChain = errors.New("no endpoint of the blockchain is known; name one with: parley init --rpc-url URL")

// balance returns what the wallet has, in atomic units, without deposits in payment channels.
func (s *session) balance(ctx context.Context) (uint64, error) {
	chain := s.chain()
	network, known := x402.LookupNetwork(s.config.Network)
	if chain == nil || !known {
		return 0, errNoChain
	}
	return chain.Balance(ctx, network.Asset, s.agent.Address())
}
