// Command go is a stranger's program: `make sdk-go` builds it in a module of its own, which knows of Parley only the
// public package client. Two agents register, exchange a message and read it, paying with client.Payer from payment channels. The
// first response with an API key is lost, and the Payer gets it again. At the end the payment channels are refunded.
//
//	go run ./test/conformance/live bin/parley go run ./test/conformance/sdk/go
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	books, err := openBooks(ctx, folder)
	if err != nil {
		return err
	}
	var wallets []struct {
		PrivateKey string `json:"private_key"`
	}
	if err := get(ctx, os.Getenv("PARLEY_FACILITATOR")+"/accounts", &wallets); err != nil {
		return err
	}
	if len(wallets) < 2 {
		return errors.New("the network has no two wallets")
	}
	alice, err := register(ctx, books, wallets[0].PrivateKey, "alice")
	if err != nil {
		return err
	}
	bob, err := register(ctx, books, wallets[1].PrivateKey, "bob")
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
	return books.close(ctx)
}

// register buys an account and returns the client that uses it.
func register(ctx context.Context, books *books, privateKey, username string) (*client.ClientWithResponses, error) {
	payer, err := client.NewPayer(privateKey, client.Limits{PerCall: 1_000_000, Total: 2_000_000})
	if err != nil {
		return nil, err
	}
	payer.Base, payer.Channels.Store = books, books.channels
	books.payers = append(books.payers, payer)
	server := os.Getenv("PARLEY_URL")
	stranger, err := client.New(server, payer)
	if err != nil {
		return nil, err
	}
	reserved, err := successOf(stranger.RequestAccountWithResponse(ctx, client.RequestAccountRequest{RequestedUsername: username}))
	if err != nil {
		return nil, err
	}
	account := client.CreateAccountRequest{Username: username, TAN: reserved.TAN, Description: "An agent with the Go client."}
	created, err := successOf(stranger.CreateAccountWithResponse(ctx, account))
	if err != nil {
		return nil, err
	}
	return client.New(server, payer, client.WithAPIKey(created.APIKey))
}

// readUnread finds the message among the unread ones, once.
func readUnread(ctx context.Context, bob *client.ClientWithResponses, sent *client.SentPrivateMessage) error {
	size, mark := int64(10), true
	unread, err := successOf(bob.ListUnreadMessagesWithResponse(ctx, &client.ListUnreadMessagesParams{PageSize: &size, MarkRead: &mark}))
	if err != nil {
		return err
	}
	if unread.TotalUnread != 1 || !slices.ContainsFunc(unread.Messages, func(m client.UnreadMessage) bool {
		return m.MessageID == sent.MessageID && m.SenderUsername == "alice" && m.Content == content &&
			m.SourceType == client.SourceTypePrivateChat && m.SourceID == sent.ChatID
	}) {
		return fmt.Errorf("unread is %+v, want alice's message", unread)
	}
	unread, err = successOf(bob.ListUnreadMessagesWithResponse(ctx, nil))
	if err != nil {
		return err
	}
	if unread.TotalUnread != 0 || len(unread.Messages) != 0 {
		return fmt.Errorf("unread is %+v after reading, want nothing", unread)
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

// books carries the requests of the payers and adds up what the served contract asks for each 200.
type books struct {
	prices map[string]uint64 // by method and path, in atomic units: nothing here repeats them
	sum    uint64
	before uint64
	lost   int // responses with an API key

	channels *client.FileChannels
	payers   []*client.Payer
}

func openBooks(ctx context.Context, folder string) (*books, error) {
	var contract struct {
		Paths map[string]map[string]struct {
			PaymentInfo struct {
				Protocols []struct {
					X402 struct {
						Amount uint64 `json:"amount,string"`
					} `json:"x402"`
				} `json:"protocols"`
			} `json:"x-payment-info"`
		} `json:"paths"`
	}
	if err := get(ctx, os.Getenv("PARLEY_URL")+"/openapi.json", &contract); err != nil {
		return nil, err
	}
	b := &books{prices: map[string]uint64{}}
	for path, methods := range contract.Paths {
		for method, operation := range methods {
			for _, protocol := range operation.PaymentInfo.Protocols {
				b.prices[method+" "+path] = protocol.X402.Amount
			}
		}
	}
	var err error
	if b.channels, err = client.NewFileChannels(folder); err != nil {
		return nil, err
	}
	b.before, err = received(ctx)
	return b, err
}

// close refunds the payment channels, which claims what was charged, and compares the sums.
func (b *books) close(ctx context.Context) error {
	var spent uint64
	for _, payer := range b.payers {
		if _, err := payer.Refund(ctx, os.Getenv("PARLEY_URL")+"/agent/me", ""); err != nil {
			return err
		}
		spent += payer.Spent()
	}
	after, err := received(ctx)
	if err != nil {
		return err
	}
	if b.lost != 1 {
		return fmt.Errorf("%d responses with an API key were lost, want 1", b.lost)
	}
	if b.sum == 0 || after-b.before != b.sum || spent != b.sum {
		return fmt.Errorf("the payee claimed %d, the payers spent %d, want %d, the sum of the prices", after-b.before, spent, b.sum)
	}
	fmt.Printf("client: two agents, a lost API key back, a message read, a refusal; "+
		"the payee claimed %d atomic units, exactly the prices\n", b.sum)
	return nil
}

func (b *books) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	if b.lost == 0 && request.URL.Path == "/register/create_account" {
		b.lost++
		return nil, errors.Join(errors.New("the response was lost"), response.Body.Close())
	}
	price, ok := b.prices[strings.ToLower(request.Method)+" "+request.URL.Path]
	if !ok {
		return nil, errors.Join(fmt.Errorf("the contract has no price for %s", request.URL.Path), response.Body.Close())
	}
	b.sum += price
	return response, nil
}

// received is what the payee has, and what it claimed from payment channels and was not paid out.
func received(ctx context.Context) (uint64, error) {
	var account struct {
		Balance   uint64 `json:"balance,string"`
		Unsettled uint64 `json:"unsettled,string"`
	}
	err := get(ctx, os.Getenv("PARLEY_FACILITATOR")+"/balances/"+os.Getenv("PARLEY_PAY_TO"), &account)
	return account.Balance + account.Unsettled, err
}

func get(ctx context.Context, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}
