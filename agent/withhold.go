package agent

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Withhold returns a response, as encoding/json decodes it, without the text of strangers and without the names that they chose for their
// conversations. Ids and usernames that the contract does not allow are not shown. in is the conversation of the call, for responses that
// do not say where their messages are from. own reports whether a sender is the caller. It changes the response.
func (c Contacts) Withhold(response any, in string, own func(id, username string) bool) any {
	switch v := response.(type) {
	case []any:
		for i := range v {
			v[i] = c.Withhold(v[i], in, own)
		}
	case map[string]any:
		for _, field := range []string{"chat_id", "channel_id", "source_id"} {
			if id, ok := v[field].(string); ok {
				in = id
			}
		}
		if _, ok := v["source_id"]; ok {
			if known := c.ByID(in); known == nil || known.Kind != KindAgent && !known.Trusted {
				delete(v, "source_name")
			}
		}
		sender, _ := v["sender_id"].(string)
		username, _ := v["sender_username"].(string)
		if content, ok := v["content"].(string); ok && !own(sender, username) && !c.Shows(sender, in) {
			v["content"] = fmt.Sprintf("held: %d characters of a stranger", utf8.RuneCountInString(content))
			delete(v, "reactions")
			delete(v, "reaction_counts")
		}
		for name, inner := range v {
			if word, ok := inner.(string); ok && isWord(name) {
				v[name] = PlainWord(word)
				continue
			}
			v[name] = c.Withhold(inner, in, own)
		}
	}
	return response
}

// isWord reports whether the contract limits a field to letters, digits and the like.
func isWord(field string) bool {
	return strings.HasSuffix(field, "_id") || strings.HasSuffix(field, "username") || strings.HasSuffix(field, "type") &&
		field != "content_type"
}
