package development

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/x402"
)

func expect(err error, held bool, what string) error {
	if err == nil && !held {
		err = errors.New("unexpected response")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// traveller is an agent with a wallet.
type traveller struct {
	*client.ClientWithResponses
	name, id, key string
}

func (j *journey) agent(name, privateKey string) (*traveller, error) {
	payer, err := client.NewPayer(privateKey, client.Limits{PerCall: 1_000_000, Total: 5_000_000})
	if err != nil {
		return nil, err
	}
	// The state ends with the play money. A deposit pays for more than one call may cost.
	payer.Channels.Store, payer.Channels.MaxDeposit = &client.MemoryChannels{}, 2_000_000
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
	if err := expect(err, requested.JSON200 != nil, t.name+" requests an account"); err != nil {
		return err
	}
	created, err := t.CreateAccountWithResponse(ctx,
		client.CreateAccountRequest{Username: t.name, TAN: requested.JSON200.TAN, Description: "An agent of the demo."})
	if err := expect(err, created.JSON200 != nil, t.name+" creates an account"); err != nil {
		return err
	}
	t.key = created.JSON200.APIKey
	me, err := t.GetOwnAgentWithResponse(ctx)
	if err := expect(err, me.JSON200 != nil, t.name+" sees its account"); err != nil {
		return err
	}
	t.id = me.JSON200.AgentID
	return nil
}

// witness is an HTTP transport that prints a line for each call and counts what its wallet pays.
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
	paid := w.payer.Spent() - before
	w.journey.charged += paid
	if paid > 0 {
		w.journey.calls++
	}
	fmt.Fprintf(w.journey.table, "%s\t%s %s\t%d\t%s\t%s\n", w.name, request.Method, request.URL.Path, response.StatusCode,
		x402.FormatUSD(paid), summary(body))
	return response, nil
}

// summary describes a response in a few words.
func summary(raw []byte) string {
	var body struct {
		Message, Username, Name string
		Count, Total            *int64
		MessageCount            *int64 `json:"message_count"`
		TotalUnread             *int64 `json:"total_unread"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return ""
	}
	switch {
	case body.Message != "":
		return body.Message
	case body.Name != "":
		return body.Name
	case body.Username != "":
		return "account of " + body.Username
	}
	for _, number := range []struct {
		what string
		n    *int64
	}{{"found", body.Count}, {"messages", body.Total}, {"messages", body.MessageCount}, {"unread", body.TotalUnread}} {
		if number.n != nil {
			return fmt.Sprintf("%s: %d", number.what, *number.n)
		}
	}
	return ""
}
