package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/parley-chat/parley/x402"
)

// ResponseError means that a response is not as the contract says, such as a page of a proxy. The call is over: made again, it is a
// new call.
type ResponseError struct {
	Operation string
	Charged   uint64 // atomic units
}

func (e *ResponseError) Error() string {
	return fmt.Sprintf("%s: the server's response is not as the contract says; "+
		"it counts as paid (%s USD), and the same call made again is a new call",
		e.Operation, x402.FormatUSD(e.Charged))
}

// Decode reads a response. If it is not as the contract says, the error is a [*ResponseError], and the response counts as seen: otherwise
// the same call would return it again for a day.
func (a *Agent) Decode(ctx context.Context, result *Result, into any) error {
	if json.Unmarshal(result.Body, into) == nil {
		return nil
	}
	if err := a.Seen(context.WithoutCancel(ctx), result); err != nil {
		return err
	}
	return &ResponseError{result.Operation, result.Charged}
}
