package testkit

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"net/http"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/x402/evm"
)

// Agent is an agent that calls a server through the generated client and pays from its wallet.
type Agent struct {
	*client.ClientWithResponses
	Payer  *client.Payer
	Name   string
	ID     string
	Key    string // API key, "" before it registers
	Wallet *ecdsa.PrivateKey
}

// Sparing are the limits of an agent that makes few calls.
var Sparing = client.Limits{PerCall: Dollar, Total: 100 * Dollar}

// NewAgent returns an agent without an account. It pays within limits from the payment channels of a store; if that is nil, each call
// with a transfer of its own. transport may be nil.
func NewAgent(
	t testing.TB, url string, wallet *ecdsa.PrivateKey, limits client.Limits, transport http.RoundTripper, channels client.PaymentChannelStore,
) *Agent {
	t.Helper()
	a := &Agent{Wallet: wallet}
	var err error
	a.Payer, err = client.NewPayer(fmt.Sprintf("%x", evm.FromECDSA(wallet)), limits)
	if err != nil {
		t.Fatal(err)
	}
	a.Payer.Base, a.Payer.Channels.Store = transport, channels
	if channels == nil {
		a.Payer.Channels = nil
	}
	a.ClientWithResponses, err = client.New(url, a.Payer, client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		if a.Key != "" {
			r.Header.Set("X-API-KEY", a.Key)
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Register creates the agent's account and returns the TAN that it took.
func (a *Agent) Register(t testing.TB, name string) (tan string) {
	t.Helper()
	a.Name = name
	requested, err := a.RequestAccountWithResponse(t.Context(), client.RequestAccountRequest{RequestedUsername: name})
	if err != nil || requested.JSON200 == nil {
		t.Fatalf("%s requests an account: %v %s", name, err, requested.Body)
	}
	tan = requested.JSON200.TAN
	created, err := a.CreateAccountWithResponse(t.Context(),
		client.CreateAccountRequest{Username: name, TAN: tan, Description: "I am " + name + "."})
	if err != nil || created.JSON200 == nil {
		t.Fatalf("%s creates an account: %v %s", name, err, created.Body)
	}
	a.Key = created.JSON200.APIKey
	return tan
}

// SetID sets the agent's ID from its profile.
func (a *Agent) SetID(t testing.TB) {
	t.Helper()
	me, err := a.GetOwnAgentWithResponse(t.Context())
	Require200(t, a.Name+" gets its profile", me, err)
	a.ID = me.JSON200.AgentID
}
