package x402

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/parley-chat/parley/x402/evm"
)

const (
	// chainTimeout limits one attempt of a call. chainAttempts limits the attempts if the endpoint is busy or
	// unavailable.
	chainTimeout  = 10 * time.Second
	chainAttempts = 3
	// chainPause is the wait after the first attempt. The wait doubles after each further attempt.
	chainPause = 500 * time.Millisecond
	// logBlocks is the number of blocks in the first eth_getLogs call. Public endpoints allow 500 to 10,000.
	logBlocks = 2000
	// sinceMargin is how far before the given time the search for an authorization's event starts. The clocks of the
	// chain and of the caller can differ.
	sinceMargin = 10 * time.Minute
)

// Function selectors and event topics of the token contract (ERC-20, EIP-3009).
var (
	selectorBalanceOf          = []byte{0x70, 0xa0, 0x82, 0x31}
	selectorAuthorizationState = []byte{0xe9, 0x4a, 0x01, 0x02}

	topicTransfer              = evm.HexToHash("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")
	topicAuthorizationUsed     = evm.HexToHash("0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5")
	topicAuthorizationCanceled = evm.HexToHash("0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81")
)

// Chain reads an EVM chain over JSON-RPC. Public endpoints are sufficient. It is safe for concurrent use once its
// fields are set.
//
// Each attempt of a call has a timeout of ten seconds. Chain makes up to three attempts if the endpoint is busy or
// unavailable: no connection, no readable response, status 429 or 5xx, or a JSON-RPC error for a rate limit or a
// missing block. Addresses, nonces and hashes are accepted in any case and returned in lower case. Amounts are in
// atomic units. Times are in UTC. An error means that the result is not known. Errors never contain the URL, because
// the URL of many endpoints contains an API key.
type Chain struct {
	// URL is the endpoint, with the scheme http:// or https://.
	URL string
	// HTTPClient sends the requests. If nil, [http.DefaultClient] is used.
	HTTPClient *http.Client

	logSize atomic.Uint64 // for how many blocks the last eth_getLogs was allowed to ask
}

// AuthorizationState is the state of an EIP-3009 authorization on the chain. If Used and Cancelled are both false, the
// authorization was unused at ChainTime. An authorization that is unused at its validBefore or later can never be used.
type AuthorizationState struct {
	// Used is true if the authorization was used to transfer money.
	Used bool
	// Cancelled is true if the authorizer cancelled the authorization. It can never be used.
	Cancelled bool
	// Transaction is the hash of the transaction that used or cancelled the authorization: 0x and 64 hex digits. It is
	// "" if the authorization is unused.
	Transaction string
	// To is the payee and Amount the amount of the transfer, if Used is true.
	To     string
	Amount uint64
	// At is the time of the block that contains Transaction.
	At time.Time
	// ChainTime is the time of the newest block, which is the block whose state was read.
	ChainTime time.Time
}

// Transfer is a transfer of the token.
type Transfer struct {
	From, To    string
	Amount      uint64
	Transaction string
	Block       uint64
	LogIndex    uint64
}

// UsedAuthorization is a used authorization and the transfer that it made.
type UsedAuthorization struct {
	Authorizer, Nonce string
	Transfer          Transfer
}

// ChainID returns the numeric chain id, as in the chain's CAIP-2 id.
func (c *Chain) ChainID(ctx context.Context) (uint64, error) {
	var id evm.Uint64
	err := c.call(ctx, &id, "eth_chainId")
	return uint64(id), err
}

// OtherChain is the error of an endpoint that serves another blockchain.
type OtherChain struct {
	Serves  uint64
	Network string // the wanted one, a CAIP-2 id
}

func (e *OtherChain) Error() string {
	return fmt.Sprintf("the endpoint serves chain %d, not %s", e.Serves, e.Network)
}

// Serving returns the chain id if the endpoint serves the network, and an [*OtherChain] if it serves another one.
func (c *Chain) Serving(ctx context.Context, network string) (uint64, error) {
	id, err := c.ChainID(ctx)
	if err != nil {
		return 0, err
	}
	if want, err := ParseChainID(network); err != nil || id != want {
		return 0, &OtherChain{id, network}
	}
	return id, nil
}

