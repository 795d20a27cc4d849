package agent

import (
	"regexp"
	"slices"
	"strings"
)

// Caller is a command, the MCP tool that does the same, and the operations of the contract that both make. Names are looked up before, see
// [Agent.Resolve].
type Caller struct {
	Command, Tool string
	Operations    []string
}

// Callers are all that make calls. Command and tool can be in several. "parley call" and the tool parley_call make any call.
var Callers = []Caller{
	{"status", "parley_status", []string{"getHealth"}},
	{"call", "parley_status", []string{"getSkill"}},
	{"profile show", "parley_lookup", []string{operationGetOwnAgent}},
	{"profile edit", "parley_admin", []string{"editAgent"}},
	{"key rotate", "parley_admin", []string{"rotateKey"}},
	{"init", "parley_create", []string{operationRequestAccount, operationCreateAccount, operationGetOwnAgent}},

	{"inbox", "parley_inbox", []string{pollOperation}},
	{"read", "parley_read", []string{
		"listPrivateMessages", "listGroupMessages", "listChannelMessages", "searchPrivateMessages", "searchGroupMessages",
		"searchChannelMessages",
	}},
	{"send", "parley_send", []string{"sendPrivateMessage", "sendGroupMessage", "sendChannelMessage"}},
	{"react", "parley_react", []string{"reactToMessage", "removeReaction"}},
	{"find", "parley_find", []string{"searchAgents", "searchGroups", "searchChannels"}},
	{"group info", "parley_lookup", []string{"getGroupChat"}},
	{"channel info", "parley_lookup", []string{"getChannel"}},
	{"who", "parley_lookup", []string{"getAgentProfile", "getGroupChat", "getChannel", "getPrivateChat"}},
	{"contacts block", "parley_contacts", []string{"blockAgent"}},
	{"contacts unblock", "parley_contacts", []string{"unblockAgent"}},

	{"group create", "parley_create", []string{"createGroupChat"}},
	{"group edit", "parley_admin", []string{"editGroupChat"}},
	{"group add", "parley_admin", []string{"editGroupChat"}},
	{"group remove", "parley_admin", []string{"editGroupChat"}},
	{"group ban", "parley_admin", []string{"editGroupChat"}},
	{"group unban", "parley_admin", []string{"editGroupChat"}},
	{"group unpin", "parley_admin", []string{"editGroupChat"}},
	{"group pin", "parley_admin", []string{"pinGroupMessage"}},
	{"group transfer", "parley_admin", []string{"transferGroupChat"}},
	{"group delete", "parley_admin", []string{"deleteGroupChat"}},
	{"group join", "parley_join", []string{"requestGroupAccess"}},
	{"group leave", "parley_leave", []string{"leaveGroupChat"}},

	{"channel create", "parley_create", []string{"createChannel"}},
	{"channel edit", "parley_admin", []string{"editChannel"}},
	{"channel remove", "parley_admin", []string{"editChannel"}},
	{"channel ban", "parley_admin", []string{"editChannel"}},
	{"channel unban", "parley_admin", []string{"editChannel"}},
	{"channel transfer", "parley_admin", []string{"transferChannel"}},
	{"channel delete", "parley_admin", []string{"deleteChannel"}},
	{"channel subscribe", "parley_join", []string{"subscribeChannel"}},
	{"channel unsubscribe", "parley_leave", []string{"unsubscribeChannel"}},
}

// CallerOf returns the first caller of an operation.
func CallerOf(operation string) (found Caller) {
	if i := slices.IndexFunc(Callers, func(c Caller) bool { return slices.Contains(c.Operations, operation) }); i >= 0 {
		found = Callers[i]
	}
	return found
}

var callsByPath = regexp.MustCompile(`(GET|POST) (/[a-z_]+)+`)

// InCallers returns a message of the server with what name returns for an operation in place of its method and path.
func (a *Agent) InCallers(message string, name func(operation string) string) string {
	return callsByPath.ReplaceAllStringFunc(message, func(call string) string {
		method, path, _ := strings.Cut(call, " ")
		if o := a.contract.At(method, path); o != nil {
			return name(o.ID)
		}
		return call
	})
}

// OperationOf returns the operation of a command that makes one.
func OperationOf(command string) string {
	return Callers[slices.IndexFunc(Callers, func(c Caller) bool { return c.Command == command })].Operations[0]
}
