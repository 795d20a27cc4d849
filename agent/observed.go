package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/x402"
)

// Request is one request to a server, and what became of it. It has no secrets: no query, no headers, no bodies.
type Request struct {
	Method, Path string
	Took         time.Duration
	// Paid is the amount of the payment that was sent with the request, in atomic units, or 0.
	Paid uint64
	// Status is 0 if there was no response. Then Err says why.
	Status int
	Err    error
}

// ServerError is a response to which a request is repeated, such as 500 and 503.
type ServerError struct {
	Status          int
	Code, RequestID string
}

func (e *ServerError) Error() string {
	return "the server responded with " + described(e.Status, e.Code, e.RequestID)
}

// described returns status, code and request id of a response. The server chose the last two.
func described(status int, code, requestID string) string {
	text := fmt.Sprintf("status %d", status)
	if code != "" {
		text += " " + PlainWord(code)
	}
	if requestID != "" {
		text += ", request_id " + PlainWord(requestID)
	}
	return text
}

// observed tells the command of each request, and keeps the last server error of a call, so that its error can name it.
type observed struct {
	base  http.RoundTripper
	price func(*http.Request) uint64
}

func (o observed) RoundTrip(request *http.Request) (*http.Response, error) {
	began := time.Now()
	response, err := o.base.RoundTrip(request)
	made := Request{Method: request.Method, Path: request.URL.Path, Took: time.Since(began), Err: withoutURL(err)}
	if request.Header.Get(x402.HeaderPaymentSignature) != "" {
		made.Paid = o.price(request)
	}
	if err == nil {
		made.Status = response.StatusCode
		note(request.Context(), response)
	}
	if command := commandOf(request.Context()); command.Requested != nil {
		command.Requested(made)
	}
	return response, err
}

// note keeps a response after which the payer sends the same payment again. Its body stays readable.
func note(ctx context.Context, response *http.Response) {
	last, ok := ctx.Value(lastErrorKey{}).(*ServerError)
	if !ok || response.StatusCode < http.StatusInternalServerError && response.StatusCode != http.StatusConflict {
		return
	}
	body, _ := io.ReadAll(response.Body) // the error comes again when the rest is read
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), response.Body), response.Body}
	var problem client.ParleyError
	_ = json.Unmarshal(body, &problem) // a proxy's response is not JSON
	*last = ServerError{response.StatusCode, string(problem.Code), problem.RequestID}
}

type lastErrorKey struct{}

// withLastError returns a context that keeps the last server error of a call.
func withLastError(ctx context.Context) context.Context {
	return context.WithValue(ctx, lastErrorKey{}, &ServerError{})
}

// lastError returns the last server error of a call, or nil.
func lastError(ctx context.Context) *ServerError {
	if last, ok := ctx.Value(lastErrorKey{}).(*ServerError); ok && last.Status != 0 {
		return last
	}
	return nil
}
