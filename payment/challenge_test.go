package payment

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// standingScheme is a scheme with a standing for each client.
type standingScheme struct {
	Scheme
	name      string
	standings map[string]Standing
}

func (s standingScheme) Standing(_ uint64, client string) Standing { return s.standings[client] }
func (s standingScheme) Requirements(*Operation) x402.PaymentRequirements {
	return x402.PaymentRequirements{Scheme: s.name}
}

func (s standingScheme) Moved(*Operation, string, string) {}

func (s standingScheme) Renewed(_ *Operation, client string) (x402.PaymentRequirements, bool) {
	return x402.PaymentRequirements{Scheme: s.name, PayTo: "renewed"}, client == "renewed" && s.name == "b"
}

// TestChallenge: schemes are offered in their order, those that are a fallback for the client after the others, and those that are withheld
// not at all.
func TestChallenge(t *testing.T) {
	t.Parallel()
	a := standingScheme{name: "a", standings: map[string]Standing{"lost": Fallback, "barred": Withheld, "all lost": Fallback}}
	b := standingScheme{name: "b", standings: map[string]Standing{"all lost": Fallback}}
	c := standingScheme{name: "c", standings: map[string]Standing{"barred": Fallback, "all lost": Fallback}}
	e := &Engine{Config: Config{}, operations: map[string]*Operation{}}
	e.metrics = newMetrics(nil, nil, nil)
	operation := &Operation{ID: "editAgent", Price: 2000, Extensions: map[string]jsontext.Value{}}
	testkit.NoError(t, e.Offer([]*Operation{operation}, a, b, c))
	for client, want := range map[string]string{"anybody": "a b c", "lost": "b c a", "barred": "b c", "all lost": "a b c",
		"renewed": "a brenewed c"} {
		var got []string
		for _, offer := range e.Challenge(operation, client).Required.Accepts {
			got = append(got, offer.Scheme+offer.PayTo)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s is offered %q, want %q", client, got, want)
		}
	}
}

// TestForget: thousands of calls wait at once, and none keeps the kilobytes of its payment's header.
func TestForget(t *testing.T) {
	request, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET / HTTP/1.1\r\nHost: a\r\nPAYMENT-SIGNATURE: signed\r\n\r\n")))
	testkit.NoError(t, err)
	values := request.Header[http.CanonicalHeaderKey(x402.HeaderPaymentSignature)]
	Forget(request.Header)
	if values[0] != "" || len(request.Header) != 0 {
		t.Errorf("%q and %v are kept", values, request.Header)
	}
}
