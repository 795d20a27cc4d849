package service

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/payment"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// firstOffer is the scheme that a 402 for the agent offers first.
func (a *agent) firstOffer() string {
	a.w.T.Helper()
	reply := a.w.call(http.MethodPost, sendPath, "", "X-API-KEY", a.Key)
	required, err := x402.DecodePaymentRequired(reply.Header.Get(x402.HeaderPaymentRequired))
	if err != nil || len(required.Accepts) != 2 {
		a.w.T.Fatalf("%v: %v, want two offers", reply, err)
	}
	return required.Accepts[0].Scheme
}

// TestTwoOffers: both schemes in version 2, exact alone in version 1.
func TestTwoOffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	exactFirst := newWorld(t, withChannels, func(config *server.Config, _ *payment.Chain, _ string) { config.Channels.ExactFirst = true })
	for first, w := range map[string]*world{x402.SchemeBatch: w, x402.SchemeExact: exactFirst} {
		required := w.price(sendPath)
		if len(required.Accepts) != 2 || required.Accepts[0].Scheme != first {
			t.Errorf("the offers are %+v, want %s first", required.Accepts, first)
		}
		offer := offerOf(t, required)
		terms, err := x402.TermsOf(offer)
		want := x402.ChannelTerms{ReceiverAuthorizer: testkit.Address(authorizer), WithdrawDelay: 86_400, MinDeposit: suggestedDeposit}
		if err != nil || terms != want || offer.Amount != "5000" {
			t.Errorf("the terms are %+v (%v), want %+v", terms, err, want)
		}
		var body struct {
			X402Version int
			Accepts     []struct{ Scheme string }
		}
		if err := json.Unmarshal(w.call(http.MethodPost, sendPath, "").Body, &body); err != nil || body.X402Version != 1 ||
			len(body.Accepts) != 1 || body.Accepts[0].Scheme != x402.SchemeExact {
			t.Errorf("the body offers %+v (%v), want exact alone", body, err)
		}
	}
}

// TestDocumentsNameTheSchemes: llms.txt and the agent card name what the server takes, the preferred scheme first.
func TestDocumentsNameTheSchemes(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]*world{
		"(payment schemes: batch-settlement, exact)": newWorld(t, withChannels), "(payment schemes: exact)": newWorld(t),
	} {
		if card := string(w.call(http.MethodGet, "/.well-known/agent-card.json", "").Body); !strings.Contains(card, want) {
			t.Errorf("the agent card lacks %q: %s", want, card)
		}
		llms := string(w.call(http.MethodGet, "/llms.txt", "").Body)
		if !strings.Contains(llms, "- `exact`: ") ||
			strings.Contains(llms, "- `batch-settlement`: ") != strings.Contains(want, x402.SchemeBatch) {
			t.Errorf("the schemes of llms.txt are not %q:\n%.1500s", want, llms)
		}
	}
}

// TestNobodyIsLockedOut: a client that lost the state of its channel is offered exact first until a voucher fits again. Others are
// not.
func TestNobodyIsLockedOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob := w.agent("alice"), w.agent("bob")
	payer := w.channelPayer(alice.Wallet)
	alice.sendWith(payer.sign(sendPath, 5000, 50_000), bob, "one").Require(t, "a call", http.StatusOK)
	for _, lost := range []string{payer.sign(sendPath, 5000, 50_000), payer.sign(sendPath, 5000, 0)} {
		if first := alice.firstOffer(); first != x402.SchemeBatch {
			t.Errorf("before, %s is offered first", first)
		}
		correctionOf(t, alice.sendWith(lost, bob, "from zero"))
		if first := alice.firstOffer(); first != x402.SchemeExact {
			t.Errorf("after a restart, %s is offered first", first)
		}
		if first := bob.firstOffer(); first != x402.SchemeBatch {
			t.Errorf("another agent is offered %s first", first)
		}
		alice.sends(bob, "exact").Want(t, "paying with exact", http.StatusOK)
		charged := uint64(w.Count(`SELECT charged FROM payment_channels`))
		alice.sendWith(payer.sign(sendPath, charged+5000, 0), bob, "found again").Want(t, "a voucher that fits", http.StatusOK)
	}
	// A claimed voucher may be anybody's, but its payer must get on, too: with an account that was bought since, for example.
	charged := uint64(w.Count(`SELECT charged FROM payment_channels`))
	w.due()
	w.recoverUntil(func() bool { return w.Count(`SELECT claimed FROM payment_channels`) == int(charged) })
	correctionOf(t, bob.sendWith(payer.sign(sendPath, charged, 0), alice, "claimed"))
	if first := bob.firstOffer(); first != x402.SchemeExact {
		t.Errorf("after a voucher that was claimed, %s is offered first", first)
	}
	// Without an account the address counts.
	stranger := w.channelPayer(w.Wallet(testkit.Dollar))
	const path = "/register/request_account"
	ask := func(name string) testkit.Reply {
		return w.call(http.MethodPost, path, `{"requested_username":`+quote(name)+`}`, x402.HeaderPaymentSignature, stranger.sign(path, 10_000,
			50_000))
	}
	w.Secret(ask("carol").Field(t, "tan"))
	correctionOf(t, ask("dave"))
	if required := w.price(path); required.Accepts[0].Scheme != x402.SchemeExact {
		t.Errorf("a stranger that restarted is offered %s first", required.Accepts[0].Scheme)
	}
	w.checkChannels()
}

