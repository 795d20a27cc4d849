package devnet

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/rpc"
)

// chain shows the ledger as an EVM chain with one contract, the token, over Ethereum's JSON-RPC: as much of it as
// [x402.Chain] reads. The accounts are funded in block 0, each mint, transfer and cancellation since then is a block of
// its own, and on top is always an empty block whose time is now, so that time goes on where nothing happens.
//
// It has eth_chainId, eth_blockNumber, eth_getBlockByNumber (number and timestamp only), eth_getCode, eth_call of the
// token's balanceOf and authorizationState, eth_getLogs of the token by blocks and topics, and
// eth_getTransactionReceipt. It has no hashes of blocks, no senders, gas, transactions to send or subscriptions. Mints
// and cancellations have made-up transaction hashes. Transfers that were given the same hash share one receipt,
// although each stands in its own block.
type chain struct{ ledger *Ledger }

// serveChain returns the handler of POST /rpc.
func serveChain(ledger *Ledger) http.Handler {
	server := rpc.NewServer()
	if err := server.RegisterName("eth", chain{ledger}); err != nil {
		panic("devnet: " + err.Error()) // only if no method can be called
	}
	return server
}

var (
	tokenAddress = common.HexToAddress(token.Asset)

	topicTransfer              = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))
	topicAuthorizationUsed     = crypto.Keccak256Hash([]byte("AuthorizationUsed(address,bytes32)"))
	topicAuthorizationCanceled = crypto.Keccak256Hash([]byte("AuthorizationCanceled(address,bytes32)"))
	selectorBalanceOf          = string(crypto.Keccak256([]byte("balanceOf(address)"))[:4])
	selectorAuthorizationState = string(crypto.Keccak256([]byte("authorizationState(address,bytes32)"))[:4])
)

type header struct {
	Number    hexutil.Uint64 `json:"number"`
	Timestamp hexutil.Uint64 `json:"timestamp"`
}

type event struct {
	Address         common.Address `json:"address"`
	Topics          []common.Hash  `json:"topics"`
	Data            hexutil.Bytes  `json:"data"`
	BlockNumber     hexutil.Uint64 `json:"blockNumber"`
	TransactionHash common.Hash    `json:"transactionHash"`
	LogIndex        hexutil.Uint64 `json:"logIndex"`
	Removed         bool           `json:"removed"`
}

type transactionReceipt struct {
	TransactionHash common.Hash    `json:"transactionHash"`
	BlockNumber     hexutil.Uint64 `json:"blockNumber"`
	Status          hexutil.Uint64 `json:"status"`
	Logs            []event        `json:"logs"`
}

// ChainId is eth_chainId.
func (c chain) ChainId() hexutil.Uint64 { return hexutil.Uint64(token.ChainID) }

// BlockNumber is eth_blockNumber.
func (c chain) BlockNumber() hexutil.Uint64 {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	return hexutil.Uint64(c.ledger.tip())
}

// GetBlockByNumber is eth_getBlockByNumber: null for a block that is not there yet.
func (c chain) GetBlockByNumber(number rpc.BlockNumber, _ bool) *header {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	at, ok := c.ledger.blockNumber(number)
	if !ok {
		return nil
	}
	return &header{hexutil.Uint64(at), hexutil.Uint64(c.ledger.blockTime(at))}
}

// GetCode is eth_getCode: only the token has any.
func (c chain) GetCode(address common.Address, _ rpc.BlockNumber) hexutil.Bytes {
	if address != tokenAddress {
		return hexutil.Bytes{}
	}
	return hexutil.Bytes{0xfe} // an instruction that always fails; nothing is executed here
}

// message is what eth_call is asked; clients use either of the two names.
type message struct {
	To    common.Address `json:"to"`
	Data  hexutil.Bytes  `json:"data"`
	Input hexutil.Bytes  `json:"input"`
}

// Call is eth_call.
func (c chain) Call(call message, number rpc.BlockNumber) (hexutil.Bytes, error) {
	input := string(slices.Concat(call.Data, call.Input))
	if call.To != tokenAddress {
		return hexutil.Bytes{}, nil // nobody at home
	}
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	at, ok := c.ledger.blockNumber(number)
	if !ok {
		return nil, errors.New("header not found")
	}
	address := func() string { return hexutil.Encode([]byte(input[16:36])) }
	var answer uint64
	switch {
	case strings.HasPrefix(input, selectorBalanceOf) && len(input) == 36:
		answer = c.ledger.balanceAt(address(), at)
	case strings.HasPrefix(input, selectorAuthorizationState) && len(input) == 68:
		closed, ok := c.ledger.closed[authorization{address(), hexutil.Encode([]byte(input[36:]))}]
		if ok && closed <= at {
			answer = 1
		}
	default:
		return nil, errors.New("execution reverted")
	}
	return wordOf(answer), nil
}

// logFilter is what eth_getLogs is asked. Each of the topics is null, one, or several of which one must be there.
type logFilter struct {
	Address   common.Address  `json:"address"`
	FromBlock rpc.BlockNumber `json:"fromBlock"`
	ToBlock   rpc.BlockNumber `json:"toBlock"`
	Topics    []topicSet      `json:"topics"`
}

