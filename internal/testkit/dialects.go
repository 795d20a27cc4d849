package testkit

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/x402"
)

// Dialects are all dialects.
var Dialects = []Dialect{
	{"settlement_pending for half an hour", "", pending(true)},
	{"settlement_pending for ever", AllKinds, pending(false)},
	{"processes requests twice", "", onSettle(func(_ *Speaker, c *dialectCall) dialectAnswer { c.act(); return c.act() })},
	{"repeats earlier responses", "", onSettle(echo)},
	{"mixes responses up", "", onSettle(mix)},
	{"limits the rate", "", limit},
	{"reports what is mined later", "", onSettle(report(true))},
	{"reports deposits that are never mined", x402.BatchDeposit, onSettle(report(false))},
	{"does not simulate claims", "", onSettle(unsimulated)},
	{"takes 25 payment channels per claim", "", onSettle(fewClaims)},
	{"loses /supported", "", lost},
	{"has reasons of its own", "", onSettle(reasons)},
	{"speaks version 1", "", former},
}

// onSettle lets other calls than /settle through.
func onSettle(answer func(*Speaker, *dialectCall) dialectAnswer) func(*Speaker, *dialectCall) dialectAnswer {
	return func(s *Speaker, c *dialectCall) dialectAnswer {
		if c.path != "/settle" {
			return c.act()
		}
		return answer(s, c)
	}
}

// failure is a rejection by /settle as hosted facilitators write it.
func failure(status int, c *dialectCall, reason, transaction string) dialectAnswer {
	const body = `{"success":false,"errorReason":%q,"errorMessage":null,"transaction":%q,"network":%q}`
	return dialectAnswer{status: status, body: fmt.Sprintf(body, reason, transaction, JSONText(c.body, "network"))}
}

// pending reports a transaction that is mined later, or never. Repeated calls wait for the same one.
func pending(later bool) func(*Speaker, *dialectCall) dialectAnswer {
	return onSettle(func(s *Speaker, c *dialectCall) dialectAnswer {
		switch {
		case c.mined != nil && c.mined.settles():
			return *c.mined
		case c.mined != nil && c.kind == "claim":
			return failure(200, c, x402.ReasonBatchClaimTransaction, c.hash)
		case later && c.times == 1:
			s.mine(c)
		}
		return failure(500, c, x402.ReasonSettlementPending, c.hash)
	})
}

// echo answers the first call of every second payment with the last success, without having acted.
func echo(s *Speaker, c *dialectCall) dialectAnswer {
	if c.times == 1 && s.count%2 == 0 && s.last != "" {
		return dialectAnswer{status: 200, body: s.last}
	}
	answer := c.act()
	if answer.settles() {
		s.last = answer.body
	}
	return answer
}

// mix swaps the answers to payments of different payers.
func mix(s *Speaker, c *dialectCall) dialectAnswer {
	answer := c.act()
	payer := JSONText([]byte(answer.body), "payer")
	if last := JSONText([]byte(s.last), "payer"); c.times > 1 || payer == "" || payer == last {
		return answer
	}
	s.last, answer.body = answer.body, s.last
	if answer.body == "" {
		answer.body = s.last
	}
	return answer
}

// limit refuses every call the first time: with and without Retry-After, with the page of a proxy, and with a verdict.
func limit(_ *Speaker, c *dialectCall) dialectAnswer {
	if c.times > 1 && c.path != "/supported" || c.number%5 == 0 {
		return c.act()
	}
	const page = "<html><body>rate exceeded</body></html>"
	refused := failure(429, c, "invalid_request_rate", "").body
	return []dialectAnswer{
		{429, "1", `{"errorType":"rate_limit_exceeded","errorMessage":"slow down"}`}, {429, "", page},
		{429, "1", strings.Replace(refused, "{", `{"isValid":false,"invalidReason":"invalid_request_rate",`, 1)}, {503, "1", page},
	}[c.number%4]
}

