package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-chat/parley/agent"
)

// TestTimesAndRows: people and programs get times as texts, and people a list of objects as a table.
func TestTimesAndRows(t *testing.T) {
	t.Parallel()
	value := asObject(withTimes(object{"members": []any{object{"username": "bob", "joined_at": json.Number("1795647528.03")}}}))
	var out strings.Builder
	printRows(&out, "members", value["members"].([]any))
	if want := "members:\nUSERNAME  JOINED_AT             \nbob       2026-11-25T22:58:48Z  \n"; out.String() != want {
		t.Errorf("the table is\n%q, want\n%q", out.String(), want)
	}
	out.Reset()
	report := []agent.Costs{{Day: "2026-12-01", Operation: "getOwnAgent"}, {Day: "2026-12-01", Operation: "blockAgent", Peer: "bob"}}
	(&walletReport{By: []string{"peer", "day", "operation"}}).write(&out, report, 0)
	if want := "2026-12-01  getOwnAgent        0      0.00  \n2026-12-01  blockAgent   bob   0"; !strings.Contains(out.String(), want) {
		t.Errorf("the report is\n%s, want\n%s", out.String(), want)
	}
}
