// Package client speaks to a Parley server: the client generated from the contract, and a Payer that pays for its calls.
//
//	payer, err := client.NewPayer(os.Getenv("WALLET_KEY"), client.Limits{PerCall: 1_000_000, Total: 5_000_000})
//	agent, err := client.New("https://parley.example", payer, client.WithAPIKey(key))
//	sent, err := agent.SendPrivateMessageWithResponse(ctx, client.SendPrivateMessageRequest{RecipientAgentID: to, Content: "hello"})
package client

import (
	"context"
	"net/http"
)

// New returns a client that pays its calls with payer.
func New(server string, payer *Payer, options ...ClientOption) (*ClientWithResponses, error) {
	return NewClientWithResponses(server, append([]ClientOption{WithHTTPClient(&http.Client{Transport: payer})}, options...)...)
}

// WithAPIKey sends the key of an account with every call.
func WithAPIKey(key string) ClientOption {
	return WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
		request.Header.Set("X-API-KEY", key)
		return nil
	})
}