// report reports deposits and its first claim before they are mined. Deposits are mined later, or never; the claim never, until it is
// repeated.
func report(later bool) func(*Speaker, *dialectCall) dialectAnswer {
	return func(s *Speaker, c *dialectCall) dialectAnswer {
		if c.kind != x402.BatchDeposit && (c.kind != "claim" || s.last != "") {
			return c.act()
		}
		if c.kind == "claim" {
			s.last = c.hash
		}
		if c.mined != nil {
			return *c.mined
		}
		if c.kind == x402.BatchDeposit && c.times == 1 && later {
			s.mine(c)
		}
		before := []byte(s.pass("/verify", c.body).body)
		balance, _ := strconv.ParseUint(JSONText(before, "balance"), 10, 64)
		_, deposit, _ := bytes.Cut(c.body, []byte(`"deposit":`))
		amount, _ := strconv.ParseUint(JSONText(deposit, "amount"), 10, 64)
		return dialectAnswer{status: 200, body: fmt.Sprintf(`{"success":true,"transaction":%q,"network":%q,"payer":%q,"amount":"%d","extra":`+
			`{"channelState":{"channelId":%q,"balance":"%d","totalClaimed":"0","withdrawRequestedAt":0,"refundNonce":"0"}}}`, c.hash,
			JSONText(c.body, "network"), JSONText(before, "payer"), amount, JSONText(before, "channelId"), balance+amount)}
	}
}

// unsimulated fails after a claim with a bad voucher was sent; of several vouchers without a verdict.
func unsimulated(_ *Speaker, c *dialectCall) dialectAnswer {
	answer := c.act()
	switch {
	case c.kind != "claim" || answer.settles():
		return answer
	case claimsIn(c) > 1:
		return dialectAnswer{status: 500, body: `{"error":"Internal Server Error"}`}
	}
	return failure(200, c, x402.ReasonBatchClaimTransaction, c.hash)
}

// fewClaims refuses longer claims as malformed.
func fewClaims(_ *Speaker, c *dialectCall) dialectAnswer {
	if claimsIn(c) > 25 {
		return dialectAnswer{status: 400, body: `{"errorType":"invalid_request","errorMessage":"too many claims"}`}
	}
	return c.act()
}

func claimsIn(c *dialectCall) int { return strings.Count(string(c.body), `"totalClaimed"`) }

// lost has no /supported.
func lost(_ *Speaker, c *dialectCall) dialectAnswer {
	if c.path != "/supported" {
		return c.act()
	}
	return []dialectAnswer{
		{status: 404, body: "<html>not found</html>"}, {status: 200, body: `{"kinds":[],"extensions":[],"signers":{}}`}, {status: 500},
		{status: 429, retryAfter: "60"}, {status: 200, body: `{"kinds":null}`}, {},
	}[c.number%6]
}

// reasons acts the first time and reports a failure of its own; later it finds the authorization used.
func reasons(_ *Speaker, c *dialectCall) dialectAnswer {
	answer := c.act()
	switch {
	case c.times > 1 && !answer.settles():
		return failure(400, c, x402.ReasonInvalidPayload, "")
	case c.times > 1 || !answer.settles():
		return answer
	}
	return []dialectAnswer{
		failure(200, c, "settle_exact_node_failure", ""), failure(500, c, "unknown_error", ""),
		failure(200, c, "settle_exact_evm_transaction_confirmation_timed_out", c.hash),
		failure(400, c, "invalid_exact_evm_verification_failed", c.hash),
		{status: 200, body: `{"success":false,"errorReason":null,"errorMessage":null,"transaction":null,"network":null,"payer":null}`},
	}[c.number%5]
}

// former names networks as in version 1, and writes null for what it leaves out.
func former(_ *Speaker, c *dialectCall) dialectAnswer {
	answer := c.act()
	if c.path == "/settle" {
		answer.body = strings.Replace(answer.body, `"network":"`+PlayMoney.ID+`"`, `"network":"`+PlayMoney.V1Name+`","extensions":null`, 1)
	}
	return answer
}