// Newest returns the number and the time of the newest block.
func (c *Chain) Newest(ctx context.Context) (number uint64, at time.Time, err error) {
	newest, err := c.block(ctx, evm.LatestBlock)
	if err != nil {
		return 0, time.Time{}, err
	}
	return uint64(newest.Number), newest.time(), nil
}

// TimeOf returns the time of a block.
func (c *Chain) TimeOf(ctx context.Context, number uint64) (time.Time, error) {
	found, err := c.block(ctx, evm.BlockNumber(number))
	if err != nil {
		return time.Time{}, err
	}
	return found.time(), nil
}

// BlockAt returns the number of the newest block whose time is not after at. It returns 0 if all blocks are after at.
func (c *Chain) BlockAt(ctx context.Context, at time.Time) (uint64, error) {
	newest, err := c.block(ctx, evm.LatestBlock)
	if err != nil {
		return 0, err
	}
	return c.blockAt(ctx, at, newest)
}

// blockAt searches between block 0 and high.
func (c *Chain) blockAt(ctx context.Context, at time.Time, high *block) (uint64, error) {
	if !at.Before(high.time()) {
		return uint64(high.Number), nil
	}
	low, err := c.block(ctx, 0)
	if err != nil {
		return 0, err
	}
	if at.Before(low.time()) {
		return 0, nil
	}
	// Invariant: low's time is not after at, and high's time is after at. Most chains produce blocks at equal
	// intervals, so interpolation finds the block in few steps. Every second step is a bisection, which limits the
	// number of steps on other chains.
	for halve := false; high.Number-low.Number > 1; halve = !halve {
		gap := uint64(high.Number - low.Number)
		step := gap / 2
		if !halve {
			step = uint64(float64(gap) * float64(at.Sub(low.time())) / float64(high.time().Sub(low.time())))
		}
		middle, err := c.block(ctx, evm.BlockNumber(uint64(low.Number)+min(max(step, 1), gap-1)))
		if err != nil {
			return 0, err
		}
		if at.Before(middle.time()) {
			high = middle
		} else {
			low = middle
		}
	}
	return uint64(low.Number), nil
}

// Balance returns the holder's balance of the token asset at the newest block.
func (c *Chain) Balance(ctx context.Context, asset, holder string) (uint64, error) {
	return c.balance(ctx, asset, holder, evm.LatestBlock)
}

// BalanceAt returns the holder's balance of the token asset at the end of a block. Most endpoints keep this state for a
// few minutes only and return an error for older blocks.
func (c *Chain) BalanceAt(ctx context.Context, asset, holder string, block uint64) (uint64, error) {
	return c.balance(ctx, asset, holder, evm.BlockNumber(block))
}

func (c *Chain) balance(ctx context.Context, asset, holder string, at evm.BlockNumber) (uint64, error) {
	if !isAddress(holder) {
		return 0, fmt.Errorf("holder %q is not an address", holder)
	}
	word, err := c.ask(ctx, asset, at, selectorBalanceOf, addressWord(holder))
	if err != nil {
		return 0, err
	}
	return amountOf(word)
}

// HasCode reports whether the address is a contract. Only the chain can verify the signature of a contract (smart
// wallet).
func (c *Chain) HasCode(ctx context.Context, address string) (bool, error) {
	if !isAddress(address) {
		return false, fmt.Errorf("%q is not an address", address)
	}
	var code evm.Bytes
	err := c.call(ctx, &code, "eth_getCode", evm.HexToAddress(address), evm.LatestBlock)
	return len(code) > 0, err
}

