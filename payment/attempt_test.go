package payment

import (
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/parley-chat/parley/x402"
)

// TestTwoPaymentHeaders: a request with two payments is rejected, because a proxy and this server might read different ones.
func TestTwoPaymentHeaders(t *testing.T) {
	t.Parallel()
	engine := New(Config{ResponseKeys: []ResponseKey{{1}}}, nil, nil, nil, slog.New(slog.DiscardHandler))
	operation := &Operation{ID: "editAgent", Price: 1000, Extensions: map[string]jsontext.Value{}}
	if err := engine.Offer([]*Operation{operation}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{x402.HeaderPaymentSignature, x402.HeaderPaymentV1} {
		header := http.Header{http.CanonicalHeaderKey(name): {"e30=", "e30="}}
		_, err := engine.Parse(t.Context(), operation, header, nil, "", netip.Prefix{}, nil)
		if refused, ok := errors.AsType[*Error](err); !ok || !strings.Contains(refused.Message, "exactly one "+name) {
			t.Errorf("two %s headers: %v, want that exactly one is sent", name, err)
		}
	}
}
