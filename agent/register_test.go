package agent_test

import (
	"errors"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestRegisterOnce: without a person a wallet pays for one account above its limits, also if its API key is lost, and for none if its
// limits were lowered.
func TestRegisterOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	register := func(of wallet, name string) error {
		secrets, err := agent.OpenSecrets(agent.PlaceFile, t.TempDir(), nil) // a new place
		testkit.NoError(t, err)
		a := w.Open(of.folder, of.signer, nil, func(settings *agent.Settings) { settings.Secrets = secrets })
		w.Agree(a)
		_, err = a.RegisterOnce(t.Context(), name, "")
		return err
	}
	alice, bob := w.wallet(), w.wallet()
	testkit.NoError(t, register(alice, "alice"))
	if err := register(alice, "alice2"); !needsApproval(err) {
		t.Errorf("a second account: %v", err)
	}
	lower := agent.Limits{PerCall: 10_000, PerDay: 50_000, Polls: 10_000}
	testkit.NoError(t, w.open(bob).Ledger().SetLimits(t.Context(), lower, false))
	if err := register(bob, "bob"); !needsApproval(err) {
		t.Errorf("with lower limits: %v", err)
	}
}

func needsApproval(err error) bool {
	over, ok := errors.AsType[*agent.LimitError](err)
	return ok && over.Approval != ""
}

// TestTermsAreReadAgain: a process that runs takes the terms and prices that a person accepts in another one, but for another network.
func TestTermsAreReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	running, of := w.register("alice")
	person := w.open(of)
	testkit.NoError(t, person.AcceptPrices(map[string]uint64{"getOwnAgent": 700}))
	if o, err := running.Operation("getOwnAgent"); err != nil || o.Agreed != 700 {
		t.Errorf("the price is %d, %v; want 700", o.Agreed, err)
	}
	ctx, command := agent.BeginCommand(t.Context())
	command.MaxPrice = new(uint64(800))
	_, err := running.Call(ctx, "getOwnAgent", nil, agent.CallOptions{})
	if _, other := errors.AsType[*agent.TermsError](err); !other {
		t.Errorf("the server asks for 1000, 700 was accepted: %v", err)
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
