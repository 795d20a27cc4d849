package devnet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	"github.com/creachadair/jrpc2"
	"github.com/creachadair/jrpc2/handler"
	"github.com/creachadair/jrpc2/jhttp"

	"github.com/parley-chat/parley/x402/evm"
)

// chain serves the ledger as an EVM chain with the token and the contract for payment channels, over Ethereum's
// JSON-RPC. It implements the part that [x402.Chain] reads. The accounts are funded in block 0. Each later mint,
// transfer and cancellation is a block of its own. A call that asks for the newest block creates an empty block with
// the current second, so that time advances without transfers. Empty blocks are lost at a restart, which changes the
// numbers of the other blocks.
//
// Methods: eth_chainId, eth_blockNumber, eth_getBlockByNumber (number and timestamp only), eth_getCode, eth_call of the
// token's balanceOf, authorizationState, name and version and of the channel contract's views (channel_rpc.go),
// eth_getLogs of the token and the channel contract by blocks and topics, and eth_getTransactionReceipt. Not
// implemented: block hashes, senders, gas, sending transactions, subscriptions. Mints and cancellations have generated
// transaction hashes. Transfers with the same hash share one receipt, although each is in its own block.
type chain struct{ ledger *Ledger }

// codeServerError is the code that Ethereum nodes use for errors without a code of their own (EIP-1474).
const codeServerError jrpc2.Code = -32000

// serveChain returns the handler of POST /rpc. It accepts single calls and batches of JSON-RPC 2.0.
func serveChain(ledger *Ledger) http.Handler {
	c := chain{ledger}
	return jhttp.NewBridge(handler.Map{
		"eth_chainId":     method(0, func(_, _ none) (any, error) { return evm.Uint64(token.ChainID), nil }),
		"eth_blockNumber": method(0, func(_, _ none) (any, error) { return c.newestBlock(), nil }),
		"eth_getBlockByNumber": method(2, func(number evm.BlockNumber, _ bool) (any, error) {
			return c.block(number), nil
		}),
		"eth_getCode": method(2, func(address evm.Address, _ evm.BlockNumber) (any, error) {
			return c.code(address), nil
		}),
		"eth_call": method(2, c.call),
		"eth_getLogs": method(1, func(filter logFilter, _ none) (any, error) {
			return c.logs(filter)
		}),
		"eth_getTransactionReceipt": method(1, func(hash evm.Hash, _ none) (any, error) {
			return c.receipt(hash), nil
		}),
	}, nil)
}

// none is the type of an argument that a method does not have.
type none struct{}

// method returns the handler of a method with at most two arguments. Its parameters are an array of exactly these; a
// call without parameters may omit the array.
func method[A, B any](arguments int, run func(a A, b B) (any, error)) jrpc2.Handler {
	return func(_ context.Context, call *jrpc2.Request) (any, error) {
		var a A
		var b B
		if call.HasParams() {
			if err := call.UnmarshalParams(new(handler.Args([]any{&a, &b}[:arguments]))); err != nil {
				return nil, err
			}
		} else if arguments > 0 {
			return nil, jrpc2.Errorf(jrpc2.InvalidParams, "missing value for required argument 0")
		}
		result, err := run(a, b)
		if err != nil {
			return nil, jrpc2.Errorf(codeServerError, "%s", err)
		}
		return result, nil
	}
}

var (
	tokenAddress = evm.HexToAddress(token.Asset)

	topicTransfer              = evm.Keccak256Hash([]byte("Transfer(address,address,uint256)"))
	topicAuthorizationUsed     = evm.Keccak256Hash([]byte("AuthorizationUsed(address,bytes32)"))
	topicAuthorizationCanceled = evm.Keccak256Hash([]byte("AuthorizationCanceled(address,bytes32)"))
)

type header struct {
	Number    evm.Uint64 `json:"number"`
	Timestamp evm.Uint64 `json:"timestamp"`
}

type transactionReceipt struct {
	TransactionHash evm.Hash   `json:"transactionHash"`
	BlockNumber     evm.Uint64 `json:"blockNumber"`
	Status          evm.Uint64 `json:"status"`
	Logs            []evm.Log  `json:"logs"`
}

// newestBlock implements eth_blockNumber.
func (c chain) newestBlock() evm.Uint64 {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	return evm.Uint64(c.ledger.tip())
}

// block implements eth_getBlockByNumber. It returns null for a block that does not exist yet.
func (c chain) block(number evm.BlockNumber) *header {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	at, ok := c.ledger.blockNumber(number)
	if !ok {
		return nil
	}
	return &header{evm.Uint64(at), evm.Uint64(c.ledger.blockTime(at))}
}

// code implements eth_getCode. Only the token and the contracts for payment channels have code.
func (c chain) code(address evm.Address) evm.Bytes {
	if address != tokenAddress && !isChannelContract(address) {
		return evm.Bytes{}
	}
	return evm.Bytes{0xfe} // the INVALID instruction; the dev network executes no code
}

// logFilter is the filter of eth_getLogs. Each entry of Topics is null, one topic, or several topics of which one must
// match.
type logFilter struct {
	Address   evm.Address     `json:"address"`
	FromBlock evm.BlockNumber `json:"fromBlock"`
	ToBlock   evm.BlockNumber `json:"toBlock"`
	Topics    []topicSet      `json:"topics"`
}

type topicSet []evm.Hash

// UnmarshalJSON accepts null, a string or an array of strings.
func (t *topicSet) UnmarshalJSON(data []byte) error {
	var one *evm.Hash
	if json.Unmarshal(data, &one) != nil {
		return json.Unmarshal(data, (*[]evm.Hash)(t))
	}
	if one != nil {
		*t = topicSet{*one}
	}
	return nil
}

func (f logFilter) wants(e evm.Log) bool {
	for i, set := range f.Topics {
		if len(set) > 0 && (i >= len(e.Topics) || !slices.Contains(set, e.Topics[i])) {
			return false
		}
	}
	return true
}

// logs implements eth_getLogs.
func (c chain) logs(filter logFilter) ([]evm.Log, error) {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	from, ok := c.ledger.blockNumber(filter.FromBlock)
	if !ok {
		return nil, fmt.Errorf("block %s is not there yet", filter.FromBlock)
	}
	to, ok := c.ledger.blockNumber(filter.ToBlock)
	if !ok {
		to = len(c.ledger.records)
	}
	found := []evm.Log{}
	for at := max(from, 1); at <= to; at++ {
		for _, e := range c.ledger.events(at) {
			if e.Address == filter.Address && filter.wants(e) {
				found = append(found, e)
			}
		}
	}
	return found, nil
}

// receipt implements eth_getTransactionReceipt. It returns null for an unknown transaction.
func (c chain) receipt(hash evm.Hash) *transactionReceipt {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	var receipt *transactionReceipt
	for _, at := range c.ledger.blocks[hash] {
		if receipt == nil {
			receipt = &transactionReceipt{TransactionHash: hash, BlockNumber: evm.Uint64(at), Status: 1}
		}
		receipt.Logs = append(receipt.Logs, c.ledger.events(at)...)
	}
	return receipt
}
