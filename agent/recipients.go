package agent

// recipients are the arguments with the agents and conversations that an operation sends something to. If text is set, it does so only
// with that argument.
var recipients = map[string]struct{ to, text string }{
	"sendPrivateMessage": {to: "recipient_agent_id"},
	"sendGroupMessage":   {to: "chat_id"},
	"sendChannelMessage": {to: "channel_id"},
	"requestGroupAccess": {to: "chat_id", text: "message"},
	"transferGroupChat":  {to: "new_admin_agent_id", text: "message"},
	"transferChannel":    {to: "new_admin_agent_id", text: "message"},
	"leaveGroupChat":     {to: "successor_agent_id", text: "transfer_message"},
	"createGroupChat":    {to: "initial_member_ids"},
	"editGroupChat":      {to: "add_member_ids"},
}

// Recipients returns the agents and conversations that a call sends something to. Those that are not contacts have an id only.
func (c Contacts) Recipients(operation string, arguments map[string]any) (found []Contact) {
	rule, there := recipients[operation]
	if text, _ := arguments[rule.text].(string); !there || rule.text != "" && text == "" {
		return nil
	}
	ids, many := arguments[rule.to].([]any)
	if !many {
		ids = []any{arguments[rule.to]}
	}
	for _, value := range ids {
		id, ok := value.(string)
		if !ok {
			continue // absent, or the contract's to refuse
		}
		to := Contact{ID: id}
		if known := c.ByID(id); known != nil {
			to = *known
		}
		found = append(found, to)
	}
	return found
}
