package service

import (
	"strconv"
	"strings"
	"testing"
)

// TestVisibleText: a message, name or description that shows nothing, a name or description with characters that are not seen or with
// control characters, and what is no emoji are refused free of charge. Other Unicode passes unchanged, and so do lines of a description.
func TestVisibleText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	group, channel := alice.createGroup("planners", bob), alice.channel("news")
	const shows, hides = "must have a visible character, and U+", "must not have U+"
	const controls, emoji = "must not have control characters", "must be exactly one emoji"
	nothing := []string{"\u200b", "\u200d\u200c\ufeff", "\u2060 \u3164", "\u00ad", "\u180e\ufe0f", "\U000e0041", "\u2800", "\u202e", "\x01",
		"\U0001d159", "\U00016fe4", "\ufffe", "\u034f"}
	hiding := []string{"bank\u202eknab", "\u2066a\u2069", "x\u200f", "\u061cy", "a\u200bb", "Li\u00adsbon", "a\ufe0f",
		"a\u200db", "x\U000e0041"}
	blank := append([]string{" ", "\u00a0\u3000"}, nothing...)
	for _, test := range []struct {
		path, field, says string
		texts             []string
		body              fields
	}{
		{sendPath, "content", shows, nothing, fields{"recipient_agent_id": bob}},
		{"/chat/group/send", "content", shows, nothing, fields{"chat_id": group}},
		{"/channel/send", "content", shows, nothing, fields{"channel_id": channel}},
		{"/chat/group/create", "name", shows, blank, fields{}},
		{"/chat/group/edit", "name", shows, blank, fields{"chat_id": group}},
		{"/channel/create", "description", shows, blank, fields{"name": "new"}},
		{"/agent/edit", "description", shows, blank, fields{}},
		{"/register/create_account", "description", shows, blank, fields{"username": "carol", "tan": "x"}},
		{"/chat/group/create", "description", hides, hiding, fields{"name": "new"}},
		{"/channel/create", "name", hides, hiding, fields{}},
		{"/channel/edit", "name", hides, hiding, fields{"channel_id": channel}},
		{"/agent/edit", "description", hides, hiding, fields{}},
		{"/agent/edit", "description", controls, []string{"a\x1bb", "a\u2028b", "a\u0085b"}, fields{}},
		{"/chat/group/edit", "name", controls, []string{"a\nb", "a\tb", "a\x07b", "a\u2029b"}, fields{"chat_id": group}},
		{"/message/react", "emoji", emoji, []string{"ok", ":thumbsup:"}, fields{"message_id": noMessage}},
	} {
		for _, text := range test.texts {
			test.body[test.field] = text
			got := w.call("POST", test.path, test.body.json(t))
			if what := test.path + " with " + strconv.QuoteToASCII(text); !strings.Contains(got.Message, "/"+test.field+" "+test.says) {
				t.Errorf("%s: %v, want it to say that it %s", what, got, test.says)
			} else {
				got.WantRefused(t, what, 400, "invalid_request")
			}
		}
	}
	for _, text := range []string{"👩‍👩‍👧", "שלום", "می\u200cخواهم", "क्\u200dष", "❤️", "\u0600", "Ünïcödé\u0301",
		"🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"} {
		alice.must("/agent/edit", fields{"description": text + "\r\n\t" + text})
		alice.groupMust("edit", group, "name", text, "description", "")
		if got := bob.group(group); got.Name != text || got.Description == nil || *got.Description != "" {
			t.Errorf("the name %q is read as %q", text, got.Name)
		}
	}
	for _, text := range []string{"bank\u202eknab", "\u2066a\u2069", "a\u200bb", "x\U000e0041"} { // only names and descriptions
		if alice.sendGroup(group, text); bob.unread(nil, nil, nil).Messages[0].Content != text {
			t.Errorf("the message %q has changed", text)
		}
	}
}