type topicSet []common.Hash

// UnmarshalJSON reads null, a string or an array of strings.
func (t *topicSet) UnmarshalJSON(data []byte) error {
	var one *common.Hash
	if json.Unmarshal(data, &one) != nil {
		return json.Unmarshal(data, (*[]common.Hash)(t))
	}
	if one != nil {
		*t = topicSet{*one}
	}
	return nil
}

func (f logFilter) wants(e event) bool {
	for i, set := range f.Topics {
		if len(set) > 0 && (i >= len(e.Topics) || !slices.Contains(set, e.Topics[i])) {
			return false
		}
	}
	return true
}

// GetLogs is eth_getLogs.
func (c chain) GetLogs(filter logFilter) ([]event, error) {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	from, ok := c.ledger.blockNumber(filter.FromBlock)
	if !ok {
		return nil, fmt.Errorf("block %s is not there yet", filter.FromBlock)
	}
	to, ok := c.ledger.blockNumber(filter.ToBlock)
	if !ok {
		to = c.ledger.tip()
	}
	found := []event{}
	if filter.Address != tokenAddress {
		return found, nil
	}
	for at := max(from, 1); at <= to && at <= len(c.ledger.records); at++ {
		for _, e := range c.ledger.events(at) {
			if filter.wants(e) {
				found = append(found, e)
			}
		}
	}
	return found, nil
}

// GetTransactionReceipt is eth_getTransactionReceipt: null for a transaction that never was.
func (c chain) GetTransactionReceipt(hash common.Hash) *transactionReceipt {
	c.ledger.mu.Lock()
	defer c.ledger.mu.Unlock()
	var receipt *transactionReceipt
	for i, r := range c.ledger.records {
		if at := i + 1; r.hash(at) == hash {
			if receipt == nil {
				receipt = &transactionReceipt{TransactionHash: hash, BlockNumber: hexutil.Uint64(at), Status: 1}
			}
			receipt.Logs = append(receipt.Logs, c.ledger.events(at)...)
		}
	}
	return receipt
}

// tip is the number of the empty block on top. The caller of this and of what follows holds the lock.
func (l *Ledger) tip() int { return len(l.records) + 1 }

// blockNumber resolves a number or a name; false if there is no such block yet.
func (l *Ledger) blockNumber(number rpc.BlockNumber) (int, bool) {
	switch {
	case number == rpc.EarliestBlockNumber:
		return 0, true
	case number < 0: // latest, and the others that are the same here
		return l.tip(), true
	}
	return int(number), int(number) <= l.tip()
}

// blockTime is in Unix seconds. Block 0 is as old as time itself.
func (l *Ledger) blockTime(at int) int64 {
	last := len(l.records)
	switch {
	case at == 0:
		return 0
	case at <= last:
		return l.records[at-1].Time
	case last == 0:
		return time.Now().Unix()
	}
	return max(time.Now().Unix(), l.records[last-1].Time)
}

// balanceAt goes back from what the balance is now.
func (l *Ledger) balanceAt(address string, at int) uint64 {
	balance := l.balances[address]
	for i := len(l.records) - 1; i >= at; i-- {
		r := l.records[i]
		if r.From == address {
			balance += r.Amount
		}
		if r.To == address {
			balance -= r.Amount
		}
	}
	return balance
}

// hash is the transaction of the record that is block at.
func (r record) hash(at int) common.Hash {
	if r.Transaction == "" {
		return crypto.Keccak256Hash(fmt.Appendf(nil, "%s %s %d", NetworkID, r.Kind, at))
	}
	return common.HexToHash(r.Transaction)
}

// events are what the token contract would have left in a block, in EIP-3009's order.
func (l *Ledger) events(at int) []event {
	r := l.records[at-1]
	authorized := func(topic common.Hash) event {
		return event{Topics: []common.Hash{topic, addressTopic(r.From), common.HexToHash(r.Nonce)}, Data: hexutil.Bytes{}}
	}
	moved := event{Topics: []common.Hash{topicTransfer, addressTopic(r.From), addressTopic(r.To)}, Data: wordOf(r.Amount)}
	var events []event
	switch r.Kind {
	case kindMint: // from address 0, as tokens have it
		events = []event{moved}
	case kindTransfer:
		events = []event{authorized(topicAuthorizationUsed), moved}
	case kindCancel:
		events = []event{authorized(topicAuthorizationCanceled)}
	}
	for i := range events {
		events[i].Address = tokenAddress
		events[i].BlockNumber, events[i].TransactionHash, events[i].LogIndex = hexutil.Uint64(at), r.hash(at), hexutil.Uint64(i)
	}
	return events
}

func addressTopic(address string) common.Hash {
	return common.BytesToHash(common.HexToAddress(address).Bytes())
}

func wordOf(number uint64) hexutil.Bytes {
	return binary.BigEndian.AppendUint64(make([]byte, common.HashLength-8), number)
}
