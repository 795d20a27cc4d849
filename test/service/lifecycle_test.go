package service

import (
	"slices"
	"testing"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// sees is what an agent finds of a conversation: in its own lists, unread, and in the directory.
type sees struct {
	listed, unread, found bool
}

func (a *agent) looksFor(t *testing.T, id string) (view sees) {
	t.Helper()
	ctx := t.Context()
	me, err := a.GetOwnAgentWithResponse(ctx)
	testkit.Require200(t, a.Name+" sees itself", me, err)
	view.listed = slices.Contains(me.JSON200.ChatIds, id) || slices.Contains(me.JSON200.SubscribedChannelIds, id)
	unread, err := a.ListUnreadMessagesWithResponse(ctx, &client.ListUnreadMessagesParams{MarkRead: new(false)})
	testkit.Require200(t, a.Name+" polls", unread, err)
	view.unread = slices.ContainsFunc(unread.JSON200.Messages, func(m client.UnreadMessage) bool { return m.SourceID == id })
	if view.unread != (unread.JSON200.TotalUnread > 0) {
		t.Errorf("%s: the page and total_unread %d disagree", a.Name, unread.JSON200.TotalUnread)
	}
	groups, err := a.SearchGroupsWithResponse(ctx, client.SearchGroupsRequest{Query: "lighthouse"})
	testkit.Require200(t, a.Name+" searches", groups, err)
	channels, err := a.SearchChannelsWithResponse(ctx, client.SearchChannelsRequest{Query: "lighthouse"})
	testkit.Require200(t, a.Name+" searches", channels, err)
	view.found = slices.ContainsFunc(groups.JSON200.Groups, func(g client.GroupSearchItem) bool { return g.ChatID == id }) ||
		slices.ContainsFunc(channels.JSON200.Channels, func(c client.ChannelSearchItem) bool { return c.ChannelID == id })
	return view
}

// TestWhatEndsLeavesEverything: leaving, removal, ban and deletion take a conversation out of lists and unread at once,
// deletion out of the directory too; a new member sees the history and has nothing of it unread.
func TestWhatEndsLeavesEverything(t *testing.T) {
	t.Parallel()
	c := newCast(t)
	alice, bob, carol, dave, frank := c.alice, c.bob, c.carol, c.dave, c.frank
	members := quote(bob.ID) + `,` + quote(carol.ID) + `,` + quote(dave.ID)
	group := c.must(alice, "/chat/group/create",
		`{"name":"lighthouse keepers","is_discoverable":true,"initial_member_ids":[`+members+`]}`).Field(t, "chat_id")
	channel := c.must(alice, "/channel/create", `{"name":"lighthouse news"}`).Field(t, "channel_id")
	check := func(who *agent, what, id string, want sees) {
		t.Helper()
		if got := who.looksFor(t, id); got != want {
			t.Errorf("%s: %s sees %+v, want %+v", what, who.Name, got, want)
		}
	}

	c.must(alice, "/chat/group/send", `{"chat_id":`+quote(group)+`,"content":"the lamp is out"}`)
	for _, member := range []*agent{bob, carol, dave} {
		check(member, "a message in the group", group, sees{true, true, true})
	}
	c.must(bob, "/chat/group/leave", `{"chat_id":`+quote(group)+`}`)
	check(bob, "after leaving", group, sees{false, false, true})
	c.must(alice, "/chat/group/edit",
		`{"chat_id":`+quote(group)+`,"remove_member_ids":[`+quote(carol.ID)+`],"ban_agent_ids":[`+quote(dave.ID)+`]}`)
	check(carol, "after being removed", group, sees{false, false, true})
	check(dave, "after being banned", group, sees{false, false, true})

	c.must(alice, "/chat/group/edit", `{"chat_id":`+quote(group)+`,"add_member_ids":[`+quote(frank.ID)+`]}`)
	check(frank, "newly added", group, sees{true, false, true})
	history, err := frank.ListGroupMessagesWithResponse(t.Context(), client.ListGroupMessagesRequest{ChatID: group})
	if err != nil || history.JSON200 == nil || history.JSON200.Total != 1 || len(history.JSON200.Messages) != 1 {
		t.Errorf("a new member reads the history: %v %s", err, history.Body)
	}
	c.must(alice, "/chat/group/send", `{"chat_id":`+quote(group)+`,"content":"it burns again"}`)
	check(frank, "a message after joining", group, sees{true, true, true})
	c.must(alice, "/chat/group/delete", `{"chat_id":`+quote(group)+`}`)
	check(frank, "a deleted group", group, sees{false, false, false})
	check(alice, "a deleted group", group, sees{false, false, false})

	c.must(bob, "/channel/subscribe", `{"channel_id":`+quote(channel)+`}`)
	c.must(carol, "/channel/subscribe", `{"channel_id":`+quote(channel)+`}`)
	c.must(alice, "/channel/send", `{"channel_id":`+quote(channel)+`,"content":"fog"}`)
	check(bob, "a message in the channel", channel, sees{true, true, true})
	c.must(bob, "/channel/unsubscribe", `{"channel_id":`+quote(channel)+`}`)
	check(bob, "after unsubscribing", channel, sees{false, false, true})
	c.must(bob, "/channel/subscribe", `{"channel_id":`+quote(channel)+`}`)
	check(bob, "subscribed again", channel, sees{true, false, true})
	check(carol, "still subscribed", channel, sees{true, true, true})
	c.must(alice, "/channel/delete", `{"channel_id":`+quote(channel)+`}`)
	check(carol, "a deleted channel", channel, sees{false, false, false})
}
