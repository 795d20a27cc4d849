package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// maxDescription is how long a description hosted catalogues accept, in characters.
const maxDescription = 500

// bazaar is an entry of a catalogue, as a 402 has it.
type bazaar struct {
	Info struct {
		Input struct {
			Type, Method string
			Body         json.RawMessage
			QueryParams  map[string]any
		}
		Output struct{ Example json.RawMessage }
	}
}

// faults returns why catalogues would not list an operation. They ask without a body and with the example of the entry, never with an
// API key, and accept only a 402.
func faults(ctx context.Context, config server.Config, of *listing) []string {
	found := []string{}
	if !confidential(of.Resource) {
		found = append(found, "the address is not https://")
	}
	required, err := probe(ctx, of, "", nil)
	if err != nil {
		return append(found, "an empty request: "+err.Error())
	}
	entry, err := check402(required, config, of)
	if err != nil {
		return append(found, err.Error())
	}
	query := url.Values{}
	for name, value := range entry.Info.Input.QueryParams {
		query.Set(name, fmt.Sprint(value))
	}
	if _, err := probe(ctx, of, query.Encode(), entry.Info.Input.Body); err != nil {
		return append(found, "the example request: "+err.Error())
	}
	return found
}

// probing is for requests without payment. It follows no redirects.
var probing = &http.Client{Timeout: checkTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// probe makes a call without payment, and returns the content of its 402. It waits for the server's limit of unpaid calls.
func probe(ctx context.Context, of *listing, query string, body []byte) (*x402.PaymentRequired, error) {
	for {
		required, wait, err := probeOnce(ctx, of, query, body)
		if wait == 0 {
			return required, err
		}
		if err := console.Sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// probeOnce also returns how long to wait if the server limits the calls.
func probeOnce(ctx context.Context, of *listing, query string, body []byte) (_ *x402.PaymentRequired, wait time.Duration, _ error) {
	address := of.Resource
	if query != "" {
		address += "?" + query
	}
	request, err := http.NewRequestWithContext(ctx, of.method, address, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	if len(body) > 0 {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := probing.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusTooManyRequests {
		return nil, max(x402.RetryAfter(response.Header.Get("Retry-After"), 0), time.Second), nil
	}
	if response.StatusCode != http.StatusPaymentRequired {
		return nil, 0, fmt.Errorf("status %d instead of 402", response.StatusCode)
	}
	required, err := x402.DecodePaymentRequired(response.Header.Get(x402.HeaderPaymentRequired))
	return required, 0, err
}

// check402 returns the catalogue's entry in a 402, or why a catalogue would not take it.
func check402(required *x402.PaymentRequired, config server.Config, of *listing) (entry bazaar, err error) {
	exact := false
	for _, offer := range required.Accepts {
		exact = exact || offer.Scheme == x402.SchemeExact && strings.EqualFold(offer.PayTo, config.PayTo) && offer.Network == config.Network.ID
	}
	raw := required.Extensions["bazaar"]
	switch n := utf8.RuneCountInString(required.Resource.Description); {
	case required.Resource.URL != of.Resource:
		return entry, fmt.Errorf("the 402 is for %s", required.Resource.URL)
	case n == 0 || n > maxDescription:
		return entry, fmt.Errorf("the description has %d characters, not 1 to %d", n, maxDescription)
	case !exact:
		return entry, fmt.Errorf("the 402 does not offer scheme exact to %s on %s", config.PayTo, config.Network.ID)
	case raw == nil:
		return entry, errors.New("the 402 has no extension bazaar")
	}
	var parts struct {
		Info   any
		Schema *jsonschema.Schema
	}
	if err = json.Unmarshal(raw, &parts); err == nil {
		err = json.Unmarshal(raw, &entry)
	}
	if err != nil || parts.Schema == nil {
		return entry, errors.New("the extension bazaar has not the form {info, schema}")
	}
	schema, err := parts.Schema.Resolve(nil)
	if err == nil {
		err = schema.Validate(parts.Info)
	}
	if err != nil {
		return entry, fmt.Errorf("the bazaar entry does not match its schema: %w", err)
	}
	if input := entry.Info.Input; input.Type != "http" || input.Method != of.method || entry.Info.Output.Example == nil {
		return entry, fmt.Errorf("the bazaar entry is not for %s, or has no example of the response", of.method)
	}
	return entry, nil
}
