package x402

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/parley-chat/parley/x402/evm"
)

const (
	// chainTimeout bounds one attempt of one call, chainAttempts the patience with an endpoint that is busy or away.
	chainTimeout  = 10 * time.Second
	chainAttempts = 3
	// chainPause is the wait after the first attempt; each further one doubles it.
	chainPause = 500 * time.Millisecond
	// logBlocks is how many blocks one eth_getLogs asks about at first; public endpoints allow 500 to 10,000.
	logBlocks = 2000
	// sinceMargin is how far before the given time the search for an authorization's event begins: the clocks of the
	// chain and of the asker differ.
	sinceMargin = 10 * time.Minute
)

// What the token contract is asked, and the events that it leaves (ERC-20, EIP-3009).
var (
	selectorBalanceOf          = []byte{0x70, 0xa0, 0x82, 0x31}
	selectorAuthorizationState = []byte{0xe9, 0x4a, 0x01, 0x02}

	topicTransfer              = evm.HexToHash("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")
	topicAuthorizationUsed     = evm.HexToHash("0x98de503528ee59b575ef0c0a2576a82497bfc029a5685b209e9ec333479b10a5")
	topicAuthorizationCanceled = evm.HexToHash("0x1cdd46ff242716cdaa72d159d339a485b3438398348d68f09d7c8c0a59353d81")
)

// Chain reads an EVM chain over JSON-RPC; public endpoints will do. It is safe for concurrent use once its fields are
// set. Each call to the endpoint has ten seconds and is made up to three times while the endpoint is busy or away
// (429, 5xx, no connection). Addresses, nonces and hashes are taken in any case and returned in lower case; amounts
// are in atomic units; times are UTC. An error means that the response is not known; it never holds the URL, in which
// many endpoints want to see a key.
type Chain struct {
	// URL is the endpoint, http:// or https://.
	URL string
	// HTTPClient sends the requests; nil means one with the default transport.
	HTTPClient *http.Client
}

// AuthorizationState is what the chain knows of an EIP-3009 authorization. Neither Used nor Cancelled means that it was
// open at ChainTime; if ChainTime is not before its validBefore, it can never be used.
type AuthorizationState struct {
	// Used is true if the authorization has moved its money.
	Used bool
	// Cancelled is true if its authorizer took it back: it can never be used.
	Cancelled bool
	// Transaction is the hash of the transaction that used or cancelled it, 0x and 64 hex digits; else "".
	Transaction string
	// To and Amount say where the money went and how much, if Used.
	To     string
	Amount uint64
	// At is the time of that transaction's block.
	At time.Time
	// ChainTime is the time of the block whose state was read, the newest one.
	ChainTime time.Time
}

// Transfer is money that moved.
type Transfer struct {
	From, To    string
	Amount      uint64
	Transaction string
	Block       uint64
	LogIndex    uint64
}

// UsedAuthorization is an authorization with the transfer that it made.
type UsedAuthorization struct {
	Authorizer, Nonce string
	Transfer          Transfer
}

// ChainID returns the number in the chain's CAIP-2 id.
func (c *Chain) ChainID(ctx context.Context) (uint64, error) {
	var id evm.Uint64
	err := c.call(ctx, &id, "eth_chainId")
	return uint64(id), err
}

// Newest returns the newest block's number and time.
func (c *Chain) Newest(ctx context.Context) (number uint64, at time.Time, err error) {
	newest, err := c.block(ctx, evm.LatestBlock)
	if err != nil {
		return 0, time.Time{}, err
	}
	return uint64(newest.Number), newest.time(), nil
}

// BlockAt returns the number of the newest block that is not younger than at, and 0 if the whole chain is younger.
func (c *Chain) BlockAt(ctx context.Context, at time.Time) (uint64, error) {
	newest, err := c.block(ctx, evm.LatestBlock)
	if err != nil {
		return 0, err
	}
	return c.blockAt(ctx, at, newest)
}

// blockAt searches between the first block and high.
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
	// low is never younger than at and high always is. Most chains have their blocks at equal distances, so a guess in
	// proportion is nearly right at once; every second step halves, so that any other chain takes few steps, too.
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

