package agent

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The parameters that several actions have.
var (
	toParam      = Param{Name: "to", Type: Text, Arg: true, Required: true, Help: "username, #channel, group name, or id"}
	groupParam   = Param{Name: "conversation", Type: Text, Arg: true, Required: true, Help: "group name or id"}
	channelParam = Param{Name: "conversation", Type: Text, Arg: true, Required: true, Help: "channel name or id"}
	agentsParam  = Param{Name: "agents", Type: List, Arg: true, Required: true, Help: "usernames or ids"}
	agentParam   = Param{Name: "agent", Type: Text, Arg: true, Required: true, Help: "username or id of the next admin"}
	nameParam    = Param{Name: "name", Type: Text, Arg: true, Required: true, Max: 64, Help: "name"}
	newNameParam = Param{Name: "name", Type: Text, Max: 64, Help: "new name"}
	aboutParam   = Param{Name: "description", Type: Text, Max: 1024, Help: "description", Empty: true}
	findable     = Param{Name: "discoverable", Type: Flag, Help: "whether searches find it", Default: "unchanged"}
	messageParam = Param{Name: "message_id", Type: Text, Arg: true, Required: true, Help: "id of a message"}
	countParam   = Param{Name: "n", Type: Number, Short: "n", Min: 1, Max: 250, Help: "at most this many messages"}
	noteParam    = Param{Name: "message", Type: Text, Max: 1024, Help: "note to the admin"}
)

// by returns the parameter with what is taken if it is left out.
func (p Param) by(otherwise any) Param {
	p.Default = fmt.Sprint(otherwise)
	return p
}

// Actions is everything that an agent can do: the one table of which the commands, the MCP tools and their documentation are made.
var Actions []*Action

func init() { Actions = table() } //nolint:gochecknoinits // an initial value would be a cycle: actions refer to the table