// Authorization returns the state of an EIP-3009 authorization of the token asset. The caller guarantees that the
// authorization was not used or cancelled before since; a tolerance of ten minutes applies. Authorization returns an
// error if the token reports the authorization as used but has no event for it: it was used before since, or the nodes
// behind the endpoint disagree.
func (c *Chain) Authorization(ctx context.Context, asset, authorizer, nonce string, since time.Time) (AuthorizationState, error) {
	if !isAddress(authorizer) || !isHex(nonce, 32, 32) {
		return AuthorizationState{}, errors.New("an authorization is identified by an address and a nonce of 32 bytes")
	}
	newest, err := c.block(ctx, evm.LatestBlock)
	if err != nil {
		return AuthorizationState{}, err
	}
	// Read the state at this block and not at "latest". One URL can serve many nodes. A node that lags behind could
	// report the authorization as unused, while the newer time of another node suggests that it has expired unused.
	used, err := c.ask(ctx, asset, evm.BlockNumber(newest.Number), selectorAuthorizationState, addressWord(authorizer), evm.HexToHash(nonce))
	if err != nil {
		return AuthorizationState{}, err
	}
	state := AuthorizationState{ChainTime: newest.time()}
	if used == (evm.Hash{}) {
		return state, nil
	}
	first, err := c.blockAt(ctx, since.Add(-sinceMargin), newest)
	if err != nil {
		return AuthorizationState{}, err
	}
	topics := []any{[]evm.Hash{topicAuthorizationUsed, topicAuthorizationCanceled}, addressWord(authorizer), evm.HexToHash(nonce)}
	for log, err := range c.logs(ctx, asset, topics, first, uint64(newest.Number)) {
		if err != nil {
			return AuthorizationState{}, err
		}
		return c.closed(ctx, asset, log, state)
	}
	return AuthorizationState{}, fmt.Errorf("the token reports the authorization as used, but has no event for it since %s",
		since.UTC().Format(time.RFC3339))
}

// closed completes the state from the event that used or cancelled the authorization.
func (c *Chain) closed(ctx context.Context, asset string, event eventLog, state AuthorizationState) (AuthorizationState, error) {
	mined, err := c.block(ctx, evm.BlockNumber(event.BlockNumber))
	if err != nil {
		return AuthorizationState{}, err
	}
	state.Transaction, state.At = event.TransactionHash.Hex(), mined.time()
	if event.Topics[0] == topicAuthorizationCanceled {
		state.Cancelled = true
		return state, nil
	}
	moved, err := c.TransferBy(ctx, asset, addressOf(event.Topics[1]), event.Topics[2].Hex(), state.Transaction)
	switch {
	case err != nil:
		return AuthorizationState{}, err
	case moved == nil:
		return AuthorizationState{}, fmt.Errorf("transaction %s uses the authorization, but has no transfer of it", state.Transaction)
	}
	state.Used, state.To, state.Amount = true, moved.To, moved.Amount
	return state, nil
}

// view calls a view function of a contract at a block.
func (c *Chain) view(
	ctx context.Context, contract string, at evm.BlockNumber, selector []byte, arguments ...evm.Hash,
) (output evm.Bytes, err error) {
	if !isAddress(contract) {
		return nil, fmt.Errorf("token contract %q is not an address", contract)
	}
	input := slices.Concat(selector, evm.Join(arguments...))
	err = c.call(ctx, &output, "eth_call", map[string]any{"to": evm.HexToAddress(contract), "data": input}, at)
	return output, err
}

// ask calls a view function of the token contract that returns one word.
func (c *Chain) ask(ctx context.Context, asset string, at evm.BlockNumber, selector []byte, arguments ...evm.Hash) (evm.Hash, error) {
	output, err := c.view(ctx, asset, at, selector, arguments...)
	if err == nil && len(output) != evm.HashLength { // an address without a contract returns no data
		err = fmt.Errorf("there is no token with authorizations (EIP-3009) at %s", asset)
	}
	if err != nil {
		return evm.Hash{}, err
	}
	return evm.Hash(output), nil
}

func (c *Chain) block(ctx context.Context, number evm.BlockNumber) (*block, error) {
	var found *block
	if err := c.call(ctx, &found, "eth_getBlockByNumber", number, false); err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("the endpoint does not have block %s", number)
	}
	return found, nil
}

// call makes one JSON-RPC call. It retries, because all calls are read-only.
func (c *Chain) call(ctx context.Context, result any, method string, params ...any) error {
	for attempt, wait := 1, chainPause; ; attempt, wait = attempt+1, 2*wait {
		err := c.callOnce(ctx, result, method, params...)
		if err == nil {
			return nil
		}
		rejected, ok := errors.AsType[*rpcError](err)
		if attempt == chainAttempts || ctx.Err() != nil || ok && !rejected.passes() {
			return fmt.Errorf("chain %s: %w", method, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("chain %s: %w", method, ctx.Err())
		}
	}
}

// block is the part of a block header that Chain reads.
type block struct {
	Number    evm.Uint64 `json:"number"`
	Timestamp evm.Uint64 `json:"timestamp"`
}

func (b *block) time() time.Time { return time.Unix(int64(b.Timestamp), 0).UTC() }