// TestVoucherForASecret: the voucher alone does not return a TAN again, because it becomes public when it is claimed. The payment
// identifier does, and so does a voucher that was never used.
func TestVoucherForASecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	const path = "/register/request_account"
	payer := w.channelPayer(w.Wallet(testkit.Dollar))
	ask := func(name, payment string) testkit.Reply {
		t.Helper()
		return w.call(http.MethodPost, path, `{"requested_username":`+quote(name)+`}`, x402.HeaderPaymentSignature, payment)
	}
	first := ask("carol", payer.sign(path, 10_000, 100_000))
	w.Secret(first.Field(t, "tan"))
	voucher := payer.sign(path, 20_000, 0)
	second := ask("dave", voucher)
	w.Secret(second.Field(t, "tan"))
	if _, state, _ := correctionOf(t, ask("dave", voucher)); state.ChargedCumulativeAmount != "20000" {
		t.Errorf("the same voucher: the payment channel was charged %s, want 20000", state.ChargedCumulativeAmount)
	}
	if reason, _, _ := correctionOf(t, ask("dave", payer.sign(path, 15_000, 0))); reason != x402.ReasonBatchCumulativeMismatch {
		t.Errorf("a voucher for less than was charged: %s", reason)
	}
	thief := w.channelPayer(w.Wallet(testkit.Dollar))
	forged, err := thief.signer(path).Sign(t.Context(), 30_000, 0, time.Now())
	testkit.NoError(t, err)
	ask("dave", thief.encode(forged)).Want(t, "a voucher of another channel", http.StatusPaymentRequired)
	fresh := ask("dave", payer.sign(path, 30_000, 0))
	if string(fresh.Body) != string(second.Body) {
		t.Errorf("the next voucher: %v, want the stored response", fresh)
	}
	if settled, extra := settledOf(t, fresh); extra.ChargedAmount != "0" || extra.ChannelState.ChargedCumulativeAmount != "20000" ||
		settled.Transaction != "" {
		t.Errorf("the next voucher was charged: %+v %+v", settled, extra)
	}
	signed, err := payer.signer(path).Sign(t.Context(), 30_000, 0, time.Now())
	testkit.NoError(t, err)
	signed.Extensions = testkit.Identifier("a-name-that-nobody-guesses")
	named := payer.encode(signed)
	third := ask("erin", named)
	w.Secret(third.Field(t, "tan"))
	if a := ask("erin", named); string(a.Body) != string(third.Body) ||
		a.Header.Get(x402.HeaderPaymentResponse) != third.Header.Get(x402.HeaderPaymentResponse) {
		t.Errorf("the same voucher with its payment identifier: %v, want %v", a, third)
	}
	w.checkChannels()
}

// TestWithdrawal: no voucher is charged while the payer withdraws, once the server has seen it; nor while withdrawals may be unknown that
// began half of the withdraw delay ago.
func TestWithdrawal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withChannels)
	alice, bob, payer := w.openChannel()
	paid := uint64(5000)
	try := func(name string, want int) {
		a := alice.sendWith(payer.sign(sendPath, paid+5000, 0), bob, name)
		if a.Status != want || want != http.StatusOK && a.Charged {
			t.Errorf("%s: %v, want %d", name, a, want)
		}
		if a.Status == http.StatusOK {
			paid += 5000
		}
	}
	scanned := func(hours int, taken string) {
		w.Exec(`UPDATE payment_channel_scans SET known_at = now() - make_interval(hours => $1), taken_at = now() + $2::interval`, hours, taken)
	}
	learns := func(hours int) {
		scanned(hours, "1 hour") // another server is at it
		age := fmt.Sprintf("parley_payment_channel_scan_seconds %d", hours*36)
		if !w.recoverUntil(func() bool { return strings.Contains(w.admin("/metrics"), age) }) {
			t.Fatalf("the metrics do not tell that the scan is %d hours old", hours)
		}
	}
	learns(11)
	try("withdrawals are known up to 11 hours ago", http.StatusOK)
	learns(13)
	try("withdrawals are known up to 13 hours ago", http.StatusServiceUnavailable)
	if first := alice.firstOffer(); first != x402.SchemeExact {
		t.Errorf("while little is known %s is offered first", first)
	}
	scanned(13, "-1 hour")
	try("the server looks itself", http.StatusOK)
	alice.w = w.beside()
	mend := alice.w.breakFacilitator(func(rw http.ResponseWriter, _ *http.Request) bool { testkit.HangUp(rw); return true })
	try("a server that has just started, without the endpoint", http.StatusServiceUnavailable)
	mend()
	try("a server that has just started", http.StatusOK)
	alice.w = w
	testkit.NoError(t, w.Ledger.InitiateWithdraw(payer.signer(sendPath).Config, 10_000))
	if !w.recoverUntil(func() bool {
		return w.Count(`SELECT count(*) FROM payment_channels WHERE withdraw_requested_at <> 0`) == 1
	}) {
		t.Fatal("the withdrawal is not seen")
	}
	a := alice.sendWith(payer.sign(sendPath, paid+5000, 0), bob, "withdrawing")
	if _, state, _ := correctionOf(t, a); state.WithdrawRequestedAt == 0 || a.Charged {
		t.Errorf("a voucher during a withdrawal: %v %+v", a, state)
	}
	if first := alice.firstOffer(); first != x402.SchemeExact {
		t.Errorf("during a withdrawal %s is offered first", first)
	}
	w.checkChannels()
}

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
