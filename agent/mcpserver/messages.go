package mcpserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

// message is a message of any conversation.
type message struct {
	client.UnreadMessage
	own  bool // this agent sent it
	held bool // its text may not be shown
}

// conversation is where messages are from, for responses that do not say it in each message.
type conversation struct {
	kind client.SourceType
	id   string
	name string
}

// of returns messages of one conversation in the form of unread ones.
func (of conversation) of(history []client.Message) (all []client.UnreadMessage) {
	for _, m := range history {
		all = append(all, client.UnreadMessage{
			MessageID: m.MessageID, SenderID: m.SenderID, SenderUsername: m.SenderUsername, Content: m.Content, CreatedAt: m.CreatedAt,
			SourceType: of.kind, SourceID: of.id, SourceName: of.name, About: m.About, ReplyToMessageID: m.ReplyToMessageID,
		})
	}
	return all
}

// judged tells for each message whether its text may be shown. own is the id of the caller, or "" for unread messages: these are of others.
func (c *call) judged(all []client.UnreadMessage, own string) ([]message, error) {
	contacts, err := c.agent.Contacts()
	if err != nil {
		return nil, err
	}
	var judged []message
	for _, m := range all {
		mine := own != "" && m.SenderID == own
		if in := contacts.ByID(m.SourceID); in != nil && in.Trusted && in.Kind != agent.KindAgent && agent.Tame(in.Name) {
			m.SourceName = in.Name
		} else {
			m.SourceName = agent.PlainWord(m.SourceID) // a stranger chose the name
		}
		judged = append(judged, message{m, mine, !mine && !contacts.Shows(m.SenderID, m.SourceID)})
	}
	return judged, nil
}

// show adds messages to the reply. It cuts texts and leaves out messages, so that the reply does not become too long: the last ones, or
// the first ones of a history. What is missing can be read for free.
func (c *call) show(all []message, detailed, history bool) {
	items := c.fit(all, detailed, history)
	left := len(all) - len(items)
	shown := all[:len(items)]
	if history {
		shown = all[left:]
	}
	if left > 0 {
		c.facts["left_out"] = left
		if history {
			c.note("%d older ones do not fit. They are free: parley_read with the same arguments, stored and before_message_id %s.", left,
				agent.PlainWord(shown[0].MessageID))
		}
	}
	list, cut, held := []any{}, false, agent.Contact{}
	for i, item := range items {
		if shown[i].held {
			held = agent.Contact{Name: shown[i].SenderUsername, ID: shown[i].SenderID, Kind: agent.KindAgent}
		}
		cut = cut || item.cut
		c.untrusted(item.text)
		list = append(list, item.facts)
	}
	c.facts["messages"] = list
	if cut {
		c.note("A text was cut. The rest is free: parley_read with message_id and offset.")
	}
	if left > 0 && !history {
		c.note("%d more do not fit. They are free: parley_inbox with after_message_id %s.", left, agent.PlainWord(shown[len(shown)-1].MessageID))
	}
	if held.TrustCommand() != "" {
		ask := "call parley_contacts with action trust, or "
		if !c.tools["parley_contacts"] {
			ask = ""
		}
		c.note("Texts of strangers are held. If your human should trust %s, %sthe human runs: %s. Then the texts are free: "+
			"parley_inbox with last_minutes, parley_read with stored.", held, ask, c.human("parley contacts trust "+held.String()))
	}
}

// item is a message as it is shown.
type item struct {
	text  string
	facts map[string]any
	cut   bool
}

// fit renders as many messages as fit, with the longest texts with which all fit: the first ones, or the last ones of a history. One is
// always shown.
func (r *reply) fit(all []message, detailed, history bool) (items []item) {
	for _, limit := range []int{16_384, 4_000, 1_500, 500, 150} {
		items = nil
		size := 0
		for i := range all {
			m := all[i]
			if history {
				m = all[len(all)-1-i]
			}
			one := r.render(m, limit, detailed)
			facts, _ := json.Marshal(one.facts) // strings and booleans
			size += max(utf8.RuneCountInString(one.text), utf8.RuneCount(facts)) + 1
			if size > maxText && i > 0 {
				break
			}
			items = append(items, one)
		}
		if len(items) == len(all) && size <= maxText {
			break
		}
	}
	if history {
		slices.Reverse(items)
	}
	return items
}

func (r *reply) render(m message, limit int, detailed bool) item {
	cut := !m.held && utf8.RuneCountInString(m.Content) > limit
	received := agent.Received{
		From: agent.PlainWord(m.SenderUsername), ID: agent.PlainWord(m.MessageID), At: agent.Time(m.CreatedAt), Text: m.Content, Own: m.own,
		Held: m.held,
	}
	facts := map[string]any{"from": received.From, "id": received.ID, "at": received.At}
	if m.SourceType != client.SourceTypePrivateChat {
		received.In = m.SourceName
		facts["in"] = agent.VisibleName(m.SourceName)
	}
	if detailed {
		facts["sender_id"], facts["conversation_id"] = agent.PlainWord(m.SenderID), agent.PlainWord(m.SourceID)
	}
	shown := r.fence.Message(received, limit)
	if m.ReplyToMessageID != nil {
		facts["reply_to"] = agent.PlainWord(*m.ReplyToMessageID)
		shown = "The next message answers message " + agent.PlainWord(*m.ReplyToMessageID) + ".\n" + shown
	}
	if m.own {
		facts["own"] = true
	}
	if m.held {
		facts["held"], facts["characters"] = true, utf8.RuneCountInString(m.Content)
	} else {
		facts["untrusted_text"] = shown
	}
	if reactions := r.reactions[m.MessageID]; reactions != "" && !m.held {
		facts["reactions"] = reactions
		shown = "Reactions to the next message: " + reactions + ".\n" + shown
	}
	if m.About != nil {
		about := strings.ReplaceAll(agent.PlainWord(string(m.About.Type)), "_", " ") + ", " + agent.PlainWord(m.About.SourceID)
		facts["about"] = about
		shown = "The service says about the next message: it is " + about + ".\n" + shown
	}
	return item{text: shown, facts: facts, cut: cut}
}

// reactionsOf returns the reactions to messages by the id of the message, such as 👍 2 🎉 1.
func reactionsOf(messages []client.Message) map[string]string {
	const most = 10 // different ones of a message
	all := map[string]string{}
	for _, m := range messages {
		var words []string
		for _, emoji := range slices.Sorted(maps.Keys(m.ReactionCounts)) {
			words = append(words, fmt.Sprintf("%s %d", agent.PlainEmoji(emoji), m.ReactionCounts[emoji]))
		}
		all[m.MessageID] = strings.Join(words[:min(len(words), most)], " ")
	}
	return all
}
