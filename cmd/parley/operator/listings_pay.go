package operator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// pay makes one call with scheme exact for each operation that lapses, the cheapest first, while the money lasts. The audit names the
// wallet before it pays.
func (l *listings) pay(ctx context.Context, database *store.Store, config server.Config, all []*listing) error {
	most, err := console.ParseUSD(l.Most)
	if err != nil || most == 0 || most > x402.MaxChannelAmount {
		return console.Usage(errors.New("--pay needs --pay-most, what it may spend in USD, such as 0.10"))
	}
	payer, err := client.NewPayer(l.Pay.Value, client.Limits{PerCall: most, Total: most})
	if err != nil {
		return console.Usage(errors.New("--pay must be the private key of a wallet, 64 hex digits")) // the error may quote it
	}
	payer.Channels, payer.Networks, payer.Patience = nil, []x402.Network{config.Network}, trialTime
	calls, err := l.ownCalls(ctx, database)
	if err != nil {
		return err
	}
	by, err := accountable{Reason: "keep operations in catalogues", Actor: l.Actor}.operator()
	if err == nil {
		err = database.RecordListings(ctx, by, strings.ToLower(payer.Address()), int64(most)) //nolint:gosec // checked
	}
	if err != nil {
		return err
	}
	byPrice := slices.SortedStableFunc(slices.Values(all), func(a, b *listing) int { return cmp.Compare(a.price, b.price) })
	for _, one := range byPrice {
		call, own := calls[one.path]
		switch {
		case len(one.Faults) > 0 || !one.lapses():
		case !own:
			one.Paid = "not paid: it needs other agents, or leaves something behind"
		case one.price > most-payer.Spent():
			one.Paid = "not paid: beyond --pay-most"
		default:
			one.Paid = l.payFor(ctx, payer, one, call)
		}
	}
	return nil
}

// payFor makes one paid call, and returns what came of it. A call that failed may be paid: the ledger shows it.
func (l *listings) payFor(ctx context.Context, payer *client.Payer, of *listing, call ownCall) string {
	ctx, cancel := context.WithTimeout(ctx, trialTime)
	defer cancel()
	var body []byte
	if call.body != nil {
		body, _ = json.Marshal(call.body) // of strings and booleans
	}
	request, err := http.NewRequestWithContext(ctx, of.method, of.Resource+call.query, bytes.NewReader(body))
	if err != nil {
		return "not paid: " + err.Error()
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "parley-listings")
	if of.path != trialPath {
		request.Header.Set("X-API-KEY", l.APIKey.Value)
	}
	response, err := (&http.Client{Transport: payer}).Do(request)
	if err != nil {
		return "failed: " + err.Error()
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Sprintf("failed: status %d, request id %s", response.StatusCode, response.Header.Get("X-Request-Id"))
	}
	return "paid " + x402.FormatUSD(of.price) + " USD"
}

// ownCall is a call that the operator can make alone.
type ownCall struct {
	query string
	body  map[string]any
}

// ownCalls returns calls by path that change nothing for others. With an account these are its profile and unread messages, searches, and
// its conversations, without marking anything as read.
func (l *listings) ownCalls(ctx context.Context, database *store.Store) (map[string]ownCall, error) {
	calls := map[string]ownCall{trialPath: {body: map[string]any{"requested_username": trialName("listing")}}}
	if l.APIKey.Value == "" {
		return calls, nil
	}
	agent, err := database.AgentByKey(ctx, l.APIKey.Value)
	if errors.Is(err, store.ErrAgentNotFound) {
		return nil, console.Usage(errors.New("--pay-api-key must be the API key of an account of this server"))
	}
	if err != nil {
		return nil, err
	}
	calls["/agent/me"], calls["/agent/unread"] = ownCall{}, ownCall{query: "?mark_read=false"}
	calls["/agent/edit"] = ownCall{body: map[string]any{"is_discoverable": agent.IsDiscoverable}}
	calls["/agent/profile"] = ownCall{body: map[string]any{"agent_id": server.AgentID(agent.ID)}}
	for _, what := range []string{"agents", "groups", "channels"} {
		calls["/search/"+what] = ownCall{body: map[string]any{"query": "parley"}}
	}
	conversations, err := database.AgentConversations(ctx, agent.ID)
	for _, one := range conversations {
		path, field := "/chat/"+one.Kind, "chat_id"
		if one.Kind == store.KindChannel {
			path, field = "/channel", "channel_id"
		}
		id := server.ConversationID(one.Kind, one.ID)
		calls[path+"/info"] = ownCall{body: map[string]any{field: id}}
		calls[path+"/messages"] = ownCall{body: map[string]any{field: id, "mark_read": false, "n": 1}}
		calls[path+"/search"] = ownCall{body: map[string]any{field: id, "query": "parley"}}
	}
	return calls, err
}
