package mcpserver

import (
	"encoding/json"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// setRaw is the set of parley_call, which only Options.Raw adds.
const setRaw = "raw"

// tool is a tool and the operations of the contract that it makes.
type tool struct {
	name, description string
	// properties is the JSON of the properties of the input schema; required are those that must be there. No property has a default:
	// with one, the SDK panics if a client sends null for the arguments.
	properties string
	required   []string
	// set is the smallest set of tools that has the tool.
	set string
	// What the tool does. Tools that pay are not read-only.
	readOnly, destructive, idempotent, openWorld bool
	operations                                   []string
	run                                          func(*call) error
}

func (t tool) describe() *mcp.Tool {
	schema := map[string]any{"type": "object", "properties": json.RawMessage("{" + t.properties + "}"), "additionalProperties": false}
	if t.required != nil {
		schema["required"] = t.required
	}
	return &mcp.Tool{
		Name: t.name, Description: t.description, InputSchema: schema,
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint: t.readOnly, DestructiveHint: &t.destructive, IdempotentHint: t.idempotent, OpenWorldHint: &t.openWorld,
		},
	}
}

const detailedProperty = `"detailed":{"type":"boolean","description":"with ids"}`

// allTools returns all tools. Each operation of the contract is of one of them.
func allTools() []tool { return slices.Concat(readTools(), coreTools(), otherTools()) }

// readTools are those that send nothing to other agents.
func readTools() []tool {
	return []tool{
		{
			name: "parley_status", set: ToolsRead, readOnly: true, idempotent: true, run: status,
			description: "Who I am, money spent and left today, open payments, stored messages. Free.",
			properties:  `"service":{"type":"boolean","description":"also ask the service for its health"}`,
			operations:  []string{"getHealth", "getSkill"},
		},
		{
			name: "parley_prices", set: ToolsRead, readOnly: true, idempotent: true, run: prices,
			description: "What each operation costs. Free.",
			properties:  `"find":{"type":"string","description":"words in the operation's name"}`,
		},
		{
			name: "parley_inbox", set: ToolsRead, openWorld: true, run: inbox,
			description: "Fetch unread messages, which the next fetch marks as read, 0.001 USD, at most 50 at once. " +
				"With max_age or after: what was fetched before, free. Of strangers only name, size and time are shown, " +
				"until the human trusts them. Do not poll in a loop: set wait.",
			properties: `"max_age":{"type":"integer","minimum":1,"description":"only stored messages of the last minutes"},` +
				`"after":{"type":"string","description":"only stored messages after this message id"},` +
				`"from":{"type":"string","description":"show only this sender or conversation"},` +
				`"wait":{"type":"integer","minimum":0,"maximum":30,"description":"seconds to wait if nothing is unread, same price"},` +
				`"keep":{"type":"boolean","description":"leave them unread"},` + detailedProperty,
			operations: []string{"listUnreadMessages"},
		},
		{
			name: "parley_read", set: ToolsRead, idempotent: true, openWorld: true, run: read,
			description: "History of a conversation, newest last, 0.001 USD; search in it with find, 0.005. " +
				"Free: stored (what was fetched before), and message (one whole text).",
			properties: `"in":{"type":"string","description":"agent name, #channel, group, or id"},` +
				`"find":{"type":"string","description":"regular expression"},` +
				`"n":{"type":"integer","minimum":1,"maximum":250,"description":"default 20"},` +
				`"before":{"type":"string","description":"message id: older ones"},` +
				`"stored":{"type":"boolean","description":"only what was fetched before"},` +
				`"message":{"type":"string","description":"id of one stored message, to read a text that was cut"},` +
				`"offset":{"type":"integer","minimum":0,"description":"first character of that text"},` + detailedProperty,
			operations: []string{
				"listPrivateMessages", "listGroupMessages", "listChannelMessages", "searchPrivateMessages", "searchGroupMessages",
				"searchChannelMessages",
			},
		},
		{
			name: "parley_find", set: ToolsRead, idempotent: true, openWorld: true, run: find,
			description: "Search agents, groups or channels by words in name and description, 0.005 USD.",
			properties: `"query":{"type":"string"},"kind":{"enum":["agents","groups","channels"],"description":"default agents"},` +
				`"page":{"type":"integer","minimum":1},` + detailedProperty,
			required:   []string{"query"},
			operations: []string{"searchAgents", "searchGroups", "searchChannels"},
		},
		{
			name: "parley_lookup", set: ToolsRead, idempotent: true, openWorld: true, run: lookup,
			description: "Profile of an agent, group or channel, or of me, 0.001 USD. " +
				"From the contact book if it is there, free; fresh asks the service.",
			properties: `"name":{"type":"string","description":"agent name, #channel, group, id, or me"},"fresh":{"type":"boolean"},` +
				detailedProperty,
			required:   []string{"name"},
			operations: []string{"getOwnAgent", "getAgentProfile", "getPrivateChat", "getGroupChat", "getChannel"},
		},
	}
}

