package development

import (
	"context"
	"net/http"

	"github.com/parley-chat/parley/client"
)

func account(ctx context.Context, alice, bob, _ *traveller) error {
	taken, err := bob.RequestAccountWithResponse(ctx, client.RequestAccountRequest{RequestedUsername: "alice"})
	if err := expect(err, taken.StatusCode() == http.StatusConflict, "a taken username is refused"); err != nil {
		return err
	}
	edited, err := bob.EditAgentWithResponse(ctx, client.EditAgentRequest{Description: new("I forecast the weather in Lisbon.")})
	if err := expect(err, edited.JSON200 != nil, "bob edits his profile"); err != nil {
		return err
	}
	profile, err := alice.GetAgentProfileWithResponse(ctx, client.AgentProfileRequest{Username: new("bob")})
	if err := expect(err, profile.JSON200 != nil && profile.JSON200.AgentID == bob.id, "alice looks bob up"); err != nil {
		return err
	}
	blocked, err := alice.BlockAgentWithResponse(ctx, client.BlockAgentRequest{AgentID: bob.id})
	if err := expect(err, blocked.JSON200 != nil, "alice blocks bob"); err != nil {
		return err
	}
	refused, err := bob.SendPrivateMessageWithResponse(ctx, client.SendPrivateMessageRequest{RecipientAgentID: alice.id, Content: "Hello?"})
	if err := expect(err, refused.StatusCode() == http.StatusForbidden, "bob may not write to alice"); err != nil {
		return err
	}
	unblocked, err := alice.UnblockAgentWithResponse(ctx, client.UnblockAgentRequest{AgentID: bob.id})
	if err := expect(err, unblocked.JSON200 != nil, "alice unblocks bob"); err != nil {
		return err
	}
	rotated, err := alice.RotateKeyWithResponse(ctx, client.RotateKeyRequest{})
	if err := expect(err, rotated.JSON200 != nil, "alice replaces her key"); err != nil {
		return err
	}
	alice.key = rotated.JSON200.APIKey
	return nil
}

func search(ctx context.Context, alice, bob, _ *traveller) error {
	found, err := alice.SearchAgentsWithResponse(ctx, client.SearchAgentsRequest{Query: "weather lisbon"})
	return expect(err, found.JSON200 != nil && found.JSON200.Count == 1 && found.JSON200.Agents[0].AgentID == bob.id, "alice finds bob")
}

func privateChat(ctx context.Context, alice, bob, _ *traveller) error {
	sent, err := alice.SendPrivateMessageWithResponse(ctx,
		client.SendPrivateMessageRequest{RecipientAgentID: bob.id, Content: "Will it rain in Lisbon tomorrow?"})
	if err := expect(err, sent.JSON200 != nil, "alice sends a message"); err != nil {
		return err
	}
	chat := sent.JSON200.ChatID
	unread, err := bob.ListUnreadMessagesWithResponse(ctx, nil)
	if err := expect(err, unread.JSON200 != nil && unread.JSON200.TotalUnread == 1 && unread.JSON200.Messages[0].SourceID == chat,
		"bob polls and finds it"); err != nil {
		return err
	}
	replied, err := bob.SendPrivateMessageWithResponse(ctx,
		client.SendPrivateMessageRequest{RecipientAgentID: alice.id, Content: "No: sun, 24 degrees."})
	if err := expect(err, replied.JSON200 != nil && replied.JSON200.ChatID == chat, "bob replies in the same chat"); err != nil {
		return err
	}
	read, err := alice.ListPrivateMessagesWithResponse(ctx, client.ListPrivateMessagesRequest{ChatID: chat})
	if err := expect(err, read.JSON200 != nil && read.JSON200.Total == 2, "alice reads the chat"); err != nil {
		return err
	}
	reacted, err := alice.ReactToMessageWithResponse(ctx, client.ReactToMessageRequest{MessageID: replied.JSON200.MessageID, Emoji: "☀️"})
	if err := expect(err, reacted.JSON200 != nil, "alice reacts"); err != nil {
		return err
	}
	matches, err := bob.SearchPrivateMessagesWithResponse(ctx, client.SearchPrivateMessagesRequest{ChatID: chat, Query: `sun|\d+ degrees`})
	if err := expect(err, matches.JSON200 != nil && matches.JSON200.Count == 1 && matches.JSON200.Messages[0].ReactionCounts["☀️"] == 1,
		"bob searches and sees the reaction"); err != nil {
		return err
	}
	removed, err := alice.RemoveReactionWithResponse(ctx, client.RemoveReactionRequest{MessageID: replied.JSON200.MessageID})
	if err := expect(err, removed.JSON200 != nil, "alice takes the reaction back"); err != nil {
		return err
	}
	info, err := alice.GetPrivateChatWithResponse(ctx, client.PrivateChatRequest{ChatID: chat})
	return expect(err, info.JSON200 != nil && info.JSON200.MessageCount == 2, "the chat holds two messages")
}

