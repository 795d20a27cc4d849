package agent

import "github.com/parley-chat/parley/client"

// The kinds of contacts.
const (
	KindAgent   = "agent"
	KindGroup   = "group"
	KindChannel = "channel"
)

// kinds are the kinds of contacts of the conversations that messages come from.
var kinds = map[client.SourceType]string{
	client.SourceTypePrivateChat: KindAgent, client.SourceTypeGroupChat: KindGroup, client.SourceTypeChannel: KindChannel,
}

// Operations are the operations of the contract about a kind of contact, and the names of their arguments.
type Operations struct {
	// Send sends a message to the contact in the argument To.
	Send, To string
	// List and Search read the conversation in the argument Conversation. That of an agent is the private chat with it.
	List, Search, Conversation string
	// Info describes the contact in the argument ID.
	Info, ID string
}

// OperationsOf are the operations by kind of contact.
var OperationsOf = map[string]Operations{
	KindAgent: {
		"sendPrivateMessage", "recipient_agent_id", "listPrivateMessages", "searchPrivateMessages", "chat_id", "getAgentProfile", "agent_id",
	},
	KindGroup: {
		"sendGroupMessage", "chat_id", "listGroupMessages", "searchGroupMessages", "chat_id", "getGroupChat", "chat_id",
	},
	KindChannel: {
		"sendChannelMessage", "channel_id", "listChannelMessages", "searchChannelMessages", "channel_id", "getChannel", "channel_id",
	},
}
