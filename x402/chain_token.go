package x402

import (
	"context"
	"fmt"
	"strings"

	"github.com/parley-chat/parley/x402/evm"
)

// Selectors of the token's name() and version().
var (
	selectorName    = []byte{0x06, 0xfd, 0xde, 0x03}
	selectorVersion = []byte{0x54, 0xfd, 0x4d, 0x50}
)

// TokenDomain reads the EIP-712 name and version of the token asset at the newest block. Not every token has functions for them:
// then it returns an error.
func (c *Chain) TokenDomain(ctx context.Context, asset string) (name, version string, err error) {
	if name, err = c.text(ctx, asset, selectorName); err != nil {
		return "", "", err
	}
	version, err = c.text(ctx, asset, selectorVersion)
	return name, version, err
}

// text calls a function of a contract without arguments that returns one string.
func (c *Chain) text(ctx context.Context, contract string, selector []byte) (string, error) {
	output, err := c.view(ctx, contract, evm.LatestBlock, selector)
	if err != nil {
		return "", err
	}
	// One word with the place of the string, one with its length, its bytes.
	const words = 2 * evm.HashLength
	if len(output) < words {
		return "", fmt.Errorf("the contract %s has no such text", contract)
	}
	text := output[words:]
	length, err := amountOf(evm.Hash(output[evm.HashLength:words]))
	if err != nil || length > uint64(len(text)) {
		return "", fmt.Errorf("the contract %s has no such text", contract)
	}
	return strings.ToValidUTF8(string(text[:length]), "\uFFFD"), nil
}
