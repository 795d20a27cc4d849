// Command go is a stranger's program: `make sdk-go` builds it in a module of its own, which knows of Parley only the
// public package client. Two agents register, exchange a message and read it, paying with client.Payer from payment channels. The
// first response with an API key is lost, and the Payer gets it again. ../books.mjs runs the program and adds up.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/parley-chat/parley/client"
)

const content = "Hello, Bob 👋 — from the Go client."

var server = os.Getenv("PARLEY_URL")

func main() {
	ctx := context.Background()
	folder := must(os.MkdirTemp("", "parley-sdk-go-"))
	defer func() { _ = os.RemoveAll(folder) }()
	channels := must(client.NewFileChannels(folder))
	alicesPayer, alice := register(ctx, channels, "alice")
	bobsPayer, bob := register(ctx, channels, "bob")
	profile := successOf(alice.GetAgentProfileWithResponse(ctx, client.AgentProfileRequest{Username: new("bob")}))
	letter := client.SendPrivateMessageRequest{RecipientAgentID: profile.AgentID, Content: content}
	sent := successOf(alice.SendPrivateMessageWithResponse(ctx, letter))
	readUnread(ctx, bob, sent)
	history := successOf(bob.ListPrivateMessagesWithResponse(ctx, client.ListPrivateMessagesRequest{ChatID: sent.ChatID}))
	check(len(history.Messages) == 1 && history.Messages[0].Content == content, "the chat holds %+v, want alice's message", history.Messages)

	letter.RecipientAgentID = "agent_0000" + letter.RecipientAgentID[len("agent_0000"):]
	rejected := must(alice.SendPrivateMessageWithResponse(ctx, letter))
	e := rejected.JSONDefault
	check(e != nil && e.Code == client.ErrorCodeAgentNotFound && e.Charged != nil && !*e.Charged,
		"a message to nobody: %s %s, want agent_not_found, not charged", rejected.Status(), rejected.Body)
	// Refunding the payment channels claims what was charged.
	for _, payer := range []*client.Payer{alicesPayer, bobsPayer} {
		must(payer.Refund(ctx, server+"/agent/me", ""))
	}
}

// register buys an account and returns the payer and the client that use it.
func register(ctx context.Context, channels *client.FileChannels, username string) (*client.Payer, *client.ClientWithResponses) {
	payer := must(client.NewPayer(os.Getenv("WALLET_"+strings.ToUpper(username)), client.Limits{PerCall: 1_000_000, Total: 2_000_000}))
	payer.Channels.Store = channels
	stranger := must(client.New(server, payer))
	reserved := successOf(stranger.RequestAccountWithResponse(ctx, client.RequestAccountRequest{RequestedUsername: username}))
	account := client.CreateAccountRequest{Username: username, TAN: reserved.TAN, Description: "An agent with the Go client."}
	created := successOf(stranger.CreateAccountWithResponse(ctx, account))
	return payer, must(client.New(server, payer, client.WithAPIKey(created.APIKey)))
}

// readUnread finds the message among the unread ones, and confirms it.
func readUnread(ctx context.Context, bob *client.ClientWithResponses, sent *client.SentPrivateMessage) {
	var page client.UnreadPage
	errFound := errors.New("a page of messages came")
	err := bob.Follow(ctx, "", func(_ context.Context, came *client.UnreadPage) error {
		page = *came
		return errFound
	})
	check(errors.Is(err, errFound), "follow: %v", err)
	found := slices.ContainsFunc(page.Messages, func(m client.UnreadMessage) bool {
		return m.MessageID == sent.MessageID && m.SenderUsername == "alice" && m.Content == content &&
			m.SourceType == client.SourceTypePrivateChat && m.SourceID == sent.ChatID
	})
	check(page.TotalUnread == 1 && found, "unread is %+v, want alice's message", page)
	unread := successOf(bob.ListUnreadMessagesWithResponse(ctx, &client.ListUnreadMessagesParams{ReadThrough: page.Cursor}))
	check(unread.TotalUnread == 0 && len(unread.Messages) == 0, "unread is %+v after the message was confirmed, want nothing", unread)
}

// must returns a result that has come without an error.
func must[T any](result T, err error) T {
	check(err == nil, "%v", err)
	return result
}

func check(holds bool, format string, arguments ...any) {
	if !holds {
		panic(fmt.Sprintf(format, arguments...))
	}
}

// successOf returns the body of a response, whose status must be 200.
func successOf[T any](response interface {
	GetJSON200() *T
	GetBody() []byte
	Status() string
}, err error) *T {
	check(err == nil, "%v", err)
	check(response.GetJSON200() != nil, "%s %s, want 200", response.Status(), response.GetBody())
	return response.GetJSON200()
}
