package x402

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

const (
	chainToken = "0x036cbd53842c5426634e7929541ec2318f3dcf7e"
	chainPayer = "0x1a642f0e3c3af545e7acbd38b07251b3990914f1"
	chainPayee = "0x209693bc6afc0c5328ba36faf03c514ef312287c"
)

// endpoint is a JSON-RPC endpoint that replies as it is told.
type endpoint struct {
	Chain
	mu    sync.Mutex
	calls []rpcCall
}

type rpcCall struct {
	ID     jsontext.Value   `json:"id"`
	Method string           `json:"method"`
	Params []jsontext.Value `json:"params"`
}

// newEndpoint asks reply for the result of the nth call (from 1), or for an error; a number as an error is a status.
func newEndpoint(t *testing.T, reply func(n int, call rpcCall) (result string, err error)) *endpoint {
	t.Helper()
	e := &endpoint{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call rpcCall
		if err := json.UnmarshalRead(r.Body, &call); err != nil {
			t.Errorf("the call is not JSON: %v", err)
		}
		e.mu.Lock()
		e.calls = append(e.calls, call)
		n := len(e.calls)
		e.mu.Unlock()
		result, err := reply(n, call)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case err == nil:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, call.ID, result)
		case err.Error() == "hang up":
			panic(http.ErrAbortHandler)
		default:
			status, notStatus := strconv.Atoi(err.Error())
			if notStatus == nil {
				w.WriteHeader(status)
				return
			}
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":%s}`, call.ID, err)
		}
	}))
	t.Cleanup(server.Close)
	e.Chain = Chain{URL: server.URL + "/v2/the-key"}
	return e
}

func (e *endpoint) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.calls)
}

func TestChainRepeatsItself(t *testing.T) {
	t.Parallel()
	for failure, repeated := range map[string]bool{
		"429":     true,
		"503":     true,
		"hang up": true,
		`{"code":-32005,"message":"daily request count exceeded"}`: true,
		`{"code":-32016,"message":"over rate limit"}`:              true,
		`{"code":-32000,"message":"header not found"}`:             true,
		`{"code":-32000,"message":"execution reverted"}`:           false,
		`{"code":-32601,"message":"no such method"}`:               false,
		"401": false,
		"404": false,
	} {
		t.Run(failure, func(t *testing.T) {
			t.Parallel()
			e := newEndpoint(t, func(n int, _ rpcCall) (string, error) {
				if n < 3 {
					return "", errors.New(failure)
				}
				return `"0x2105"`, nil
			})
			id, err := e.ChainID(t.Context())
			if repeated && (err != nil || id != 8453) {
				t.Errorf("after two failures: %d, %v, want 8453", id, err)
			}
			if !repeated && (err == nil || e.count() != 1) {
				t.Errorf("it was tried %d times (%v), want once", e.count(), err)
			}
		})
	}
	t.Run("for good", func(t *testing.T) {
		t.Parallel()
		e := newEndpoint(t, func(int, rpcCall) (string, error) { return "", errors.New("503") })
		if _, err := e.ChainID(t.Context()); err == nil || e.count() != 3 || !strings.Contains(err.Error(), "503") {
			t.Errorf("it was tried %d times (%v), want three and the status", e.count(), err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		e := newEndpoint(t, func(int, rpcCall) (string, error) { cancel(); return "", errors.New("503") })
		if _, err := e.ChainID(ctx); err == nil || e.count() != 1 {
			t.Errorf("after its end it was tried %d times (%v), want once", e.count(), err)
		}
	})
}

func TestChainKeepsTheKeyToItself(t *testing.T) {
	t.Parallel()
	rejecting := newEndpoint(t, func(int, rpcCall) (string, error) { return "", errors.New("401") })
	for name, url := range map[string]string{
		"a refusal":       rejecting.URL,
		"nobody there":    "http://127.0.0.1:1/v2/the-key",
		"another scheme":  "wss://127.0.0.1:1/v2/the-key",
		"a malformed URL": "http://127.0.0.1:1/v2/the-key\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chain := Chain{URL: url}
			if _, err := chain.ChainID(t.Context()); err == nil || strings.Contains(err.Error(), "the-key") {
				t.Errorf("%v, want an error without the key", err)
			}
		})
	}
}

