package mcpserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

// maxDescription is the number of characters of a description in a list; longDescription alone.
const (
	maxDescription  = 160
	longDescription = 1_024
)

// described is an agent, a group chat or a channel that was found. All of it was written by others.
type described struct {
	id, name, description, size string
}

func find(c *call) error {
	arguments := map[string]any{}
	c.copyTo(arguments, map[string]string{"query": "query", "page": "page"})
	var found []described
	var err error
	switch c.text("kind") {
	case "groups":
		var page client.GroupSearchPage
		err = c.do("searchGroups", "", arguments, &page)
		for _, g := range page.Groups {
			found = append(found, described{g.ChatID, g.Name, g.Description, fmt.Sprintf("%d members", g.MemberCount)})
		}
	case "channels":
		var page client.ChannelSearchPage
		err = c.do("searchChannels", "", arguments, &page)
		for _, ch := range page.Channels {
			found = append(found, described{ch.ChannelID, ch.Name, ch.Description, fmt.Sprintf("%d subscribers", ch.SubscriberCount)})
		}
	default:
		var page client.AgentSearchPage
		err = c.do("searchAgents", "", arguments, &page)
		for _, a := range page.Agents {
			found = append(found, described{a.AgentID, a.Username, a.Description, ""})
		}
	}
	if err != nil {
		return err
	}
	c.line("%d found:", len(found))
	c.describe(found, maxDescription)
	return nil
}

// describe shows what was found, inside the fence: others wrote it.
func (c *call) describe(found []described, limit int) {
	list := []any{}
	size, left := 0, 0
	for i, d := range found {
		about := d.size
		if strings.HasPrefix(d.id, "agent_") {
			about = "agent " + agent.VisibleName(d.name)
		}
		withID := c.flag("detailed") || !strings.HasPrefix(d.id, "agent_") // other names are not unique
		if withID {
			about += " id " + agent.PlainWord(d.id)
		}
		text := d.description
		if d.size != "" {
			text = "name: " + d.name + "\n" + d.description
		}
		shown := c.fence.Text(about, text, limit)
		if size += utf8.RuneCountInString(shown); size > maxText {
			left = len(found) - i
			break
		}
		c.untrusted(shown)
		facts := map[string]any{"untrusted_text": shown}
		if withID {
			facts["id"] = agent.PlainWord(d.id)
		}
		list = append(list, facts)
	}
	c.facts["found"] = list
	if left > 0 {
		c.facts["left_out"] = left
		c.note("%d more do not fit: ask for another page.", left)
	}
}

func lookup(c *call) error {
	if name := c.text("name"); name == "me" {
		return c.lookupMe()
	}
	known, err := c.known(c.text("name"))
	if err != nil {
		return err
	}
	if known != nil && !known.Seen() && !c.flag("fresh") {
		c.line("From the contact book: %s. fresh: true asks the service.", c.contactLine(*known))
		c.facts["contact"] = c.contactLine(*known)
		return nil
	}
	to, err := c.to("name")
	if err != nil {
		return err
	}
	c.line("%s", c.contactLine(to))
	c.facts["contact"] = c.contactLine(to)
	switch to.Kind {
	case agent.KindGroup:
		return c.lookupGroup(to)
	case agent.KindChannel:
		return c.lookupChannel(to)
	}
	return c.lookupAgent(to)
}

// known returns the contact with a name or an id, or nil.
func (c *call) known(name string) (*agent.Contact, error) {
	contacts, err := c.agent.Contacts()
	if err != nil {
		return nil, err
	}
	return contacts.Find(name)
}

func (c *call) lookupMe() error {
	var own client.OwnAgent
	if err := c.do("getOwnAgent", "", nil, &own); err != nil {
		return err
	}
	c.line("I am %s. %d chats, %d subscriptions, discoverable: %t.", agent.PlainWord(own.Username), own.ChatCount,
		own.SubscribedChannelCount, own.IsDiscoverable)
	c.line("My description: %s", agent.VisibleName(own.Description))
	c.facts["username"], c.facts["discoverable"], c.facts["chat_count"] = agent.PlainWord(own.Username), own.IsDiscoverable, own.ChatCount
	if c.flag("detailed") {
		chats, subscribed, administered := newest(own.ChatIds, 100), newest(own.SubscribedChannelIds, 50), newest(own.AdministeredChannelIds, 50)
		c.facts["agent_id"], c.facts["chat_ids"] = agent.PlainWord(own.AgentID), chats
		c.facts["subscribed_channel_ids"], c.facts["administered_channel_ids"] = subscribed, administered
		c.line("agent %s; the newest chats: %s", agent.PlainWord(own.AgentID), strings.Join(chats, " "))
		c.line("subscriptions: %s", strings.Join(subscribed, " "))
		c.line("my channels: %s", strings.Join(administered, " "))
	}
	return nil
}

// newest returns the last n ids.
func newest(ids []string, n int) []string {
	shown := []string{}
	for _, id := range ids[max(0, len(ids)-n):] {
		shown = append(shown, agent.PlainWord(id))
	}
	return shown
}

// optional returns a text that a response may leave out, or "".
func optional(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func (c *call) lookupAgent(to agent.Contact) error {
	profile, err := c.lastProfile(to.ID)
	if err != nil {
		return err
	}
	if profile == nil || c.flag("fresh") {
		profile = &client.AgentProfile{}
		if err := c.do("getAgentProfile", to.ID, map[string]any{"agent_id": to.ID}, profile); err != nil {
			return err
		}
	}
	text := cmp.Or(optional(profile.Description), "no description")
	c.describe([]described{{profile.AgentID, profile.Username, text, ""}}, longDescription)
	return nil
}

// lastProfile returns the profile of an agent, if it is the one that was looked up last: for the id of the name.
func (c *call) lastProfile(id string) (*client.AgentProfile, error) {
	bodies, err := c.agent.Stored(c.ctx, "getAgentProfile", 1)
	if err != nil || len(bodies) == 0 {
		return nil, err
	}
	var profile client.AgentProfile
	if json.Unmarshal(bodies[0], &profile) != nil || profile.AgentID != id {
		return nil, nil //nolint:nilnil,nilerr // of another version or agent
	}
	return &profile, nil
}

func (c *call) lookupChannel(to agent.Contact) error {
	var channel client.Channel
	if err := c.do("getChannel", to.ID, map[string]any{"channel_id": to.ID}, &channel); err != nil {
		return err
	}
	size := fmt.Sprintf("%d subscribers", channel.SubscriberCount)
	c.describe([]described{{channel.ChannelID, channel.Name, optional(channel.Description), size}}, longDescription)
	return nil
}

// maxMembers is the number of members of a group chat that are listed.
const maxMembers = 50

func (c *call) lookupGroup(to agent.Contact) error {
	var group client.GroupChat
	if err := c.do("getGroupChat", to.ID, map[string]any{"chat_id": to.ID}, &group); err != nil {
		return err
	}
	size := fmt.Sprintf("%d members", group.MemberCount)
	c.describe([]described{{group.ChatID, group.Name, optional(group.Description), size}}, longDescription)
	var members []string
	for _, member := range group.Members[:min(len(group.Members), maxMembers)] {
		name := agent.PlainWord(member.Username)
		if member.IsAdmin {
			name += " (admin)"
		}
		members = append(members, name)
	}
	c.facts["members"] = members
	c.line("members: %s", strings.Join(members, ", "))
	if len(group.PinnedMessages) == 0 {
		return nil
	}
	c.line("pinned:")
	return c.showHistory(conversation{client.SourceTypeGroupChat, group.ChatID, group.Name}.of(group.PinnedMessages))
}
