package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"text/tabwriter"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/devnet"
	"github.com/parley-chat/parley/x402"
)

// demo is the journey of two agents, with real signatures and play money.
type demo struct{}

func (demo) Run(ctx context.Context, to console) (err error) {
	folder, err := os.MkdirTemp("", "parley-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	// As root PostgreSQL runs as another user, who must be able to pass.
	if err := os.Chmod(folder, 0o755); err != nil {
		return err
	}
	world, err := startWorld(ctx, worldOptions{
		listen: "127.0.0.1:0", facilitatorListen: "127.0.0.1:0", data: folder, volatile: true, progress: to.err, log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.close()) }()
	return (&journey{world: world, table: tabwriter.NewWriter(to.out, 0, 0, 2, ' ', 0)}).run(ctx, to.out)
}

// journey is what the demo does and what it costs.
type journey struct {
	world   *world
	table   *tabwriter.Writer
	charged uint64 // what the payers' side says, in atomic units
}

func (j *journey) run(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "Parley at %s, paid on a play-money network at %s\n\n", j.world.url, j.world.facilitatorURL)
	fmt.Fprintln(j.table, "AGENT\tCALL\tSTATUS\tCHARGED USD\tANSWER")
	failed := j.travel(ctx)
	balance := j.world.ledger.Balance(devnet.Payee)
	fmt.Fprintf(j.table, "\tcharged in all\t\t%s\t\n", x402.FormatUSD(j.charged))
	fmt.Fprintf(j.table, "\tpayee's balance on the ledger\t\t%s\t\n", x402.FormatUSD(balance))
	if err := errors.Join(failed, j.table.Flush()); err != nil {
		return err
	}
	if balance != j.charged {
		return errors.New("the ledger does not hold exactly what was charged")
	}
	_, err := fmt.Fprintln(out, "\nEvery call that answered 200 was charged its price. Nothing else was charged.")
	return err
}

// travel makes the calls. An answer other than the expected one ends it.
func (j *journey) travel(ctx context.Context) error {
	accounts := devnet.Accounts()
	alice, err := j.agent("alice", accounts[0].PrivateKey)
	if err != nil {
		return err
	}
	bob, err := j.agent("bob", accounts[1].PrivateKey)
	if err != nil {
		return err
	}
	for _, agent := range []*traveller{alice, bob} {
		if err := agent.register(ctx); err != nil {
			return err
		}
	}
	taken, err := bob.RequestAccountWithResponse(ctx, client.RequestAccountRequest{RequestedUsername: "alice"})
	if err := expect(err, taken.JSON409 != nil, "a taken username is refused"); err != nil {
		return err
	}
	edited, err := bob.EditAgentWithResponse(ctx, client.EditAgentRequest{Description: new("I forecast the weather.")})
	if err := expect(err, edited.JSON200 != nil, "bob edits his profile"); err != nil {
		return err
	}
	profile, err := alice.GetAgentProfileWithResponse(ctx, client.AgentProfileRequest{Username: new("bob")})
	if err := expect(err, profile.JSON200 != nil, "alice looks bob up"); err != nil {
		return err
	}
	sent, err := alice.SendPrivateMessageWithResponse(ctx, client.SendPrivateMessageRequest{
		RecipientAgentID: profile.JSON200.AgentID, Content: "Will it rain in Lisbon tomorrow?"})
	if err := expect(err, sent.JSON200 != nil, "alice sends a message"); err != nil {
		return err
	}
	chat := sent.JSON200.ChatID
	read, err := bob.ListPrivateMessagesWithResponse(ctx, client.ListPrivateMessagesRequest{ChatID: chat})
	if err := expect(err, read.JSON200 != nil && len(read.JSON200.Messages) == 1, "bob reads the message"); err != nil {
		return err
	}
	replied, err := bob.SendPrivateMessageWithResponse(ctx, client.SendPrivateMessageRequest{
		RecipientAgentID: read.JSON200.Messages[0].SenderID, Content: "No: sun, 24 degrees."})
	if err := expect(err, replied.JSON200 != nil && replied.JSON200.ChatID == chat, "bob replies in the same chat"); err != nil {
		return err
	}
	info, err := alice.GetPrivateChatWithResponse(ctx, client.PrivateChatRequest{ChatID: chat})
	if err := expect(err, info.JSON200 != nil && info.JSON200.MessageCount == 2, "the chat holds two messages"); err != nil {
		return err
	}
	me, err := alice.GetOwnAgentWithResponse(ctx)
	return expect(err, me.JSON200 != nil && me.JSON200.ChatCount == 1, "alice sees her account")
}

func expect(err error, held bool, what string) error {
	if err == nil && !held {
		err = errors.New("it did not happen")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// traveller is an agent with a wallet; the journey watches its calls.
type traveller struct {
	*client.ClientWithResponses
	name string
	key  string
}

func (j *journey) agent(name, privateKey string) (*traveller, error) {
	payer, err := client.NewPayer(privateKey, client.Limits{PerCall: 1_000_000, Total: 5_000_000})
	if err != nil {
		return nil, err
	}
	agent := &traveller{name: name}
	watched := &http.Client{Transport: &witness{journey: j, name: name, payer: payer}}
	agent.ClientWithResponses, err = client.NewClientWithResponses(j.world.url, client.WithHTTPClient(watched),
		client.WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
			if agent.key != "" {
				request.Header.Set("X-API-KEY", agent.key)
			}
			return nil
		}))
	return agent, err
}

func (t *traveller) register(ctx context.Context) error {
	requested, err := t.RequestAccountWithResponse(ctx, client.RequestAccountRequest{RequestedUsername: t.name})
	if err := expect(err, requested.JSON200 != nil && requested.JSON200.TAN != nil, t.name+" requests an account"); err != nil {
		return err
	}
	created, err := t.CreateAccountWithResponse(ctx, client.CreateAccountRequest{Username: t.name, TAN: *requested.JSON200.TAN, Description: "An agent of the demo."})
	if err := expect(err, created.JSON200 != nil && created.JSON200.APIKey != nil, t.name+" creates an account"); err != nil {
		return err
	}
	t.key = *created.JSON200.APIKey
	return nil
}

// witness writes a line for each call and counts what its wallet paid.
type witness struct {
	journey *journey
	name    string
	payer   *client.Payer
}

func (w *witness) RoundTrip(request *http.Request) (*http.Response, error) {
	before := w.payer.Spent()
	response, err := w.payer.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	var answer struct {
		Message, Username string
		Total             *int64
		MessageCount      *int64 `json:"message_count"`
	}
	_ = json.Unmarshal(body, &answer)
	text := answer.Message
	switch {
	case answer.Total != nil:
		text = fmt.Sprintf("messages in the chat: %d", *answer.Total)
	case answer.MessageCount != nil:
		text = fmt.Sprintf("messages in the chat: %d", *answer.MessageCount)
	case text == "":
		text = "username: " + answer.Username
	}
	paid := w.payer.Spent() - before
	w.journey.charged += paid
	fmt.Fprintf(w.journey.table, "%s\t%s %s\t%d\t%s\t%s\n", w.name, request.Method, request.URL.Path, response.StatusCode, x402.FormatUSD(paid), text)
	return response, nil
}
