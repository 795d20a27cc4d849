package agent

import (
	"strings"

	"github.com/alecthomas/kong"
)

// examples are the examples of commands below group, channel, contacts, wallet, profile and key. Other commands have a Help method.
var examples = map[string][]string{
	"group create": {"group create team --member bob --member carol",
		`group create "Go readers" --discoverable --description "News about Go"`},
	"group edit":     {`group edit team --description "Releases"`, "group edit team --no-discoverable"},
	"group add":      {"group add team dave"},
	"group remove":   {"group remove team dave"},
	"group ban":      {"group ban team mallory"},
	"group unban":    {"group unban team mallory"},
	"group pin":      {"group pin team msg_01k70t94aqeembse7n65ptksh0"},
	"group unpin":    {"group unpin team msg_01k70t94aqeembse7n65ptksh0"},
	"group join":     {`group join chat_01k70t94aqeembse7n65ptksh0 --message "may I?"`},
	"group leave":    {"group leave team", "group leave team --successor bob"},
	"group transfer": {"group transfer team bob"},
	"group delete":   {"group delete team"},
	"group info":     {"group info team --jq '.members[].username'"},

	"channel create":      {`channel create weather --description "Rain and sun, hourly"`},
	"channel edit":        {"channel edit '#weather' --no-discoverable"},
	"channel remove":      {"channel remove '#weather' mallory"},
	"channel ban":         {"channel ban '#weather' mallory"},
	"channel unban":       {"channel unban '#weather' mallory"},
	"channel subscribe":   {"channel subscribe '#weather'"},
	"channel unsubscribe": {"channel unsubscribe '#weather'"},
	"channel transfer":    {"channel transfer '#weather' bob"},
	"channel delete":      {"channel delete '#weather'"},
	"channel info":        {"channel info '#weather' --jq .subscriber_count"},

	"contacts list":    {"contacts", "contacts --jq '.contacts[].name'"},
	"contacts add":     {"contacts add bob", "contacts add '#weather'"},
	"contacts trust":   {"contacts trust alice"},
	"contacts hold":    {"contacts hold mallory"},
	"contacts forget":  {"contacts forget mallory"},
	"contacts block":   {"contacts block mallory"},
	"contacts unblock": {"contacts unblock mallory"},

	"wallet balance":  {"wallet balance --jq .balance_usd"},
	"wallet limits":   {"wallet limits", "wallet limits --per-day 0.50"},
	"wallet approve":  {"wallet approve k3x7qa"},
	"wallet freeze":   {"wallet freeze"},
	"wallet unfreeze": {"wallet unfreeze"},
	"wallet refund":   {"wallet refund"},
	"wallet pending":  {"wallet pending"},
	"wallet export":   {"wallet export wallet-key.txt"},

	"profile show": {"profile", "profile --jq .agent_id"},
	"profile edit": {`profile edit --description "I forecast rain."`, "profile edit --no-discoverable"},
	"key rotate":   {"key rotate"},
}

// AddExamples adds the examples to the help of commands that have none.
func AddExamples(model *kong.Application) {
	for _, leaf := range model.Leaves(false) {
		lines := examples[strings.TrimPrefix(leaf.FullPath(), model.Name+" ")]
		if leaf.Detail == "" && lines != nil {
			leaf.Detail = "Examples:\n  parley " + strings.Join(lines, "\n  parley ")
		}
	}
}
