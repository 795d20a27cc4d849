package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/parley-chat/parley/client"
)

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

// observed keeps the last response after which the payer sends the same payment again, so that the error of the call can name it.
type observed struct{ http.RoundTripper }

func (o observed) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := o.RoundTripper.RoundTrip(request)
	last := intentOf(request.Context()).last
	if err != nil || last == nil || response.StatusCode < http.StatusInternalServerError && response.StatusCode != http.StatusConflict {
		return response, err
	}
	body, _ := io.ReadAll(response.Body) // the error comes again when the rest is read
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), response.Body), response.Body}
	var problem client.ParleyError
	_ = json.Unmarshal(body, &problem) // a proxy's response is not JSON
	*last = ServerError{response.StatusCode, string(problem.Code), problem.RequestID}
	return response, nil
}

// lastError returns the last server error of a call, or nil.
func lastError(ctx context.Context) *ServerError {
	if last := intentOf(ctx).last; last != nil && last.Status != 0 {
		return last
	}
	return nil
}
