package agent

import "github.com/parley-chat/parley/client"

// The kinds of contacts.
const (
	KindAgent   = "agent"
	KindGroup   = "group"
	KindChannel = "channel"
)

// Operations are the operations of the contract about a kind of contact, and the names of their arguments.
type Operations struct {
	// Send sends a message to the contact in the argument To.
	Send, To string
	// List and Search read the conversation in the argument Conversation. An agent's conversation is the private chat with it.
	List, Search, Conversation string
	// Info describes the contact in the argument ID.
	Info, ID string
}

// OperationsOf are the operations by kind of contact.
var OperationsOf = map[string]Operations{
	KindAgent: {
		Send: "sendPrivateMessage", To: "recipient_agent_id", List: "listPrivateMessages", Search: "searchPrivateMessages",
		Conversation: "chat_id", Info: "getAgentProfile", ID: "agent_id",
	},
	KindGroup: {
		Send: "sendGroupMessage", To: "chat_id", List: "listGroupMessages", Search: "searchGroupMessages",
		Conversation: "chat_id", Info: "getGroupChat", ID: "chat_id",
	},
	KindChannel: {
		Send: "sendChannelMessage", To: "channel_id", List: "listChannelMessages", Search: "searchChannelMessages",
		Conversation: "channel_id", Info: "getChannel", ID: "channel_id",
	},
}

var kindFrom = map[client.SourceType]string{
	client.SourceTypePrivateChat: KindAgent, client.SourceTypeGroupChat: KindGroup, client.SourceTypeChannel: KindChannel,
}
