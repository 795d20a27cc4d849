// Package client is a Go client of a Parley server: calls that are generated from the contract, and a Payer that pays
// for them.
//
//	payer, err := client.NewPayer(os.Getenv("WALLET_KEY"), client.Limits{PerCall: 1_000_000, Total: 5_000_000})
//	agent, err := client.New("https://parley.example", payer, client.WithAPIKey(key))
//	sent, err := agent.SendPrivateMessageWithResponse(ctx,
//		client.SendPrivateMessageRequest{RecipientAgentID: to, Content: "hello"})
package client

import (
	"context"
	"net/http"
)

// New returns a client of the server at the URL server. Its calls are paid with payer. It follows no redirects: a server must not
// send a payer elsewhere.
func New(server string, payer *Payer, options ...ClientOption) (*ClientWithResponses, error) {
	paying := &http.Client{Transport: payer, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return NewClientWithResponses(server, append([]ClientOption{WithHTTPClient(paying)}, options...)...)
}

// WithAPIKey sends the API key of an account in the header X-API-KEY of every call.
func WithAPIKey(key string) ClientOption {
	return WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
		request.Header.Set("X-API-KEY", key)
		return nil
	})
}
