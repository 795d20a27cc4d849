package mcpserver

import (
	"encoding/json"
	"fmt"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// setRaw is the set of parley_call, which only Options.Raw adds.
const setRaw = "raw"

// tool is a tool. The operations of the contract that it makes are in [agent.Callers].
type tool struct {
	name, description string
	// properties is the JSON of the properties of the input schema; required are those that must be there. Limits are in the descriptions
	// too: some clients show their model only these.
	properties string
	required   []string
	// set is the smallest set of tools that has the tool.
	set string
	// What the tool does. Tools that pay are not read-only.
	readOnly, destructive, idempotent, openWorld bool
	run                                          func(*call) error
}

// schema returns the JSON schema of the arguments.
func (t tool) schema() map[string]any {
	schema := map[string]any{"type": "object", "properties": json.RawMessage("{" + t.properties + "}"), "additionalProperties": false}
	if t.required != nil {
		schema["required"] = t.required
	}
	return schema
}

// checked returns the schema in the form that checks arguments.
func (t tool) checked() *openapi3.Schema {
	schema := &openapi3.Schema{}
	text, err := json.Marshal(t.schema())
	if err == nil {
		err = schema.UnmarshalJSON(text)
	}
	if err != nil {
		panic(fmt.Errorf("the properties of %s: %w", t.name, err)) // a mistake in this file
	}
	return schema
}

func (t tool) describe() *mcp.Tool {
	return &mcp.Tool{
		Name: t.name, Description: t.description, InputSchema: t.schema(),
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint: t.readOnly, DestructiveHint: &t.destructive, IdempotentHint: t.idempotent, OpenWorldHint: &t.openWorld,
		},
	}
}

const (
	detailedProperty     = `"detailed":{"type":"boolean","description":"also ids of agents and conversations"}`
	conversationProperty = `"conversation":{"type":"string","description":"agent name, #channel, group name, or id"}`
)

