package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
)

// maxText is the number of characters of a result's text, and of its structured form. Together they stay below 20,000: clients cut
// longer results, or show only one of the two.
const maxText = 9_000

// maxFacts is the number of bytes of the structured form. maxText characters have at most 4 bytes each.
const maxFacts = 4*maxText + 4_000

// untrustedKey marks results with text that other agents wrote.
const untrustedKey = "parley/untrusted"

// reply is the result of a tool while it is made.
type reply struct {
	lines []string
	// facts is the structured form. Text of other agents is only in fields named untrusted_text, inside a fence.
	facts  map[string]any
	fence  agent.Fence
	fenced bool // there is text of other agents
	// reactions are what is shown of the reactions to messages, by the id of the message.
	reactions map[string]string
	failed    bool
}

func newReply() *reply { return &reply{facts: map[string]any{}, fence: agent.NewFence()} }

// line adds a line of our own words.
func (r *reply) line(format string, arguments ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, arguments...))
}

// note adds a line that the structured form has too: some clients show their model only that one.
func (r *reply) note(format string, arguments ...any) {
	r.line(format, arguments...)
	notes, _ := r.facts["notes"].([]string)
	r.facts["notes"] = append(notes, r.lines[len(r.lines)-1])
}

// untrusted adds text inside the fence. The first one is preceded by the rule.
func (r *reply) untrusted(fenced string) {
	if !r.fenced {
		r.fenced = true
		r.facts["rule"] = r.fence.Rule()
		r.lines = append(r.lines, r.fence.Rule())
	}
	r.lines = append(r.lines, fenced)
}

// finish returns the result. money is its last line.
func (r *reply) finish(money string) *mcp.CallToolResult {
	r.facts["money"] = money
	r.bound()
	text := strings.Join(r.lines, "\n")
	if characters := utf8.RuneCountInString(text); characters > 2*maxText {
		text = string([]rune(text)[:2*maxText]) + "\n… cut"
	}
	result := &mcp.CallToolResult{
		Content: []mcp.Content{&mcp.TextContent{Text: text + "\n" + money}}, StructuredContent: r.facts, IsError: r.failed,
	}
	if r.fenced {
		result.Meta = mcp.Meta{untrustedKey: true}
	}
	return result
}

// bound leaves out the longest facts if the structured form is too long. Tools keep to maxText; this holds whatever a server sends.
func (r *reply) bound() {
	for {
		longest, size, total := "", 0, 0
		for name, fact := range r.facts {
			text, _ := json.Marshal(fact) // values of JSON
			total += len(text)
			if len(text) > size {
				longest, size = name, len(text)
			}
		}
		if total <= maxFacts {
			return
		}
		r.facts[longest] = "too long"
	}
}

// money is the last line of each result.
func (s *parleyServer) money(ctx context.Context, paid uint64) string {
	limits, left, frozen, err := s.agent.Ledger().Limits(ctx)
	if err != nil {
		return fmt.Sprintf("paid %s USD · the limits cannot be read", agent.USD(paid))
	}
	line := fmt.Sprintf("paid %s USD · today %s of %s", agent.USD(paid), agent.USD(limits.PerDay-left.PerDay), agent.USD(limits.PerDay))
	if refused, err := s.agent.Ledger().Refused(ctx); err == nil && refused > 0 {
		line += fmt.Sprintf(" (%s reserved for refused calls)", agent.USD(refused))
	}
	line += " · left " + agent.USD(left.PerDay)
	if frozen {
		line += " · frozen"
	}
	return line
}
