package agent

import (
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// TestFreeFetches: a fetch that costs nothing needs no budget.
func TestFreeFetches(t *testing.T) {
	t.Parallel()
	f := following{MaxWait: time.Minute}
	for price, budget := range map[uint64]uint64{0: 100_000, 1000: 100_000} {
		if policy, err := f.within(budget, price); err != nil || policy.PerDay != 100 || policy.Longest != time.Minute {
			t.Errorf("fetching for %d: %+v, %v", price, policy, err)
		}
	}
	if _, err := f.within(500, 1000); err == nil {
		t.Error("a budget below one fetch is accepted")
	}
}

// TestFromFiltersNotices: --from shows the notices of an agent or a conversation, as it does with messages.
func TestFromFiltersNotices(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	secrets, err := agent.OpenSecrets(agent.PlaceFile, folder, nil)
	testkit.NoError(t, err)
	opened, err := agent.Open(agent.Settings{Folder: folder, Signer: x402.NewKeySigner(testkit.NewKey()), Secrets: secrets})
	testkit.NoError(t, err)
	t.Cleanup(opened.Close)
	page := client.UnreadPage{Notices: []client.Notice{{ActorUsername: "bob"}, {ActorUsername: "eve"}}}
	c := inboxCommand{From: "bob"}
	_, notices, _, err := c.view(&session{agent: opened, flags: &agentFlags{}}, []client.UnreadPage{page})
	if err != nil || len(notices) != 1 || notices[0]["by"] != "bob" {
		t.Errorf("the notices are %v, %v", notices, err)
	}
}
