package x402

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxRPCBytes limits the size of a response. The response to eth_getLogs for logBlocks blocks has a few MiB.
const maxRPCBytes = 64 << 20

// rpcRequest and rpcResponse are the request and the response of a JSON-RPC 2.0 call.
//
// This package implements JSON-RPC itself, because no maintained library is suitable: creachadair/jrpc2 sends HTTP
// requests without a context and hides the status code, sourcegraph/jsonrpc2 has no HTTP transport, and go-ethereum/rpc
// is under the LGPL.
type rpcRequest struct {
	Version string `json:"jsonrpc"`
	ID      int    `json:"id"`
	Method  string `json:"method"`
	Params  []any  `json:"params,omitempty"`
}

type rpcResponse struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// callOnce makes one attempt of a call. Its errors never contain the URL.
func (c *Chain) callOnce(ctx context.Context, result any, method string, params ...any) error {
	parsed, err := url.Parse(c.URL)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return errors.New("the endpoint's URL must begin with http:// or https://")
	}
	body, err := json.Marshal(rpcRequest{"2.0", 1, method, params})
	if err != nil {
		return fmt.Errorf("encode the call: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, chainTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the endpoint's URL must begin with http:// or https://")
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", "application/json")
	client := c.HTTPClient
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(request)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err // without the URL
	}
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return readRPC(response, result)
}

// readRPC reads the response to one call to the end, so that the connection can be reused.
func readRPC(response *http.Response, result any) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRPCBytes+1))
	switch {
	case response.StatusCode < 200 || response.StatusCode > 299:
		return &rpcError{status: response.StatusCode}
	case err != nil:
		return fmt.Errorf("read the response: %w", err)
	case len(body) > maxRPCBytes:
		return &rpcError{message: fmt.Sprintf("the response has more than %d bytes", maxRPCBytes)}
	}
	var decoded rpcResponse
	if err := json.Unmarshal(body, &decoded); err != nil {
		return fmt.Errorf("the response is not JSON-RPC: %w", err)
	}
	if decoded.Error != nil {
		return &rpcError{code: decoded.Error.Code, message: decoded.Error.Message}
	}
	if len(decoded.Result) == 0 {
		return errors.New("the response has neither result nor error")
	}
	if err := json.Unmarshal(decoded.Result, result); err != nil {
		return fmt.Errorf("the result: %w", err)
	}
	return nil
}

// rpcError is an endpoint's error response: an HTTP status, or the code and message of a JSON-RPC error.
type rpcError struct {
	status  int
	code    int
	message string
}

// Error quotes the message, because endpoints explain their limits there. The message is cut to 200 characters.
func (r *rpcError) Error() string {
	if r.status != 0 {
		return fmt.Sprintf("status %d", r.status)
	}
	return fmt.Sprintf("error %d: %.200q", r.code, r.message)
}

// passes reports whether the same call may succeed soon: the endpoint has a rate limit, the server failed (5xx), or the
// node does not have the newest block yet.
func (r *rpcError) passes() bool {
	switch {
	case r.status != 0:
		return r.status == http.StatusTooManyRequests || r.status >= http.StatusInternalServerError
	case r.code == -32005 || r.code == -32016: // limit exceeded (EIP-1474); over the rate limit
		return true
	}
	return (r.code == -32000 || r.code == -32001) && strings.Contains(r.message, "not found")
}

// ofThisCall reports whether the endpoint may have rejected the parameters of this call, rather than the caller or the
// method. Endpoints have no common error code for a range of blocks that is too wide.
func (r *rpcError) ofThisCall() bool {
	switch r.status {
	case 0:
		return r.code != -32016 && r.code != -32601 // over the rate limit; no such method
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return false
	}
	return r.status < http.StatusInternalServerError
}