func TestChainAsksForFewerBlocks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		allowed uint64
		refusal string
		fails   bool
	}{
		"everything allowed":   {5000, "400", false},
		"a JSON-RPC error":     {500, `{"code":-32602,"message":"block range too large"}`, false},
		"status 400":           {500, "400", false},
		"status 413":           {7, "413", false},
		"one at a time":        {1, `{"code":-32000,"message":"too many"}`, false},
		"none at all":          {0, `{"code":-32000,"message":"too many"}`, true},
		"nothing for the poor": {0, "403", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked, refused := map[uint64]int{}, 0
			e := newEndpoint(t, func(_ int, call rpcCall) (string, error) {
				var filter struct{ FromBlock, ToBlock string }
				if err := json.Unmarshal(call.Params[0], &filter, json.MatchCaseInsensitiveNames(true)); err != nil {
					t.Errorf("the filter: %v", err)
				}
				from, _ := strconv.ParseUint(filter.FromBlock, 0, 64)
				to, _ := strconv.ParseUint(filter.ToBlock, 0, 64)
				if to-from+1 > test.allowed {
					refused++
					return "", errors.New(test.refusal)
				}
				for block := from; block <= to; block++ {
					asked[block]++
				}
				// A transfer of nothing is not reported.
				return "[" + transferLog(chainToken, chainPayer, chainPayee, from, from) + "," +
					transferLog(chainToken, chainPayer, chainPayee, 0, from) + "]", nil
			})
			var last uint64
			var failed error
			for transfer, err := range e.Transfers(t.Context(), chainToken, chainPayee, 100, 2200) {
				if failed = err; err == nil && transfer.Amount <= last {
					t.Errorf("the transfer of block %d comes after that of %d", transfer.Block, last)
				}
				last = transfer.Amount
			}
			if (failed != nil) != test.fails {
				t.Fatalf("the end is %v, want an error: %v", failed, test.fails)
			}
			if name == "nothing for the poor" && e.count() != 1 {
				t.Errorf("a refusal of everything was tried %d times, want once", e.count())
			}
			for block := uint64(99); block <= 2201; block++ {
				if want := block >= 100 && block <= 2200 && !test.fails; (asked[block] == 1) != want || asked[block] > 1 {
					t.Fatalf("block %d was read %d times", block, asked[block])
				}
			}
			refused = 0
			for _, failed = range e.Transfers(t.Context(), chainToken, chainPayee, 100, 2200) {
			}
			if refused > 1 && !test.fails {
				t.Errorf("%d further calls asked for too many blocks, want one (%v)", refused, failed)
			}
		})
	}
}

// transferLog is a Transfer of amount atomic units in transaction 1.
func transferLog(token, from, to string, amount, block uint64) string {
	return fmt.Sprintf(`{"address":"%s","topics":["%s","%s","%s"],"data":"0x%064x","blockNumber":"0x%x","transactionHash":"%s",`+
		`"logIndex":"0x1"}`,
		token, topicTransfer.Hex(), addressWord(from).Hex(), addressWord(to).Hex(), amount, block, word("0x1"))
}

func usedLog(authorizer, nonce string) string {
	return fmt.Sprintf(`{"address":"%s","topics":["%s","%s","%s"],"data":"0x","blockNumber":"0x7","transactionHash":"%s","logIndex":"0x0"}`,
		chainToken, topicAuthorizationUsed.Hex(), addressWord(authorizer).Hex(), word(nonce), word("0x1"))
}

// word is a hash with these last digits.
func word(digits string) string {
	digits = strings.TrimPrefix(digits, "0x")
	return "0x" + strings.Repeat("0", 64-len(digits)) + digits
}

