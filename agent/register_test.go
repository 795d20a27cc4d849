package agent_test

import (
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestTermsAreReadAgain: a process that runs takes the terms that are agreed to in another one.
func TestTermsAreReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	running, of := w.register("alice")
	other := w.open(of)
	terms, err := other.Terms(t.Context(), w.URL, "")
	testkit.NoError(t, err)
	terms.Payee = testkit.Address(testkit.NewKey())
	terms.Accepts[0].PayTo = terms.Payee
	testkit.NoError(t, other.Agree(terms, true))
	if _, err := running.Call(t.Context(), "getOwnAgent", nil, agent.CallOptions{}); agent.CodeOf(err) != "terms_changed" {
		t.Errorf("another payee was agreed: %v", err)
	}
}

// TestPlayMoney: a server takes play money only if it asks for nothing else.
func TestPlayMoney(t *testing.T) {
	t.Parallel()
	const here = "http://127.0.0.1:8402"
	for networks, want := range map[[2]string]bool{
		{agent.PlayNetwork}:                   true,
		{x402.NetworkBase}:                    false,
		{agent.PlayNetwork, x402.NetworkBase}: false,
	} {
		published := agent.Published{Facilitator: here}
		for _, network := range networks {
			if network != "" {
				published.Networks = append(published.Networks, network)
			}
		}
		if got := published.PlayMoney(here); got != want {
			t.Errorf("a server on this machine that takes payments on %v takes play money: %v", networks, got)
		}
		if published.PlayMoney("https://parley.example") {
			t.Error("a server elsewhere takes play money")
		}
	}
}
