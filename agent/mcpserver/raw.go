package mcpserver

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/parley-chat/parley/agent"
)

// raw makes any call of the contract. It obeys the rules of the other tools for recipients and for the text of strangers.
func raw(c *call) error {
	operation := c.text("operation")
	if operation == "requestAccount" || operation == "createAccount" {
		return wrong("accounts are created with parley_create, which stores the TAN and the API key")
	}
	arguments, _ := c.in["arguments"].(map[string]any)
	in, _ := arguments["chat_id"].(string)
	if channel, ok := arguments["channel_id"].(string); ok {
		in = channel
	}
	var body any
	if err := c.do(operation, in, arguments, &body); err != nil {
		return err
	}
	contacts, err := c.agent.Contacts()
	if err != nil {
		return err
	}
	own, err := c.ownID()
	if err != nil {
		return err
	}
	text, err := json.Marshal(contacts.Withhold(body, in, func(id, _ string) bool { return own != "" && id == own }))
	if err != nil {
		return err
	}
	c.showBody(operation, string(text))
	return nil
}

// showBody shows a response inside the fence.
func (c *call) showBody(operation, text string) {
	for limit := maxText; ; limit /= 2 {
		shown := c.fence.Text("response to "+agent.VisibleName(operation), text, limit)
		if utf8.RuneCountInString(shown) > maxText && limit > 1 {
			continue
		}
		c.untrusted(shown)
		c.facts["untrusted_text"] = shown
		if utf8.RuneCountInString(text) > limit {
			c.note("The response was cut: ask for fewer with n or page_size. Messages in it can be read for free with parley_read stored.")
		}
		return
	}
}
