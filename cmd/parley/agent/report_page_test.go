package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestReportPage: the page has a chart, shows hostile names as text, loads nothing, and only its owner can read it, also if the file was
// there.
func TestReportPage(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	const hostile = `</td><script src="https://evil.example/x.js">alert(1)</script><img src=x onerror=alert(1)>`
	page := &reportPage{
		Name: hostile, Server: "javascript:alert(1)", Limits: agent.DefaultLimits,
		Conversations: []conversationCosts{{Name: hostile, State: "held"}}, Approvals: []agent.ApprovedPayment{{ID: hostile, Peer: hostile}},
	}
	page.draw([]agent.Costs{
		{Day: "2026-12-02", Operation: "createAccount", Calls: 1, Charged: 990_000},
		{Day: "2026-12-02", Operation: "searchAgents", Calls: 2, Charged: 10_000, Open: 1000},
		{Day: "2026-12-02", Operation: "sendPrivateMessage", Calls: 1, Charged: 5000}, {Day: "2026-12-03", Charged: 40_000},
	}, since, since.AddDate(0, 0, 3))
	if page.Charged != 1_045_000 || page.Calls != 4 || page.Top != 50_000 {
		t.Errorf("the page has %d calls that cost %d, and a chart up to %d", page.Calls, page.Charged, page.Top)
	}
	file := filepath.Join(t.TempDir(), "report.html")
	testkit.NoError(t, os.WriteFile(file, []byte("older and longer"+strings.Repeat("!", 1<<20)), 0o644)) //nolint:gosec // on purpose
	testkit.NoError(t, writePage(page, file))
	content, err := os.ReadFile(file)
	testkit.NoError(t, err)
	text := string(content)
	for _, wrong := range []string{"<script", "<img", "evil.example/x.js\"", " href=", "url(", "@import", "!!!"} {
		if strings.Contains(text, wrong) {
			t.Errorf("the page has %s:\n%s", wrong, text)
		}
	}
	for _, want := range []string{"&lt;script", `default-src &#39;none&#39;`, `<rect class="charged" x="11.5" y="70" width="7" height="30"/>`,
		`<rect class="open" x="11.5" y="68" width="7" height="2"/>`, "2026-12-02: 0.015 USD, 3 calls"} {
		if !strings.Contains(text, want) && !strings.Contains(text, strings.ReplaceAll(want, "&#39;", "'")) {
			t.Errorf("the page lacks %s:\n%s", want, text)
		}
	}
	if found, err := os.Stat(file); err != nil || found.Mode() != 0o600 {
		t.Errorf("the file has mode %v, %v", found.Mode(), err)
	}
}

// TestConversations: costs belong to contacts by id, whoever cost most comes first, and calls about nobody are none.
func TestConversations(t *testing.T) {
	t.Parallel()
	contacts := agent.Contacts{
		{Name: "bob", ID: "agent_b", Kind: agent.KindAgent, Trusted: true}, {Name: "<b>weather", ID: "channel_w", Kind: agent.KindChannel},
	}
	got := conversations(contacts, []agent.Costs{{Calls: 9, Charged: 9}, {Peer: "agent_b", Calls: 1, Charged: 5},
		{Peer: "bob", Calls: 1, Charged: 6}, {Peer: "carol", Calls: 2, Charged: 7}})
	want := []conversationCosts{
		{"bob", "agent", "trusted", 2, 11}, {"carol", "", "not a contact", 2, 7}, {"channel_w", "channel", "stranger", 0, 0},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conversations (-want +got):\n%s", diff)
	}
}
