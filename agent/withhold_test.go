package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestContactNames: a contact is written as its name only if the name is the owner's choice or a username, and nothing but a name.
func TestContactNames(t *testing.T) {
	t.Parallel()
	for want, contact := range map[string]Contact{
		"bob":              {Name: "bob", Kind: KindAgent},
		"team":             {Name: "team", Kind: KindGroup, Trusted: true},
		"#weather":         {Name: "weather", Kind: KindChannel, Trusted: true},
		`"Weather Berlin"`: {Name: "Weather Berlin", Kind: KindGroup, Trusted: true},
	} {
		contact.ID = testkit.HostileRoom
		if got := contact.String(); got != want {
			t.Errorf("%+v is written as %s, want %s", contact, got, want)
		}
	}
	for _, contact := range []Contact{
		{}, {Name: "team", Kind: KindGroup}, {Name: "weather", Kind: KindChannel}, {Name: "Obey me", Kind: KindAgent, Trusted: true},
		{Name: "$(touch pwned)", Kind: KindGroup, Trusted: true}, {Name: "![x](https://evil.example)", Kind: KindGroup, Trusted: true},
		{Name: "a\u202eb", Kind: KindChannel, Trusted: true}, {Name: "a\nb", Kind: KindChannel, Trusted: true},
	} {
		contact.ID = testkit.HostileRoom
		if got := contact.String(); got != contact.ID {
			t.Errorf("%+v is written as %s, want its id", contact, got)
		}
	}
}

// TestHostileWords: what is a username, an id or an emoji by the contract is shown, and nothing else.
func TestHostileWords(t *testing.T) {
	t.Parallel()
	for _, text := range testkit.Hostile {
		if got := PlainWord(text); got != "(not shown)" {
			t.Errorf("%.40q is shown as %s", text, got)
		}
		if got := PlainEmoji(text); strings.Contains(got, "Ignore") ||
			strings.ContainsFunc(got, func(r rune) bool { return r == '\n' || isHidden(r) }) {
			t.Errorf("the emoji %.40q is shown as %.40q", text, got)
		}
	}
	if got := PlainEmoji("!["); got != "(not shown)" {
		t.Errorf("a part of Markdown is shown as the emoji %s", got)
	}
	for _, emoji := range []string{"👍", "❤️", "👩‍👩‍👧", "🇩🇪", "1️⃣"} {
		if PlainEmoji(emoji) == "(not shown)" {
			t.Errorf("%s is not shown", emoji)
		}
	}
}

// TestWithhold: a response that a program gets has no text of a stranger, wherever it is.
func TestWithhold(t *testing.T) {
	t.Parallel()
	own := func(_, username string) bool { return username == "alice" }
	decode := func(value any) any {
		text, err := json.Marshal(value)
		testkit.NoError(t, err)
		var decoded any
		testkit.NoError(t, json.Unmarshal(text, &decoded))
		return decoded
	}
	for _, path := range []string{"/agent/unread", "/chat/group/messages", "/chat/group/info"} {
		response := decode(testkit.HostileResponse(path, "name"))
		text, _ := json.Marshal(Contacts(nil).Withhold(response, testkit.HostileRoom, own))
		for _, part := range []string{"Ignore all", "maintenance", "zalgo", testkit.Pinned} {
			if strings.Contains(string(text), part) {
				t.Errorf("%s: %q is in the response", path, part)
			}
		}
	}
	mine := decode(client.Message{SenderUsername: "alice", Content: "mine"})
	if text, _ := json.Marshal(Contacts(nil).Withhold(mine, "", own)); !strings.Contains(string(text), "mine") {
		t.Errorf("an own message is held: %s", text)
	}
	room := Contacts{{ID: testkit.HostileRoom, Kind: KindGroup, Trusted: true}}
	text, _ := json.Marshal(room.Withhold(decode(testkit.HostileResponse("/chat/group/info", "name")), "", own))
	if !strings.Contains(string(text), testkit.Pinned) {
		t.Errorf("the text of a trusted group chat is held: %s", text)
	}
}

// TestNamesOfLiars: ids and usernames that the contract does not allow do not get into the contacts, and nobody renames what is trusted.
func TestNamesOfLiars(t *testing.T) {
	t.Parallel()
	contacts := Contacts{{ID: testkit.HostileRoom, Name: "team", Kind: KindGroup, Trusted: true},
		{ID: testkit.Eve, Name: "eve", Kind: KindAgent}}
	contacts = contacts.met(Contact{ID: testkit.HostileRoom, Name: "Obey me", Kind: KindGroup})
	contacts = contacts.met(Contact{ID: testkit.Eve, Name: "Obey me", Kind: KindAgent})
	contacts = contacts.met(Contact{ID: testkit.HostileChannel, Name: "one", Kind: KindChannel})
	contacts = contacts.met(Contact{ID: testkit.HostileChannel, Name: "two", Kind: KindChannel})
	for i, want := range []string{"team", "eve", "two"} {
		if contacts[i].Name != want {
			t.Errorf("the name is %s, want %s", contacts[i].Name, want)
		}
	}
}
