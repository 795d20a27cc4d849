package mcpserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
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

// described is an agent, a group chat or a channel, as responses have them. All of it was written by others.
type described struct {
	AgentID         string               `json:"agent_id"`
	ChatID          string               `json:"chat_id"`
	ChannelID       string               `json:"channel_id"`
	Username        string               `json:"username"`
	Name            string               `json:"name"`
	Description     string               `json:"description"`
	MemberCount     int64                `json:"member_count"`
	SubscriberCount int64                `json:"subscriber_count"`
	Members         []client.GroupMember `json:"members"`
	PinnedMessages  []client.Message     `json:"pinned_messages"`
}

// parts returns the id, what is said about it, and the text that is shown inside the fence.
func (d described) parts() (id, about, text string) {
	named := "name: " + d.Name + "\n" + d.Description
	switch {
	case d.ChannelID != "":
		return d.ChannelID, fmt.Sprintf("%d subscribers", d.SubscriberCount), named
	case d.ChatID != "":
		return d.ChatID, fmt.Sprintf("%d members", d.MemberCount), named
	}
	return d.AgentID, "agent " + agent.VisibleName(d.Username), cmp.Or(d.Description, "no description")
}

var searches = map[string]string{"agents": "searchAgents", "groups": "searchGroups", "channels": "searchChannels"}

func find(c *call) error {
	arguments := map[string]any{}
	c.copyTo(arguments, map[string]string{"query": "query", "page": "page"})
	var page struct{ Agents, Groups, Channels []described }
	if err := c.do(searches[cmp.Or(c.text("kind"), "agents")], "", arguments, &page); err != nil {
		return err
	}
	found := slices.Concat(page.Agents, page.Groups, page.Channels)
	c.line("%d found:", len(found))
	c.describe(found, maxDescription)
	return nil
}

// describe shows what was found, inside the fence: others wrote it.
func (c *call) describe(found []described, limit int) {
	list := []any{}
	size, left := 0, 0
	for i, d := range found {
		id, about, text := d.parts()
		withID := c.flag("detailed") || d.ChatID+d.ChannelID != "" // names of conversations are not unique
		if withID {
			about += " id " + agent.PlainWord(id)
		}
		shown := c.fence.Text(about, text, limit)
		if size += utf8.RuneCountInString(shown); size > maxText {
			left = len(found) - i
			break
		}
		c.untrusted(shown)
		facts := map[string]any{"untrusted_text": shown}
		if withID {
			facts["id"] = agent.PlainWord(id)
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
	var found *described
	if to.Kind == agent.KindAgent && !c.flag("fresh") {
		found, err = c.lastProfile(to.ID)
	}
	if found == nil && err == nil {
		found = &described{}
		of := agent.OperationsOf[to.Kind]
		err = c.do(of.Info, to.ID, map[string]any{of.ID: to.ID}, found)
	}
	if err != nil {
		return err
	}
	c.describe([]described{*found}, longDescription)
	if to.Kind == agent.KindGroup {
		return c.showMembers(*found)
	}
	return nil
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

// lastProfile returns the profile of an agent, if it is the one that was looked up last: for the id of the name.
func (c *call) lastProfile(id string) (*described, error) {
	bodies, err := c.agent.Stored(c.ctx, "getAgentProfile", 1)
	if err != nil || len(bodies) == 0 {
		return nil, err
	}
	var profile described
	if json.Unmarshal(bodies[0], &profile) != nil || profile.AgentID != id {
		return nil, nil //nolint:nilnil,nilerr // of another version or agent
	}
	return &profile, nil
}

// maxMembers is the number of members of a group chat that are listed.
const maxMembers = 50

// showMembers shows who is in a group chat, and what is pinned there.
func (c *call) showMembers(group described) error {
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
