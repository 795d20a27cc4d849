package agent

import (
	"strings"
	"testing"
)

// TestWriteReactions: people see the reactions to a message, in one order.
func TestWriteReactions(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	writeMessages(&out, []shownMessage{{ID: "msg_1", From: "bob", Text: "hi", Reactions: map[string]int64{"👍": 2, "🎉": 1}}})
	if want := "    hi\n  🎉 1\n  👍 2\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("the message is written as %q, want it to end with %q", out.String(), want)
	}
}