// TestAuthorizationsIn: each authorization gets the transfer that it made and no other.
func TestAuthorizationsIn(t *testing.T) {
	t.Parallel()
	other := "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913"
	move := func(amount uint64) string { return transferLog(chainToken, chainPayer, chainPayee, amount, 7) }
	for name, test := range map[string]struct {
		logs []string
		want map[string]uint64 // amount by nonce
	}{
		"nothing": {nil, nil},
		"one":     {[]string{usedLog(chainPayer, "0xa"), move(1)}, map[string]uint64{"0xa": 1}},
		"two by one payer": {[]string{usedLog(chainPayer, "0xa"), move(1), usedLog(chainPayer, "0xb"), move(2)},
			map[string]uint64{"0xa": 1, "0xb": 2}},
		"two by two": {[]string{usedLog(chainPayer, "0xa"), move(1), usedLog(chainPayee, "0xb"),
			transferLog(chainToken, chainPayee, chainPayer, 2, 7)}, map[string]uint64{"0xa": 1, "0xb": 2}},
		"another token between": {[]string{usedLog(chainPayer, "0xa"), transferLog(other, chainPayer, chainPayee, 9, 7),
			move(1)}, map[string]uint64{"0xa": 1}},
		"another payer between": {[]string{usedLog(chainPayer, "0xa"), transferLog(chainToken, chainPayee, chainPayer, 9, 7),
			move(1)}, map[string]uint64{"0xa": 1}},
		"transfers without authorization": {[]string{move(9), usedLog(chainPayer, "0xa"), move(1), move(8)}, map[string]uint64{"0xa": 1}},
		"an authorization without its transfer": {[]string{usedLog(chainPayer, "0xa"), usedLog(chainPayer, "0xb"), move(1)},
			map[string]uint64{"0xb": 1}},
	} {
		e := newEndpoint(t, func(int, rpcCall) (string, error) {
			return `{"status":"0x1","logs":[` + strings.Join(test.logs, ",") + `]}`, nil
		})
		found, err := e.AuthorizationsIn(t.Context(), chainToken, word("0x1"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := map[string]uint64{}
		for _, one := range found {
			got["0x"+strings.TrimLeft(one.Nonce[2:], "0")] = one.Transfer.Amount
		}
		if diff := cmp.Diff(test.want, got); diff != "" && len(test.want)+len(got) > 0 {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestAuthorizationUnknown: whatever is contradictory or missing is an error, never "used" or "open".
func TestAuthorizationUnknown(t *testing.T) {
	t.Parallel()
	yes, used := `"`+word("0x1")+`"`, "["+usedLog(chainPayer, "0xa")+"]"
	move := transferLog(chainToken, chainPayer, chainPayee, 5000, 7)
	receipt := func(logs ...string) string { return `{"logs":[` + strings.Join(logs, ",") + `]}` }
	for name, test := range map[string]struct{ state, logs, receipt string }{
		"no event":                {yes, `[]`, `null`},
		"no receipt":              {yes, used, `null`},
		"no transfer":             {yes, used, receipt(usedLog(chainPayer, "0xa"))},
		"another's transfer":      {yes, used, receipt(usedLog(chainPayer, "0xa"), transferLog(chainToken, chainPayee, chainPayer, 1, 7))},
		"another's authorization": {yes, used, receipt(usedLog(chainPayer, "0xb"), move)},
		"an event of two topics": {yes, strings.Replace(used, `"`+word("0xa")+`"`, `"`+word("0xa")+`","`+word("0xa")+`"`, 1),
			receipt(usedLog(chainPayer, "0xa"), move)},
		"a reorganised event": {yes, strings.Replace(used, `"data"`, `"removed":true,"data"`, 1), receipt(usedLog(chainPayer, "0xa"), move)},
		"no token":            {`"0x"`, `[]`, `null`},
		"an amount beyond 64 bits": {yes, used, receipt(usedLog(chainPayer, "0xa"),
			strings.Replace(move, fmt.Sprintf("0x%064x", 5000), "0x"+strings.Repeat("f", 64), 1))},
	} {
		reply := map[string]string{
			"eth_getBlockByNumber": `{"number":"0x9","timestamp":"0x64"}`, "eth_call": test.state, "eth_getLogs": test.logs,
			"eth_getTransactionReceipt": test.receipt,
		}
		e := newEndpoint(t, func(_ int, call rpcCall) (string, error) { return reply[call.Method], nil })
		if got, err := e.Authorization(t.Context(), chainToken, chainPayer, word("0xa"), time.Unix(50, 0)); err == nil {
			t.Errorf("%s: %+v, want an error", name, got)
		}
	}
	for _, name := range [][3]string{{"USDC", chainPayer, word("0xa")}, {chainToken, "alice", word("0xa")}, {chainToken, chainPayer, "0xa"}} {
		e := newEndpoint(t, func(_ int, call rpcCall) (string, error) { return `{"number":"0x9","timestamp":"0x64"}`, nil })
		if got, err := e.Authorization(t.Context(), name[0], name[1], name[2], time.Now()); err == nil {
			t.Errorf("the authorization %v is %+v, want an error", name, got)
		}
	}
}

// TestAuthorizationIsAskedOfOneBlock: "open at ChainTime" must be true even if the next node behind the URL lags.
func TestAuthorizationIsAskedOfOneBlock(t *testing.T) {
	t.Parallel()
	e := newEndpoint(t, func(_ int, call rpcCall) (string, error) {
		if call.Method == "eth_getBlockByNumber" {
			return `{"number":"0x1234","timestamp":"0x64"}`, nil
		}
		if got := string(call.Params[1]); call.Method != "eth_call" || got != `"0x1234"` {
			t.Errorf("%s asks block %s, want eth_call of 0x1234", call.Method, got)
		}
		return `"` + word("0x0") + `"`, nil
	})
	got, err := e.Authorization(t.Context(), chainToken, chainPayer, word("0xa"), time.Unix(50, 0))
	if diff := cmp.Diff(AuthorizationState{ChainTime: time.Unix(100, 0).UTC()}, got); err != nil || diff != "" {
		t.Errorf("an open authorization: %v (-want +got):\n%s", err, diff)
	}
}
