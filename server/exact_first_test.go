package server_test

import (
	"net/http"
	"testing"

	"github.com/parley-chat/parley/x402"
)

// TestAgentCashIsOfferedExactFirst: AgentCash would give up if payment channels were offered first. Others on its address are not changed.
func TestAgentCashIsOfferedExactFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	for _, test := range []struct{ client, first string }{
		{"agentcash@0.14.4", x402.SchemeExact}, {"", x402.SchemeBatch}, {"other@1.0.0", x402.SchemeBatch},
	} {
		reply := w.call(http.MethodPost, sendPath, "", "X-Client-ID", test.client)
		required, err := x402.DecodePaymentRequired(reply.Header.Get(x402.HeaderPaymentRequired))
		if err != nil || len(required.Accepts) != 2 || required.Accepts[0].Scheme != test.first {
			t.Errorf("the client %q is offered %+v (%v), want %s first", test.client, required, err, test.first)
		}
	}
}
