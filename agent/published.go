package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/x402"
)

// Published is what a server says about its payments in its contract.
type Published struct {
	// Facilitator is the URL of the service that settles the payments.
	Facilitator string
	// Networks are those that it takes payments on.
	Networks []string
}

const publishedPatience = 20 * time.Second

// ReadPublished reads the contract that a server publishes. It is free.
func ReadPublished(ctx context.Context, server string) (*Published, error) {
	if err := checkServer(server); err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(server, "/")+"/openapi.json", nil)
	if err != nil {
		return nil, err
	}
	transport := client.NewTransport()
	defer transport.CloseIdleConnections()
	reader := &http.Client{Transport: client.Limited(transport), CheckRedirect: noRedirect, Timeout: publishedPatience}
	response, err := reader.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read the contract of %s: %w", server, errors.Unwrap(err))
	}
	defer response.Body.Close() //nolint:errcheck // read as far as it is needed
	var document struct {
		Payment struct {
			Protocols []struct {
				X402 struct{ Facilitator, Network string }
			}
		} `json:"x-payment-info"`
		Paths map[string]any
	}
	if err := json.NewDecoder(response.Body).Decode(&document); err != nil || document.Paths == nil {
		return nil, fmt.Errorf("%s publishes no contract at /openapi.json (status %d); is it a Parley server?", server, response.StatusCode)
	}
	published := &Published{}
	for _, protocol := range document.Payment.Protocols {
		published.Facilitator = cmp.Or(published.Facilitator, protocol.X402.Facilitator)
		if network := protocol.X402.Network; !slices.Contains(published.Networks, network) {
			published.Networks = append(published.Networks, network)
		}
	}
	return published, nil
}

// PlayNetwork is the network whose token the network of parley dev imitates. It is worth nothing.
const PlayNetwork = x402.NetworkBaseSepolia

// PlayMoney reports whether a server takes play money: it asks for payments on PlayNetwork only, and it and its facilitator are on this
// machine, as with parley dev.
func (p *Published) PlayMoney(server string) bool {
	if !slices.Equal(p.Networks, []string{PlayNetwork}) {
		return false
	}
	for _, address := range []string{server, p.Facilitator} {
		parsed, err := url.Parse(address)
		if err != nil || !isLoopback(parsed) {
			return false
		}
	}
	return true
}
