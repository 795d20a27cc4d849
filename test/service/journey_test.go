package service

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestTwoAgentsExchangeAMessage is the whole journey: every call paid, every reply as the contract says, and the
// payee's balance the exact sum of the prices.
func TestTwoAgentsExchangeAMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	alice, bob := w.agent("alice"), w.agent("bob_2")
	if got, want := w.Revenue(), uint64(2*(10_000+990_000+1_000)); got != want {
		t.Fatalf("two accounts and two looks at them brought %d, want %d", got, want)
	}

	edited, err := bob.EditAgentWithResponse(ctx, client.EditAgentRequest{Description: new("I know every museum."),
		IsDiscoverable: new(false)})
	if err != nil || edited.JSON200 == nil || !edited.JSON200.Success {
		t.Fatalf("bob edits his profile: %v %s", err, edited.Body)
	}
	for name, request := range map[string]client.AgentProfileRequest{
		"by username": {Username: new("bob_2")}, "by id": {AgentID: &bob.ID}, "by both": {AgentID: &bob.ID, Username: new("bob_2")},
	} {
		profile, err := alice.GetAgentProfileWithResponse(ctx, request)
		testkit.Require200(t, "alice looks bob up "+name, profile, err)
		want := &client.AgentProfile{AgentID: bob.ID, Username: "bob_2", Description: new("I know every museum."), IsDiscoverable: false,
			Message: "profile found"}
		if diff := cmp.Diff(want, profile.JSON200, cmpopts.IgnoreFields(client.AgentProfile{}, "CreatedAt")); diff != "" {
			t.Errorf("bob %s (-want +got):\n%s", name, diff)
		}
	}
	disagreeing, err := alice.GetAgentProfileWithResponse(ctx, client.AgentProfileRequest{AgentID: &bob.ID, Username: new("alice")})
	if err != nil || disagreeing.JSONDefault == nil || disagreeing.JSONDefault.Code != client.ErrorCodeAgentNotFound {
		t.Errorf("an id and a username that disagree: %v %s, want 404 agent_not_found", err, disagreeing.Body)
	}

	chat, first := alice.send(bob, "Will it rain in Lisbon tomorrow? 🌧️ <b>&amp;</b>  ")
	again, second := bob.send(alice, "No: sun, 24 degrees.")
	if again != chat {
		t.Errorf("the reply went into chat %s, want %s", again, chat)
	}
	read, err := bob.ListPrivateMessagesWithResponse(ctx, client.ListPrivateMessagesRequest{ChatID: chat})
	testkit.Require200(t, "bob reads", read, err)
	want := &client.MessagePage{Total: 2, Page: 1, Messages: []client.Message{
		{MessageID: second, SenderID: bob.ID, SenderUsername: "bob_2", Content: "No: sun, 24 degrees.", ContentType: "text/plain",
			Reactions: []client.Reaction{}, ReactionCounts: map[string]int64{}},
		{MessageID: first, SenderID: alice.ID, SenderUsername: "alice", Content: "Will it rain in Lisbon tomorrow? 🌧️ <b>&amp;</b>  ",
			ContentType: "text/plain", Reactions: []client.Reaction{}, ReactionCounts: map[string]int64{}},
	}}
	if diff := cmp.Diff(want, read.JSON200, cmpopts.IgnoreFields(client.Message{}, "CreatedAt")); diff != "" {
		t.Errorf("the chat's messages (-want +got):\n%s", diff)
	}
	info, err := alice.GetPrivateChatWithResponse(ctx, client.PrivateChatRequest{ChatID: chat})
	if err != nil || info.JSON200 == nil || info.JSON200.MessageCount != 2 || len(info.JSON200.Members) != 2 ||
		info.JSON200.LastMessageAt == nil {
		t.Fatalf("the chat's info: %v %s", err, info.Body)
	}
	if *info.JSON200.LastMessageAt != read.JSON200.Messages[0].CreatedAt {
		t.Errorf("the last message was at %v, the chat says %v", read.JSON200.Messages[0].CreatedAt, *info.JSON200.LastMessageAt)
	}
	me, err := alice.GetOwnAgentWithResponse(ctx)
	testkit.Require200(t, "alice sees herself", me, err)
	wantMe := &client.OwnAgent{AgentID: alice.ID, Username: "alice", Description: "I am alice.", IsDiscoverable: true, ChatCount: 1,
		ChatIds:              []string{chat},
		SubscribedChannelIds: []string{}, AdministeredChannelIds: []string{}, BlockedAgentIds: []string{}}
	if diff := cmp.Diff(wantMe, me.JSON200, cmpopts.IgnoreFields(client.OwnAgent{}, "CreatedAt")); diff != "" {
		t.Errorf("alice's own view (-want +got):\n%s", diff)
	}
	// Two looks at oneself came with the registration.
	if got, want := w.Revenue(), uint64(2*(10_000+990_000+1_000)+2_000+3*1_000+2*5_000+1_000+1_000+1_000); got != want {
		t.Errorf("the journey brought %d, want %d", got, want)
	}
}

func TestMessagePagesAreRanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, bob := w.agent("alice"), w.agent("bob")
	var chat string
	ids := make([]string, 8) // by number; 0 is unused
	for number := 1; number < len(ids); number++ {
		sender, recipient := alice, bob
		if number%3 == 0 {
			sender, recipient = bob, alice
		}
		chat, ids[number] = sender.send(recipient, fmt.Sprintf("the message with number %d", number))
	}
	for _, test := range []struct {
		name    string
		n, page int64
		before  int // number, 0: none
		want    []int
	}{
		{"the newest three", 3, 1, 0, []int{7, 6, 5}},
		{"the next three", 3, 2, 0, []int{4, 3, 2}},
		{"the last page is short", 3, 3, 0, []int{1}},
		{"beyond the end", 3, 4, 0, nil},
		{"far beyond the end", 250, 9007199254740991, 0, nil},
		{"exactly to the end", 7, 1, 0, []int{7, 6, 5, 4, 3, 2, 1}},
		{"after exactly the end", 7, 2, 0, nil},
		{"before a message", 2, 1, 5, []int{4, 3}},
		{"second page before a message", 2, 2, 5, []int{2, 1}},
		{"before the first", 2, 1, 1, nil},
	} {
		request := client.ListPrivateMessagesRequest{ChatID: chat, N: &test.n, Page: &test.page}
		if test.before > 0 {
			request.BeforeMessageID = &ids[test.before]
		}
		read, err := bob.ListPrivateMessagesWithResponse(t.Context(), request)
		if err != nil || read.JSON200 == nil {
			t.Errorf("%s: %v %s", test.name, err, read.Body)
			continue
		}
		var want, got []string
		for _, number := range test.want {
			want = append(want, ids[number])
		}
		for _, message := range read.JSON200.Messages {
			got = append(got, message.MessageID)
		}
		if diff := cmp.Diff(want, got); diff != "" || read.JSON200.Total != 7 || read.JSON200.Page != test.page {
			t.Errorf("%s: total %d, page %d, messages (-want +got):\n%s", test.name, read.JSON200.Total, read.JSON200.Page, diff)
		}
	}
	carol := w.agent("carol")
	_, elsewhere := carol.send(bob, "in another chat")
	strange, err := bob.ListPrivateMessagesWithResponse(t.Context(), client.ListPrivateMessagesRequest{ChatID: chat,
		BeforeMessageID: &elsewhere})
	if err != nil || strange.JSONDefault == nil || strange.JSONDefault.Code != client.ErrorCodeMessageNotFound {
		t.Errorf("an anchor of another chat: %v %s, want 404 message_not_found", err, strange.Body)
	}
}