// Balance returns what holder has of the token asset at the newest block.
func (c *Chain) Balance(ctx context.Context, asset, holder string) (uint64, error) {
	return c.balance(ctx, asset, holder, evm.LatestBlock)
}

// BalanceAt returns what holder had of the token asset at the end of a block. Most endpoints remember this of the last
// few minutes only and fail for older blocks.
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

// HasCode tells whether there is a contract at the address: a smart wallet's signature only the chain can judge.
func (c *Chain) HasCode(ctx context.Context, address string) (bool, error) {
	if !isAddress(address) {
		return false, fmt.Errorf("%q is not an address", address)
	}
	var code evm.Bytes
	err := c.call(ctx, &code, "eth_getCode", evm.HexToAddress(address), evm.LatestBlock)
	return len(code) > 0, err
}

// Authorization returns the state of an EIP-3009 authorization of the token asset. since is a time before which it
// cannot have been used or cancelled, with a tolerance of ten minutes. It is an error if the token says that it is
// used, but there is no event that tells what became of it: it was used earlier, or the endpoint's parts disagree.
func (c *Chain) Authorization(ctx context.Context, asset, authorizer, nonce string, since time.Time) (AuthorizationState, error) {
	if !isAddress(authorizer) || !isHex(nonce, 32, 32) {
		return AuthorizationState{}, errors.New("an authorization is named by an address and a nonce of 32 bytes")
	}
	newest, err := c.block(ctx, evm.LatestBlock)
	if err != nil {
		return AuthorizationState{}, err
	}
	// The state is asked of that very block, not of the latest: behind one URL stand many nodes, and one that lags
	// would call open what its newer neighbour's time seems to have closed for good.
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
	return AuthorizationState{}, fmt.Errorf("the token calls the authorization used, but has no event of it since %s",
		since.UTC().Format(time.RFC3339))
}

// closed completes the state by the event that ended the authorization.
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
	used, err := c.AuthorizationsIn(ctx, asset, state.Transaction)
	if err != nil {
		return AuthorizationState{}, err
	}
	for _, one := range used {
		if one.Authorizer == addressOf(event.Topics[1]) && one.Nonce == event.Topics[2].Hex() {
			state.Used, state.To, state.Amount = true, one.Transfer.To, one.Transfer.Amount
			return state, nil
		}
	}
	return AuthorizationState{}, fmt.Errorf("transaction %s uses the authorization, but has no transfer of it", state.Transaction)
}

// ask calls a view function of the token contract at a block and returns the one word that it answers.
func (c *Chain) ask(ctx context.Context, asset string, at evm.BlockNumber, selector []byte, arguments ...evm.Hash) (evm.Hash, error) {
	if !isAddress(asset) {
		return evm.Hash{}, fmt.Errorf("token contract %q is not an address", asset)
	}
	input := append(evm.Bytes{}, selector...)
	for _, argument := range arguments {
		input = append(input, argument[:]...)
	}
	var output evm.Bytes
	call := map[string]any{"to": evm.HexToAddress(asset), "data": input}
	if err := c.call(ctx, &output, "eth_call", call, at); err != nil {
		return evm.Hash{}, err
	}
	if len(output) != evm.HashLength { // nothing comes from an address without a contract
		return evm.Hash{}, fmt.Errorf("there is no token with authorizations (EIP-3009) at %s", asset)
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

// call makes one JSON-RPC call, which only reads and so may be repeated.
func (c *Chain) call(ctx context.Context, result any, method string, params ...any) error {
	for attempt, wait := 1, chainPause; ; attempt, wait = attempt+1, 2*wait {
		err := c.callOnce(ctx, result, method, params...)
		if err == nil {
			return nil
		}
		refused, ok := errors.AsType[*rpcRefusal](err)
		if attempt == chainAttempts || ctx.Err() != nil || ok && !refused.passes() {
			return fmt.Errorf("chain %s: %w", method, err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("chain %s: %w", method, ctx.Err())
		}
	}
}

// block is what is needed of a block's header.
type block struct {
	Number    evm.Uint64 `json:"number"`
	Timestamp evm.Uint64 `json:"timestamp"`
}

func (b *block) time() time.Time { return time.Unix(int64(b.Timestamp), 0).UTC() }