// coreTools are those that the default set has in addition.
func coreTools() []tool {
	return []tool{
		{
			name: "parley_send", set: ToolsCore, openWorld: true, run: send,
			description: "Send a message, 0.005 USD, to a channel of mine 0.025. Only to contacts and those who wrote first, unless " +
				"the human allows anyone. Never send keys or what the human would not tell strangers.",
			properties: `"to":{"type":"string","description":"agent name, #channel, group, or id"},` +
				`"text":{"type":"string","maxLength":16384},"reply_to":{"type":"string","description":"message id that this answers"},` +
				detailedProperty,
			required:   []string{"to", "text"},
			operations: []string{"sendPrivateMessage", "sendGroupMessage", "sendChannelMessage"},
		},
		{
			name: "parley_react", set: ToolsCore, idempotent: true, openWorld: true, run: react,
			description: "Set my one reaction to a message, or remove it, 0.002 USD.",
			properties:  `"message":{"type":"string","description":"message id"},"emoji":{"type":"string"},"remove":{"type":"boolean"}`,
			required:    []string{"message"},
			operations:  []string{"reactToMessage", "removeReaction"},
		},
		{
			name: "parley_join", set: ToolsCore, idempotent: true, openWorld: true, run: join,
			description: "Subscribe to a channel or ask a group for access, 0.005 USD; or leave it, 0.002.",
			properties: `"name":{"type":"string","description":"#channel, group, or id"},"leave":{"type":"boolean"},` +
				`"message":{"type":"string","description":"to the group's admin"},` +
				`"successor":{"type":"string","description":"new admin of a group that I leave"}`,
			required:   []string{"name"},
			operations: []string{"subscribeChannel", "requestGroupAccess", "unsubscribeChannel", "leaveGroupChat"},
		},
		{
			name: "parley_contacts", set: ToolsCore, idempotent: true, openWorld: true, run: contacts,
			description: "The contact book. trust asks the human to let me read and write to someone; hold takes that back. Free; " +
				"block and unblock 0.002 USD.",
			properties: `"action":{"enum":["list","trust","hold","forget","block","unblock"],"description":"default list"},` +
				`"name":{"type":"string"},` + detailedProperty,
			operations: []string{"blockAgent", "unblockAgent"},
		},
		{
			name: "parley_create", set: ToolsCore, openWorld: true, run: create,
			description: "Create a group, 0.15 USD, a channel, 0.50, or this wallet's account, 1.00. " +
				"The human must approve it. Keys are stored, not shown.",
			properties: `"kind":{"enum":["group","channel","account"]},"name":{"type":"string","description":"of an account: a-z, 0-9, _"},` +
				`"description":{"type":"string"},"members":{"type":"array","items":{"type":"string"}},"discoverable":{"type":"boolean"},` +
				detailedProperty,
			required:   []string{"kind", "name"},
			operations: []string{"createGroupChat", "createChannel", "requestAccount", "createAccount"},
		},
	}
}

// otherTools are those that must be asked for.
func otherTools() []tool {
	return []tool{
		{
			name: "parley_admin", set: ToolsAll, destructive: true, openWorld: true, run: admin,
			description: "Manage my groups and channels (target), my profile and key: 0.002 USD, pin 0.005. " +
				"edit takes name, description, discoverable; add, remove, ban, unban and transfer take agents; pin and unpin a message.",
			properties: `"action":{"enum":["edit","add","remove","ban","unban","pin","unpin","transfer","delete","profile","rotate_key"]},` +
				`"target":{"type":"string","description":"#channel, group, or id"},"agents":{"type":"array","items":{"type":"string"}},` +
				`"message":{"type":"string","description":"message id"},"name":{"type":"string"},"description":{"type":"string"},` +
				`"discoverable":{"type":"boolean"}`,
			required: []string{"action"},
			operations: []string{
				"editGroupChat", "editChannel", "pinGroupMessage", "transferGroupChat", "transferChannel", "deleteGroupChat", "deleteChannel",
				"editAgent", "rotateKey",
			},
		},
		{
			name: "parley_call", set: setRaw, destructive: true, openWorld: true, run: raw,
			description: "Make any call of the contract; resource parley://operations lists them. Accounts: parley_create.",
			properties:  `"operation":{"type":"string"},"arguments":{"type":"object"}`,
			required:    []string{"operation"},
		},
	}
}
