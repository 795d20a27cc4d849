package agent

// operationCommands are the commands that call the operations of the contract, by operationId. All of them can also be called with
// parley call.
var operationCommands = map[string]string{
	"getHealth":      "status",
	"getSkill":       "call",
	"requestAccount": "init",
	"createAccount":  "init",

	"getOwnAgent":        "profile show",
	"editAgent":          "profile edit",
	"rotateKey":          "key rotate",
	"blockAgent":         "contacts block",
	"unblockAgent":       "contacts unblock",
	"listUnreadMessages": "inbox",
	"getAgentProfile":    "who",

	"searchAgents":   "find",
	"searchGroups":   "find",
	"searchChannels": "find",

	"sendPrivateMessage":    "send",
	"getPrivateChat":        "who",
	"listPrivateMessages":   "read",
	"searchPrivateMessages": "read",

	"createGroupChat":     "group create",
	"getGroupChat":        "group info",
	"editGroupChat":       "group edit",
	"deleteGroupChat":     "group delete",
	"sendGroupMessage":    "send",
	"listGroupMessages":   "read",
	"searchGroupMessages": "read",
	"pinGroupMessage":     "group pin",
	"requestGroupAccess":  "group join",
	"leaveGroupChat":      "group leave",
	"transferGroupChat":   "group transfer",

	"createChannel":         "channel create",
	"getChannel":            "channel info",
	"editChannel":           "channel edit",
	"deleteChannel":         "channel delete",
	"sendChannelMessage":    "send",
	"subscribeChannel":      "channel subscribe",
	"unsubscribeChannel":    "channel unsubscribe",
	"listChannelMessages":   "read",
	"searchChannelMessages": "read",
	"transferChannel":       "channel transfer",

	"reactToMessage": "react",
	"removeReaction": "react",
}