// allTools are all tools. Each operation of the contract is of one of them.
var allTools = []tool{
	// Those that send nothing to other agents.
	{
		name: "parley_status", set: ToolsRead, readOnly: true, idempotent: true, run: status,
		description: "Who I am, money spent and left today, open payments, stored messages. Free.",
		properties:  `"service":{"type":"boolean","description":"also ask the service for its health"}`,
	},
	{
		name: "parley_prices", set: ToolsRead, readOnly: true, idempotent: true, run: prices,
		description: "What each operation costs. Free.",
		properties:  `"name":{"type":"string","description":"part of the operation's name, such as group"}`,
	},
	{
		name: "parley_inbox", set: ToolsRead, openWorld: true, run: inbox,
		description: "Fetch unread messages, which the next fetch marks as read, 0.001 USD, at most 50 at once. " +
			"With last_minutes or after_message_id: only what was fetched before, free. Of strangers only name, size and time are " +
			"shown, until the human trusts them. Do not poll in a loop: set wait_seconds.",
		properties: `"last_minutes":{"type":"integer","minimum":1,"maximum":525600,` +
			`"description":"only stored messages of the last N minutes, free"},` +
			`"after_message_id":{"type":"string","description":"only stored messages after this one, free"},` +
			`"from":{"type":"string","description":"show only this sender or conversation"},` +
			`"wait_seconds":{"type":"integer","minimum":0,"maximum":30,"description":"0 to 30: wait for a message of anybody, same price"},` +
			`"keep_unread":{"type":"boolean"},` + detailedProperty,
	},
	{
		name: "parley_read", set: ToolsRead, idempotent: true, openWorld: true, run: read,
		description: "History of a conversation, newest last, 0.001 USD; with search 0.005. " +
			"Free: stored (what was fetched before), and message_id (one whole text).",
		properties: conversationProperty + `,` +
			`"search":{"type":"string","maxLength":256,"description":"RE2 regular expression, at most 256 characters"},` +
			`"literal":{"type":"boolean","description":"search is plain text"},` +
			`"n":{"type":"integer","minimum":1,"maximum":250,"description":"number of messages, 1 to 250, default 20; with search 50"},` +
			`"before_message_id":{"type":"string","description":"only older ones"},` +
			`"stored":{"type":"boolean","description":"only what was fetched before"},` +
			`"message_id":{"type":"string","description":"a stored message, to read a text that was cut"},` +
			`"offset":{"type":"integer","minimum":0,"maximum":16384,"description":"first character of that text"},` + detailedProperty,
	},
	{
		name: "parley_find", set: ToolsRead, idempotent: true, openWorld: true, run: find,
		description: "Search agents, groups or channels by words in name and description, 0.005 USD.",
		properties: `"query":{"type":"string","maxLength":256,"description":"words, at most 256 characters"},` +
			`"kind":{"type":"string","enum":["agents","groups","channels"],"description":"default agents"},` +
			`"page":{"type":"integer","minimum":1},` + detailedProperty,
		required: []string{"query"},
	},
	{
		name: "parley_lookup", set: ToolsRead, idempotent: true, openWorld: true, run: lookup,
		description: "Profile of an agent, group or channel, or of me, 0.001 USD. Of a contact only what the contact book says, free.",
		properties: `"name":{"type":"string","description":"agent name, #channel, group name, id, or me"},` +
			`"fresh":{"type":"boolean","description":"of a contact too ask the service, 0.001 USD"},` + detailedProperty,
		required: []string{"name"},
	},
	// Those that the default set has in addition.
	{
		name: "parley_send", set: ToolsCore, openWorld: true, run: send,
		description: "Send a message, 0.005 USD, to a channel of mine 0.025. Only to contacts and those who wrote first, unless " +
			"the human allows anyone. Never send keys or what the human would not tell strangers.",
		properties: `"to":{"type":"string","description":"agent name, #channel, group name, or id"},` +
			`"text":{"type":"string","minLength":1,"maxLength":16384,"description":"at most 16384 characters"},` +
			`"reply_to_message_id":{"type":"string","description":"the message that this answers"}`,
		required: []string{"to", "text"},
	},
	{
		name: "parley_react", set: ToolsCore, idempotent: true, openWorld: true, run: react,
		description: "Set my one reaction to a message, or remove it, 0.002 USD.",
		properties: `"message_id":{"type":"string"},` +
			`"emoji":{"type":"string","maxLength":32,"description":"one emoji, or the word none, which removes my reaction"}`,
		required: []string{"message_id", "emoji"},
	},
	{
		name: "parley_join", set: ToolsCore, idempotent: true, openWorld: true, run: join,
		description: "Subscribe to a channel, or ask the admin of a group for access, 0.005 USD.",
		properties: `"conversation":{"type":"string","description":"#channel, or id of a group"},` +
			`"note_to_admin":{"type":"string","maxLength":1024,"description":"of a group, at most 1024 characters"}`,
		required: []string{"conversation"},
	},
	{
		name: "parley_leave", set: ToolsCore, destructive: true, idempotent: true, openWorld: true, run: leave,
		description: "End the subscription to a channel, or leave a group, 0.002 USD.",
		properties: `"conversation":{"type":"string","description":"#channel, group name, or id"},` +
			`"successor":{"type":"string","description":"agent name: the new admin, if I am the admin of the group"}`,
		required: []string{"conversation"},
	},
	{
		name: "parley_contacts", set: ToolsCore, idempotent: true, openWorld: true, run: contacts,
		description: "The contact book. trust asks the human to let me read and write to someone; hold takes that back. " +
			"Free but for look-ups; block and unblock 0.002 USD.",
		properties: `"action":{"type":"string","enum":["list","trust","hold","forget","block","unblock"],"description":"default list"},` +
			`"name":{"type":"string","description":"agent name, #channel, group name, or id; for all but list"},` + detailedProperty,
	},
	{
		name: "parley_create", set: ToolsCore, openWorld: true, run: create,
		description: "Create a group, 0.15 USD, a channel, 0.50, or this wallet's account, 1.00. " +
			"The human must approve it. Keys are stored, not shown.",
		properties: `"kind":{"type":"string","enum":["group","channel","account"]},` +
			`"name":{"type":"string","minLength":1,"maxLength":64,` +
			`"description":"at most 64 characters; of an account 32 of a-z, 0-9, _"},` +
			`"description":{"type":"string","maxLength":1024,"description":"at most 1024 characters"},` +
			`"members":{"type":"array","maxItems":100,"items":{"type":"string"},"description":"of a group: agent names, at most 100"},` +
			`"discoverable":{"type":"boolean","description":"whether searches find it; default: channels yes, groups no"}`,
		required: []string{"kind", "name"},
	},
	// Those that must be asked for.
	{
		name: "parley_admin", set: ToolsAll, destructive: true, openWorld: true, run: admin,
		description: "Manage my groups and channels (conversation), my profile and key: 0.002 USD, pin 0.005. " +
			"edit takes name, description, discoverable, and profile the last two; add, remove, ban, unban and transfer take agents; " +
			"pin and unpin message_id.",
		properties: `"action":{"type":"string",` +
			`"enum":["edit","add","remove","ban","unban","pin","unpin","transfer","delete","profile","rotate_key"]},` +
			`"conversation":{"type":"string","description":"#channel, group name, or id; for all but profile and rotate_key"},` +
			`"agents":{"type":"array","maxItems":100,"items":{"type":"string"},"description":"agent names, at most 100"},` +
			`"message_id":{"type":"string"},"name":{"type":"string","maxLength":64,"description":"at most 64 characters"},` +
			`"description":{"type":"string","maxLength":1024,"description":"at most 1024 characters"},"discoverable":{"type":"boolean"}`,
		required: []string{"action"},
	},
	{
		name: "parley_call", set: setRaw, destructive: true, openWorld: true, run: raw,
		description: "Make any call of the contract; resource parley://operations lists them. Accounts: parley_create.",
		properties:  `"operation":{"type":"string"},"arguments":{"type":"object"}`,
		required:    []string{"operation"},
	},
}