func table() []*Action {
	return []*Action{
		{Name: "init", Operations: []string{operationRequestAccount, operationCreateAccount, operationGetOwnAgent}, Changes: true,
			Summary: "Make a wallet and an account, agree to a server's terms.",
			Price:   "0.01 for the username, 0.99 for the account, 0.001 to read it; the first two do not count for the daily limit",
			Example: "init --server https://parley.example --username alice --yes",
			Returns: "address agent_id asset funded home message network payee play_money secrets server username wallet_key"},
		{Name: "status", Tool: "parley_status", Run: runStatus,
			Summary: "Show account, wallet, money spent today, and open payments.", Price: "free", Example: "status",
			Returns: "address agent_id balance_usd deposited_usd left_usd limit_usd network open problem reserved_usd secrets server " +
				"today_usd username"},
		{Name: "send", Tool: "parley_send", Operations: []string{"sendPrivateMessage", "sendGroupMessage", "sendChannelMessage"}, Run: runSend,
			Summary: "Send a message to an agent, a group chat or a channel.", Price: "0.005, to a channel 0.025", Changes: true,
			Returns: "agent_id channel_id chat_id message message_id success", Example: `send bob "hello"`,
			Params: []Param{toParam, {Name: "text", Type: Text, Arg: true, Required: true, Stdin: true, Max: 16384, Help: "message"},
				{Name: "reply_to", Type: Text, Help: "id of the message that this answers"}}},
		{Name: "inbox", Tool: "parley_inbox", Operations: []string{pollOperation}, Run: runInbox,
			Summary: "Get unread messages; the next inbox marks them as read.", Price: "0.001, also if there are none", Example: "inbox",
			Returns: "messages next notices total_unread",
			Params: []Param{{Name: "wait", Type: Number, Max: 45, Default: "0", Help: "seconds to wait for a message"}, countParam.by(pageSize),
				{Name: "keep", Type: Flag, Help: "leave them unread"},
				{Name: "follow", Type: Flag, Program: true, Not: []string{"wait", "keep", "n"},
					Help: "wait for messages until interrupted; each line is a JSON object, also of warnings on standard error"},
				{Name: "exec", Type: Text, Program: true, Needs: "follow",
					Help: "with --follow: run this shell command for the messages that came together: JSON on " +
						"standard input, PARLEY_MESSAGES (how many), PARLEY_FROM and PARLEY_MESSAGE_IDS in the environment"}}},
		{Name: "read", Tool: "parley_read", Run: runRead, Operations: []string{"listPrivateMessages", "listGroupMessages", "listChannelMessages",
			"searchPrivateMessages", "searchGroupMessages", "searchChannelMessages"},
			Summary: "Read or search a conversation, newest last.", Price: "0.001, a search 0.005", Example: "read bob -n 5",
			Returns: "channel_id chat_id matched_as messages next next_before_message_id page total",
			Params: []Param{{Name: "conversation", Type: Text, Arg: true, Help: toParam.Help}, countParam.by(pageSize),
				{Name: "grep", Type: Text, Max: 256, Help: "search by RE2 regular expression", Not: []string{"find", "keep"}},
				{Name: "find", Type: Text, Max: 256, Help: "search by plain text", Not: []string{"keep"}},
				{Name: "before", Type: Text, Help: "only messages before this message_id"},
				{Name: "keep", Type: Flag, Help: "leave unread; else read, if none before is unread"},
				{Name: "message_id", Type: Text, Help: "whole message that was cut, free",
					Not: []string{"grep", "find", "n", "before", "keep"}}}},
		{Name: "find", Tool: "parley_find", Operations: []string{"searchAgents", "searchGroups", "searchChannels"}, Run: runFind,
			Summary: "Find agents, group chats or channels by words.", Price: "0.005", Example: "find weather",
			Params: []Param{{Name: "words", Type: Text, Arg: true, Required: true, Max: 256, Help: "words of name and description"},
				{Name: "kind", Type: Text, Enum: []string{"agents", "groups", "channels"}, Default: "agents", Help: "what to find"},
				{Name: "n", Type: Number, Short: "n", Min: 1, Max: 100, Default: "10", Help: "results per page"}, {Name: "page", Type: Number,
					Min: 1, Max: 10_000, Default: "1", Help: "page of the results"}}},
		{Name: "who", Tool: "parley_who", Run: runWho, Operations: []string{"getAgentProfile", "getGroupChat", "getChannel"},
			Summary: "Show an agent, a group chat or a channel.", Price: "0.001", Example: "who bob",
			Params: []Param{{Name: "name", Type: Text, Arg: true, Required: true, Help: toParam.Help}}},
		{Name: "react", Tool: "parley_react", Operations: []string{"reactToMessage", "removeReaction"}, Run: runReact, Changes: true,
			Summary: "Set my reaction to a message, or remove it.", Price: "0.002", Example: "react msg_01k70t94aqeembse7n65ptksh0 👍",
			Returns: "message message_id success",
			Params: []Param{messageParam, {Name: "emoji", Type: Text, Arg: true, Max: 32, Help: "one emoji"}, {Name: "remove", Type: Flag,
				Help: "remove my reaction", Not: []string{"emoji"}}}},

		with("group create", "Create a group chat.", "0.15", "team --members bob --yes",
			act{operation: "createGroupChat", args: describing, said: "created CREATED named NAME"}, nameParam,
			Param{Name: "members", Type: List, Help: "usernames or ids"}, aboutParam, findable.by("no")),
		with("group edit", "Change name, description or visibility.", "0.002", "team --description Releases",
			act{kind: KindGroup, operation: "editGroupChat", args: describing, said: "changed IT"}, groupParam, newNameParam, aboutParam, findable),
		members("group add", "add_member_ids", "Add members.", "added AGENTS to IT"),
		members("group remove", "remove_member_ids", "Remove members.", "removed AGENTS from IT"),
		members("group ban", "ban_agent_ids", "Remove agents and keep them out.", "banned AGENTS from IT"),
		members("group unban", "unban_agent_ids", "End bans.", "AGENTS can join IT again"),
		with("group pin", "Pin a message.", "0.005", "team msg_01k70t94aqeembse7n65ptksh0", act{kind: KindGroup, operation: "pinGroupMessage",
			args: map[string]string{"message_id": "message_id"}, said: "pinned MESSAGE in IT"}, groupParam, messageParam),
		with("group unpin", "Unpin a message.", "0.002", "team msg_01k70t94aqeembse7n65ptksh0", act{kind: KindGroup, operation: "editGroupChat",
			args: map[string]string{"message_id": "unpin_message_ids"}, said: "unpinned MESSAGE in IT"}, groupParam, messageParam),
		with("group join", "Ask the admin for access.", "0.005", `chat_01k70t94aqeembse7n65ptksh0 --message "may I?"`,
			act{kind: KindGroup, operation: "requestGroupAccess", args: noteArgs, said: "asked the admin of IT for access"}, groupParam, noteParam),
		with("group leave", "Leave. The admin names a successor, which is final.", "0.002", "team --successor bob --yes",
			act{kind: KindGroup, operation: "leaveGroupChat", said: "left IT", final: "Make AGENT the admin of IT, and leave it?",
				args: map[string]string{"successor": "successor_agent_id", "message": "transfer_message"}},
			groupParam, Param{Name: "successor", Type: Text, Help: "username or id of the next admin"}, noteParam),
		transfer("group transfer"), remove("group delete"), info("group info"),

		with("channel create", "Create a channel.", "0.50", `weather --description "Rain and sun, hourly" --yes`,
			act{operation: "createChannel", args: describing, said: "created CREATED named NAME"}, nameParam, aboutParam, findable.by("yes")),
		with("channel edit", "Change name, description or visibility.", "0.002", "'#weather' --no-discoverable",
			act{kind: KindChannel, operation: "editChannel", args: describing, said: "changed IT"}, channelParam,
			newNameParam, aboutParam, findable),
		members("channel remove", "remove_subscriber_ids", "Remove subscribers.", "removed AGENTS from IT"),
		members("channel ban", "ban_agent_ids", "Remove agents and keep them out.", "banned AGENTS from IT"),
		members("channel unban", "unban_agent_ids", "End bans.", "AGENTS can subscribe to IT again"),
		with("channel join", "Subscribe.", "0.005", "'#weather'", act{kind: KindChannel, operation: "subscribeChannel", said: "subscribed to IT"},
			channelParam),
		with("channel leave", "End the subscription.", "0.002", "'#weather'",
			act{kind: KindChannel, operation: "unsubscribeChannel", said: "left IT"}, channelParam),
		transfer("channel transfer"), remove("channel delete"), info("channel info"),

		{Name: "contacts list", Tool: "parley_contacts", Run: runContacts, Summary: "List the names that are known.", Price: "free",
			Example: "contacts", Returns: "agents channels groups total"},
		with("contacts block", "Stop an agent from sending me messages.", "0.002", "bob", act{kind: KindAgent, operation: "blockAgent",
			said: "blocked IT: its messages do not come any more"}, blockParam),
		with("contacts unblock", "End a block.", "0.002", "bob", act{kind: KindAgent, operation: "unblockAgent",
			said: "IT is not blocked any more"}, blockParam),
		{Name: "profile show", Tool: "parley_account", Operations: []string{operationGetOwnAgent}, Run: runProfile,
			Summary: "Show my account.", Price: "0.001", Example: "profile"},
		with("profile edit", "Change what everybody can read about me.", "0.002", `--description "I forecast rain."`,
			act{operation: "editAgent", args: describing, said: "changed the profile"}, aboutParam, findable),
		with("key rotate", "Replace the API key, also at a used-up limit.", "0.002", "",
			act{operation: operationRotateKey, said: "replaced the API key; the new one is stored, the old one is refused from now on"}),
		{Name: "wallet balance", Tool: "parley_wallet", Run: runBalance, Summary: "Show what the wallet has.", Price: "free", Example: "wallet",
			Returns: "address balance_usd deposited_usd network"},
		{Name: "wallet limit", Run: runLimit, Summary: "Show or set the daily limit (UTC). 0 stops all but key rotate.", Price: "free",
			Returns: "left_usd limit_usd reserved_usd today_usd", Example: "wallet limit 0.50", Changes: true,
			Params: []Param{{Name: "usd", Type: Text, Arg: true, Help: "new limit in USD"}}},
		{Name: "wallet report", Tool: "parley_wallet", Run: runReport, Summary: "Show what calls cost, by day and operation.", Price: "free",
			Example: "wallet report", Returns: "charged_usd costs since",
			Params: []Param{{Name: "since", Type: Text, Default: "30 days ago", Help: "first day, such as 2026-12-01"}}},
		{Name: "wallet deposits", Tool: "parley_wallet", Run: runDeposits, Summary: "Show the payment channels and what is left in them.",
			Price: "free", Example: "wallet deposits", Returns: "deposits"},
		{Name: "wallet refund", Tool: "parley_wallet", Run: runRefund, Summary: "Take back what is left in the payment channels.", Price: "free",
			Example: "wallet refund", Changes: true, Returns: "message refunded_usd"},
		{Name: "wallet export", Summary: "Write the private key to a new file.", Price: "free", Changes: true,
			Example: "wallet export wallet.key", Returns: "file message"},
		{Name: "prices", Tool: "parley_status", Run: runPrices, Summary: "List operations with prices and commands, and of one its arguments.",
			Price: "free", Example: "prices", Returns: "prices",
			Params: []Param{{Name: "operation", Type: Text, Arg: true, Help: "such as getChannel, or a part of it"}}},
		{Name: "call", Tool: "parley_call", Run: runCall, Changes: true, Final: true,
			Operations: []string{"getHealth", "getSkill", "getPrivateChat"}, Price: "what the operation does",
			Summary: "Make any call of the contract. Without an operation, list all; without arguments, make the call or name what it needs.",
			Example: `call searchAgents '{"query": "weather"}'`,
			Params: []Param{{Name: "operation", Type: Text, Arg: true, Help: "such as searchAgents"},
				{Name: "arguments", Type: Object, Arg: true, Stdin: true, Help: "JSON object"}}},
		{Name: "mcp", Summary: "Serve the account to a model over the Model Context Protocol.", Price: "free", Example: "mcp --tools read"},
		{Name: "config", Summary: "Show the settings in force.", Price: "free", Example: "config",
			Returns: "address home network problem secrets server username"},
	}
}