func groupChat(ctx context.Context, alice, bob, carol *traveller) error {
	created, err := alice.CreateGroupChatWithResponse(ctx,
		client.CreateGroupChatRequest{Name: "Trip to Lisbon", IsDiscoverable: new(true), InitialMemberIds: []string{bob.id}})
	if err := expect(err, created.JSON200 != nil, "alice creates a group"); err != nil {
		return err
	}
	group := created.JSON200.ChatID
	found, err := carol.SearchGroupsWithResponse(ctx, client.SearchGroupsRequest{Query: "lisbon"})
	if err := expect(err, found.JSON200 != nil && found.JSON200.Count == 1, "carol finds the group"); err != nil {
		return err
	}
	asked, err := carol.RequestGroupAccessWithResponse(ctx, client.RequestGroupAccessRequest{ChatID: group, Message: new("I book trains.")})
	if err := expect(err, asked.JSON200 != nil, "carol asks to join"); err != nil {
		return err
	}
	edited, err := alice.EditGroupChatWithResponse(ctx, client.EditGroupChatRequest{ChatID: group, AddMemberIds: []string{carol.id}})
	if err := expect(err, edited.JSON200 != nil, "alice adds carol"); err != nil {
		return err
	}
	sent, err := carol.SendGroupMessageWithResponse(ctx, client.SendGroupMessageRequest{ChatID: group, Content: "The train leaves at 9."})
	if err := expect(err, sent.JSON200 != nil, "carol writes to the group"); err != nil {
		return err
	}
	pinned, err := alice.PinGroupMessageWithResponse(ctx, client.PinGroupMessageRequest{ChatID: group, MessageID: sent.JSON200.MessageID})
	if err := expect(err, pinned.JSON200 != nil && len(pinned.JSON200.PinnedMessageIds) == 1, "alice pins the message"); err != nil {
		return err
	}
	read, err := bob.ListGroupMessagesWithResponse(ctx, client.ListGroupMessagesRequest{ChatID: group})
	if err := expect(err, read.JSON200 != nil && read.JSON200.Total == 1, "bob reads the group"); err != nil {
		return err
	}
	matches, err := bob.SearchGroupMessagesWithResponse(ctx, client.SearchGroupMessagesRequest{ChatID: group, Query: "train"})
	if err := expect(err, matches.JSON200 != nil && matches.JSON200.Count == 1, "bob searches the group"); err != nil {
		return err
	}
	transferred, err := alice.TransferGroupChatWithResponse(ctx, client.TransferGroupChatRequest{ChatID: group, NewAdminAgentID: bob.id})
	if err := expect(err, transferred.JSON200 != nil, "alice makes bob the admin"); err != nil {
		return err
	}
	left, err := alice.LeaveGroupChatWithResponse(ctx, client.LeaveGroupChatRequest{ChatID: group})
	if err := expect(err, left.JSON200 != nil, "alice leaves"); err != nil {
		return err
	}
	info, err := bob.GetGroupChatWithResponse(ctx, client.GroupChatRequest{ChatID: group})
	if err := expect(err, info.JSON200 != nil && info.JSON200.AdminID == bob.id && info.JSON200.MemberCount == 2,
		"bob is the admin of two members"); err != nil {
		return err
	}
	deleted, err := bob.DeleteGroupChatWithResponse(ctx, client.GroupChatRequest{ChatID: group})
	if err := expect(err, deleted.JSON200 != nil, "bob deletes the group"); err != nil {
		return err
	}
	gone, err := carol.SendGroupMessageWithResponse(ctx, client.SendGroupMessageRequest{ChatID: group, Content: "Anybody?"})
	return expect(err, gone.StatusCode() == http.StatusGone, "the group is gone")
}

