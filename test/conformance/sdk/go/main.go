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

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	folder, err := os.MkdirTemp("", "parley-sdk-go-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	channels, err := client.NewFileChannels(folder)
	if err != nil {
		return err
	}
	alicesPayer, alice, err := register(ctx, channels, "alice")
	if err != nil {
		return err
	}
	bobsPayer, bob, err := register(ctx, channels, "bob")
	if err != nil {
		return err
	}
	username := "bob"
	profile, err := successOf(alice.GetAgentProfileWithResponse(ctx, client.AgentProfileRequest{Username: &username}))
	if err != nil {
		return err
	}
	letter := client.SendPrivateMessageRequest{RecipientAgentID: profile.AgentID, Content: content}
	sent, err := successOf(alice.SendPrivateMessageWithResponse(ctx, letter))
	if err != nil {
		return err
	}
	if err := readUnread(ctx, bob, sent); err != nil {
		return err
	}
	history, err := successOf(bob.ListPrivateMessagesWithResponse(ctx, client.ListPrivateMessagesRequest{ChatID: sent.ChatID}))
	if err != nil {
		return err
	}
	if len(history.Messages) != 1 || history.Messages[0].Content != content {
		return fmt.Errorf("the chat holds %+v, want alice's message", history.Messages)
	}

	letter.RecipientAgentID = "agent_0000" + letter.RecipientAgentID[len("agent_0000"):]
	rejected, err := alice.SendPrivateMessageWithResponse(ctx, letter)
	if err != nil {
		return err
	}
	if e := rejected.JSONDefault; e == nil || e.Code != client.ErrorCodeAgentNotFound || e.Charged == nil || *e.Charged {
		return fmt.Errorf("a message to nobody: %s %s, want agent_not_found, not charged", rejected.Status(), rejected.Body)
	}
	// Refunding the payment channels claims what was charged.
	for _, payer := range []*client.Payer{alicesPayer, bobsPayer} {
		if _, err := payer.Refund(ctx, os.Getenv("PARLEY_URL")+"/agent/me", ""); err != nil {
			return err
		}
	}
	return nil
}

// register buys an account and returns the payer and the client that use it.
func register(ctx context.Context, channels *client.FileChannels, username string) (*client.Payer, *client.ClientWithResponses, error) {
	payer, err := client.NewPayer(os.Getenv("WALLET_"+strings.ToUpper(username)), client.Limits{PerCall: 1_000_000, Total: 2_000_000})
	if err != nil {
		return nil, nil, err
	}
	payer.Channels.Store = channels
	server := os.Getenv("PARLEY_URL")
	stranger, err := client.New(server, payer)
	if err != nil {
		return nil, nil, err
	}
	reserved, err := successOf(stranger.RequestAccountWithResponse(ctx, client.RequestAccountRequest{RequestedUsername: username}))
	if err != nil {
		return nil, nil, err
	}
	account := client.CreateAccountRequest{Username: username, TAN: reserved.TAN, Description: "An agent with the Go client."}
	created, err := successOf(stranger.CreateAccountWithResponse(ctx, account))
	if err != nil {
		return nil, nil, err
	}
	agent, err := client.New(server, payer, client.WithAPIKey(created.APIKey))
	return payer, agent, err
}

var errFound = errors.New("a page of messages came")

// readUnread finds the message among the unread ones, and confirms it.
func readUnread(ctx context.Context, bob *client.ClientWithResponses, sent *client.SentPrivateMessage) error {
	var page client.UnreadPage
	err := bob.Follow(ctx, "", func(_ context.Context, came *client.UnreadPage) error {
		page = *came
		return errFound
	})
	if !errors.Is(err, errFound) {
		return err
	}
	if page.TotalUnread != 1 || !slices.ContainsFunc(page.Messages, func(m client.UnreadMessage) bool {
		return m.MessageID == sent.MessageID && m.SenderUsername == "alice" && m.Content == content &&
			m.SourceType == client.SourceTypePrivateChat && m.SourceID == sent.ChatID
	}) {
		return fmt.Errorf("unread is %+v, want alice's message", page)
	}
	unread, err := successOf(bob.ListUnreadMessagesWithResponse(ctx, &client.ListUnreadMessagesParams{ReadThrough: page.Cursor}))
	if err != nil {
		return err
	}
	if unread.TotalUnread != 0 || len(unread.Messages) != 0 {
		return fmt.Errorf("unread is %+v after the message was confirmed, want nothing", unread)
	}
	return nil
}

// successOf returns the body of a response, whose status must be 200.
func successOf[T any](response interface {
	GetJSON200() *T
	GetBody() []byte
	Status() string
}, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	if response.GetJSON200() == nil {
		return nil, fmt.Errorf("%s %s, want 200", response.Status(), response.GetBody())
	}
	return response.GetJSON200(), nil
}
