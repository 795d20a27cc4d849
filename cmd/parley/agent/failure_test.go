package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// TestExplain: the exit code and the JSON form of errors.
func TestExplain(t *testing.T) {
	t.Parallel()
	refused := func(status int, code client.ErrorCode, reason string) error {
		return &agent.RefusedError{Status: status, ParleyError: client.ParleyError{Code: code, Error: &reason}}
	}
	poor := refused(http.StatusPaymentRequired, client.ErrorCodePaymentRefused, "invalid_exact_evm_insufficient_balance")
	for name, test := range map[string]struct {
		err  error
		exit int
		want string
	}{
		"open":         {&agent.OpenError{ID: "1"}, ExitOpen, `"charged":null,"code":"outcome_open"`},
		"terms":        {&agent.TermsError{What: "payee"}, ExitLimit, `"code":"terms_changed"`},
		"other terms":  {fmt.Errorf("%w: x", agent.ErrOtherTerms), ExitLimit, `"next":"parley prices --accept"`},
		"wrong key":    {refused(http.StatusUnauthorized, client.ErrorCodeInvalidAPIKey, ""), ExitNoKey, `"code":"invalid_api_key"`},
		"no money":     {poor, ExitNoMoney, `"retryable":true`},
		"bad payment":  {refused(http.StatusPaymentRequired, client.ErrorCodePaymentRefused, "expired"), ExitRefused, `"retryable":false`},
		"too many":     {&agent.RefusedError{Status: 429, RetryAfter: time.Minute}, ExitError, `"retry_after_seconds":60,"retryable":true`},
		"not allowed":  {refused(http.StatusForbidden, client.ErrorCodeNotAdmin, ""), ExitRefused, `"charged":false,"code":"not_admin"`},
		"no account":   {agent.ErrNoAccount, ExitNoKey, `"next":"parley init"`},
		"an escape":    {errors.New("\x1b[2J"), ExitError, `\\u{001B}[2J`},
		"no channel":   {&agent.NotFoundError{Kind: agent.KindChannel}, ExitRefused, `"code":"channel_not_found"`},
		"no agent":     {&agent.NotFoundError{Kind: agent.KindAgent}, ExitRefused, `"next":"parley find WORDS"`},
		"no group":     {&agent.NotFoundError{Kind: agent.KindGroup}, ExitRefused, `"next":"parley find WORDS --groups"`},
		"no trust":     {&agent.GroupNotTrustedError{Group: agent.Contact{}}, ExitRefused, `"code":"group_not_trusted"`},
		"server error": {&agent.ServerError{Status: 503, RequestID: "r"}, ExitError, `"request_id":"r","retryable":false,"status":503`},
		"no key":       {fmt.Errorf("x: %w", errNoKey), ExitNoKey, `"code":"no_key"`},
		"passphrase":   {errNoPassphrase, ExitNoKey, `"code":"no_key"`},
		"a full disk":  {&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, ExitError, `"code":"error"`},
		"interrupted":  {errors.Join(&agent.LimitError{}, console.ErrInterrupted), ExitInterrupted, `"code":"interrupted"`},
		"no output":    {&outputError{console.Usagef("--jq: x"), true}, ExitUsage, `"charged":true,"code":"usage"`},
		"old approval": {agent.ErrNoApproval, ExitLimit, `"code":"limit"`},
	} {
		var out bytes.Buffer
		failed := explain(t.Context(), test.err, true)
		code := Report(&out, failed)
		if failed.next != "" && parse(t, failed.next) != nil {
			t.Errorf("%s: next is %s: %v", name, failed.next, parse(t, failed.next))
		}
		if code != test.exit || !strings.Contains(out.String(), test.want) || !json.Valid(out.Bytes()) {
			t.Errorf("%s: exit code %d, want %d; %s, want %s", name, code, test.exit, out.String(), test.want)
		}
	}
	var out bytes.Buffer
	stranger := explain(t.Context(), &strangerError{agent.Contact{Name: "bob", Kind: agent.KindAgent}}, true)
	stranger.paid = 1000
	if Report(&out, stranger); !strings.Contains(out.String(), "this was not charged: the 0.001 USD are for calls before") {
		t.Errorf("a look-up that was paid: %s", out.String())
	}
	timed, end := context.WithTimeoutCause(t.Context(), 0, errTimeout)
	defer end()
	if code := Report(&bytes.Buffer{}, explain(timed, &agent.OpenError{}, true)); code != ExitOpen {
		t.Errorf("--timeout with an open payment: exit code %d", code)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	interrupted := explain(ended, fmt.Errorf("lock x: %w", context.Canceled), true)
	if code := Report(&bytes.Buffer{}, interrupted); code != ExitInterrupted || strings.Contains(interrupted.Error(), "lock") {
		t.Errorf("interrupted: exit code %d, %v", code, interrupted)
	}
	if code := Report(&bytes.Buffer{}, explain(ended, errors.New("x"), true)); code != ExitInterrupted {
		t.Errorf("interrupted: exit code %d", code)
	}
}

// TestHumanAmounts: amounts have at least two digits and no zeros at the end.
func TestHumanAmounts(t *testing.T) {
	t.Parallel()
	for amount, want := range map[uint64]string{
		0: "0.00", 1: "0.000001", 5_000: "0.005", 150_000: "0.15", 500_000: "0.50", 1_000_000: "1.00", 12_345_670: "12.34567",
	} {
		if got := agent.USD(amount); got != want {
			t.Errorf("%d is %s, want %s", amount, got, want)
		}
		if back, err := console.ParseUSD(want); err != nil || back != amount {
			t.Errorf("%s is %d, %v, want %d", want, back, err, amount)
		}
	}
	if _, err := console.ParseUSD("-1"); err == nil || err.Error() != "must not be negative" {
		t.Errorf("a negative amount: %v", err)
	}
	for _, bad := range []string{"", "much", "1.2.3", "0.0000001", "1e3"} {
		if amount, err := console.ParseUSD(bad); err == nil {
			t.Errorf("%q is %d", bad, amount)
		}
	}
}