func broadcast(ctx context.Context, alice, bob, carol *traveller) error {
	created, err := bob.CreateChannelWithResponse(ctx,
		client.CreateChannelRequest{Name: "Storm warnings", Description: new("For the Atlantic coast.")})
	if err := expect(err, created.JSON200 != nil, "bob creates a channel"); err != nil {
		return err
	}
	channel := created.JSON200.ChannelID
	found, err := alice.SearchChannelsWithResponse(ctx, client.SearchChannelsRequest{Query: "storm"})
	if err := expect(err, found.JSON200 != nil && found.JSON200.Count == 1, "alice finds the channel"); err != nil {
		return err
	}
	for _, subscriber := range []*traveller{alice, carol} {
		subscribed, err := subscriber.SubscribeChannelWithResponse(ctx, client.ChannelRequest{ChannelID: channel})
		if err := expect(err, subscribed.JSON200 != nil, subscriber.name+" subscribes"); err != nil {
			return err
		}
	}
	sent, err := bob.SendChannelMessageWithResponse(ctx,
		client.SendChannelMessageRequest{ChannelID: channel, Content: "11 Bft off Cabo da Roca."})
	if err := expect(err, sent.JSON200 != nil, "bob warns everybody"); err != nil {
		return err
	}
	unread, err := carol.ListUnreadMessagesWithResponse(ctx, nil)
	if err := expect(err, unread.JSON200 != nil && len(unread.JSON200.Messages) > 0 &&
		unread.JSON200.Messages[len(unread.JSON200.Messages)-1].SourceID == channel, "carol polls and is warned"); err != nil {
		return err
	}
	read, err := alice.ListChannelMessagesWithResponse(ctx, client.ListChannelMessagesRequest{ChannelID: channel})
	if err := expect(err, read.JSON200 != nil && read.JSON200.Total == 1, "alice reads the channel"); err != nil {
		return err
	}
	matches, err := alice.SearchChannelMessagesWithResponse(ctx, client.SearchChannelMessagesRequest{ChannelID: channel, Query: "bft"})
	if err := expect(err, matches.JSON200 != nil && matches.JSON200.Count == 1, "alice searches the channel"); err != nil {
		return err
	}
	unsubscribed, err := carol.UnsubscribeChannelWithResponse(ctx, client.ChannelRequest{ChannelID: channel})
	if err := expect(err, unsubscribed.JSON200 != nil, "carol unsubscribes"); err != nil {
		return err
	}
	edited, err := bob.EditChannelWithResponse(ctx, client.EditChannelRequest{ChannelID: channel, BanAgentIds: []string{carol.id}})
	if err := expect(err, edited.JSON200 != nil, "bob bans carol"); err != nil {
		return err
	}
	transferred, err := bob.TransferChannelWithResponse(ctx,
		client.TransferChannelRequest{ChannelID: channel, NewAdminAgentID: alice.id, Message: new("The coast is yours.")})
	if err := expect(err, transferred.JSON200 != nil, "bob hands the channel over"); err != nil {
		return err
	}
	info, err := alice.GetChannelWithResponse(ctx, client.ChannelRequest{ChannelID: channel})
	if err := expect(err, info.JSON200 != nil && *info.JSON200.AdminID == alice.id && info.JSON200.SubscriberCount == 2,
		"alice is the admin"); err != nil {
		return err
	}
	deleted, err := alice.DeleteChannelWithResponse(ctx, client.ChannelRequest{ChannelID: channel})
	if err := expect(err, deleted.JSON200 != nil, "alice deletes the channel"); err != nil {
		return err
	}
	me, err := alice.GetOwnAgentWithResponse(ctx)
	return expect(err, me.JSON200 != nil && me.JSON200.ChatCount == 2 && me.JSON200.SubscribedChannelCount == 0,
		"alice has two chats, one of them with carol who asked to join")
}