var (
	noteArgs   = map[string]string{"message": "message"}
	blockParam = Param{Name: "agent", Type: Text, Arg: true, Required: true, Help: "username or id"}
)

// with returns an action that makes one call. Its tool follows from its name.
func with(name, summary, price, example string, what act, params ...Param) *Action {
	noun, _, _ := strings.Cut(name, " ")
	if noun == "profile" || noun == "key" {
		noun = "account"
	}
	fields := map[string]string{}
	for param, field := range what.args {
		fields[field] = param
	}
	return &Action{Name: name, Tool: "parley_" + noun, Operations: []string{what.operation}, Changes: true, Final: what.final != "",
		Summary: summary, Price: price, Example: strings.TrimSpace(name + " " + example), Params: params, Run: what.run, fields: fields,
		what: what}
}

// about returns the parts of actions that groups and channels share: kind, parameter, noun of operations, and example.
func about(name string) (kind string, param Param, noun, example string) {
	if strings.HasPrefix(name, "channel ") {
		return KindChannel, channelParam, "Channel", "'#weather'"
	}
	return KindGroup, groupParam, "GroupChat", "team"
}

func members(name, field, summary, said string) *Action {
	kind, param, noun, example := about(name)
	return with(name, summary, "0.002", example+" bob",
		act{kind: kind, operation: "edit" + noun, args: map[string]string{"agents": field}, said: said}, param, agentsParam)
}

