//go:build !noserver

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/internal/testkit"
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
		"open":         {&agent.OpenError{ID: "1"}, exitOpen, `"charged":null,"code":"outcome_open"`},
		"terms":        {&agent.TermsError{What: "payee"}, exitLimit, `"code":"terms_changed"`},
		"other terms":  {fmt.Errorf("%w: x", agent.ErrOtherTerms), exitLimit, `"next":"parley prices --accept"`},
		"wrong key":    {refused(http.StatusUnauthorized, client.ErrorCodeInvalidAPIKey, ""), exitNoKey, `"code":"invalid_api_key"`},
		"no money":     {poor, exitNoMoney, `"retryable":true`},
		"bad payment":  {refused(http.StatusPaymentRequired, client.ErrorCodePaymentRefused, "expired"), exitRefused, `"retryable":false`},
		"too many":     {refused(http.StatusTooManyRequests, client.ErrorCodeRateLimited, ""), exitError, `"retryable":true`},
		"not allowed":  {refused(http.StatusForbidden, client.ErrorCodeNotAdmin, ""), exitRefused, `"charged":false,"code":"not_admin"`},
		"no account":   {agent.ErrNoAccount, exitNoKey, `"next":"parley init"`},
		"an escape":    {errors.New("\x1b[2J"), exitError, `\\u{001B}[2J`},
		"old approval": {agent.ErrNoApproval, exitLimit, `"code":"limit"`},
	} {
		var out bytes.Buffer
		code := report(&out, explain(t.Context(), test.err, true))
		if code != test.exit || !strings.Contains(out.String(), test.want) || !json.Valid(out.Bytes()) {
			t.Errorf("%s: exit code %d, want %d; %s, want %s", name, code, test.exit, out.String(), test.want)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if code := report(&bytes.Buffer{}, explain(ended, errors.New("x"), true)); code != exitInterrupted {
		t.Errorf("interrupted: exit code %d", code)
	}
}

// TestInterrupted: Ctrl-C ends a command that waits, with a code of its own; a server that is not there is worth another attempt.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer hanging.Close()
	cmd := newUser(t, hanging.URL).command("init", "--username", "alice", "--yes")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-asked
	_ = cmd.Process.Signal(syscall.SIGINT)
	if exited, ok := errors.AsType[*exec.ExitError](cmd.Wait()); !ok || exited.ExitCode() != exitInterrupted {
		t.Errorf("after Ctrl-C: %v", exited)
	}
	nobody := newUser(t, "http://"+testkit.FreeAddress(t))
	if got := nobody.fails(exitError, "init", "--username", "alice", "--yes"); got["code"] != "unreachable" || got["retryable"] != true {
		t.Errorf("without a server: %v", got)
	}
}

// TestHumanAmounts: amounts have at least two digits and no zeros at the end.
func TestHumanAmounts(t *testing.T) {
	t.Parallel()
	for amount, want := range map[uint64]string{
		0: "0.00", 1: "0.000001", 5_000: "0.005", 150_000: "0.15", 500_000: "0.50", 1_000_000: "1.00", 12_345_670: "12.34567",
	} {
		if got := dollars(amount); got != want {
			t.Errorf("%d is %s, want %s", amount, got, want)
		}
		if back, err := parseUSD(want); err != nil || back != amount {
			t.Errorf("%s is %d, %v, want %d", want, back, err, amount)
		}
	}
	for _, bad := range []string{"", "much", "-1", "1.2.3", "0.0000001", "1e3"} {
		if amount, err := parseUSD(bad); err == nil {
			t.Errorf("%q is %d", bad, amount)
		}
	}
}
