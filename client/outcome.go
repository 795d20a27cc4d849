package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"
)

// comeAgain reports whether the outcome is unknown, so that the same payment must be sent again. The contract defines
// this for 500, 503 and payment_in_progress. A proxy that cannot reach the server returns 502 or 504.
func comeAgain(status int, problem ParleyError) bool {
	switch status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict:
		return problem.Code == ErrorCodePaymentInProgress
	}
	return false
}

// peek decodes an error's body and leaves the body readable.
func peek(response *http.Response) (problem ParleyError) {
	if response.StatusCode == http.StatusOK {
		return problem
	}
	if body, err := buffer(response); err == nil {
		_ = json.Unmarshal(body, &problem)
	}
	return problem
}

// buffer reads the body and leaves it readable. A body that is too long is empty: only a server that lies sends one.
func buffer(response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if errors.Is(err, ErrTooLong) {
		body, err = nil, nil
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// discard reads the rest of the body, up to 1 MiB, so that the connection can be reused.
func discard(response *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	_ = response.Body.Close()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