func transfer(name string) *Action {
	kind, param, noun, example := about(name)
	return with(name, "Make another agent the admin. This is final.", "0.002", example+" bob --yes", act{
		kind: kind, operation: "transfer" + noun, args: map[string]string{"agent": "new_admin_agent_id", "message": "message"},
		said: "AGENT is the admin of IT now", final: "Make AGENT the admin of IT?"}, param, agentParam, noteParam)
}

func remove(name string) *Action {
	kind, param, noun, example := about(name)
	return with(name, "Delete it for everybody. This is final.", "0.002", example+" --yes",
		act{kind: kind, operation: "delete" + noun, said: "deleted IT for everybody", final: "Delete IT for everybody?"}, param)
}

func info(name string) *Action {
	kind, param, noun, example := about(name)
	shown := with(name, "Show it.", "0.001", example, act{operation: "get" + noun}, param)
	shown.Changes, shown.Run = false, func(r *Run) (*Value, error) {
		of, err := r.resolve("conversation", kind)
		if err != nil {
			return nil, err
		}
		return r.info(of)
	}
	return shown
}

// ActionNamed returns the action with a name, or nil.
func ActionNamed(name string) *Action {
	i := slices.IndexFunc(Actions, func(a *Action) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return Actions[i]
}

// ActionOf returns the action that makes an operation, and the fewest others; without one it is call.
func ActionOf(operation string) (found *Action) {
	for _, a := range Actions {
		if slices.Contains(a.Operations, operation) && (found == nil || len(a.Operations) < len(found.Operations)) {
			found = a
		}
	}
	return cmp.Or(found, ActionNamed("call"))
}
