package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// atOnce is a server that does not wait: each call returns an empty page at once.
type atOnce struct{ calls int }

func (s *atOnce) Do(*http.Request) (*http.Response, error) {
	if s.calls++; s.calls > 100 {
		return nil, errors.New("it is paid in a loop")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"messages":[],"notices":[],"cursor":"c0"}`))}, nil
}

// TestFollowDoesNotLoop: a server that does not wait is not paid in a loop.
func TestFollowDoesNotLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &atOnce{}
		c, err := client.NewClientWithResponses("http://parley.test", client.WithHTTPClient(server))
		testkit.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = c.Follow(ctx, "", func(context.Context, *client.UnreadPage) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) || server.calls > 13 {
			t.Errorf("%d calls in a minute, and then %v", server.calls, err)
		}
	})
}
