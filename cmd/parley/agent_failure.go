package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

// The exit codes of the commands of an agent. Those of a server have only 0, 1 and 2.
const (
	exitError       = 1
	exitUsage       = 2
	exitRefused     = 3 // by the rules of the server
	exitNoKey       = 4 // no account, or a wrong key
	exitLimit       = 5 // a limit, an approval, frozen, other terms
	exitNoMoney     = 6
	exitOpen        = 7 // a payment was sent, and its outcome is not known
	exitInterrupted = 130
)

// usageError means that a command was written wrongly.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// poorError means that the wallet has too little money.
type poorError struct{ text string }

func (e *poorError) Error() string { return e.text }

// failure is an error of a command with what its caller needs to know.
type failure struct {
	error

	exit   int
	asJSON bool
	// The fields of the JSON form. charged is nil if it is not known.
	code      string
	charged   any
	retryable bool
	next      string // a command that helps
}

func (f *failure) Unwrap() error { return f.error }

// explain returns the failure for an error of an agent's command.
func explain(ctx context.Context, err error, asJSON bool) *failure {
	f := &failure{error: err, exit: exitError, asJSON: asJSON, code: "error", charged: false}
	if limit, ok := errors.AsType[*agent.LimitError](err); ok {
		f.exit, f.code = exitLimit, "limit"
		if limit.Approval != "" {
			f.code, f.next = "approval_needed", "parley wallet approve "+limit.Approval
		}
	} else if refused, ok := errors.AsType[*agent.RefusedError](err); ok {
		f.refused(refused)
	} else if personal, ok := errors.AsType[*personError](err); ok {
		f.exit, f.code, f.next = exitLimit, "person_needed", personal.command
	} else if stranger, ok := errors.AsType[*strangerError](err); ok {
		f.exit, f.code, f.next = exitLimit, "stranger", "parley contacts add "+stranger.to
	} else if _, ok := errors.AsType[*agent.TermsError](err); ok || errors.Is(err, agent.ErrOtherTerms) {
		f.exit, f.code, f.next = exitLimit, "terms_changed", "parley prices --accept"
	} else if _, ok := errors.AsType[*agent.OpenError](err); ok {
		f.exit, f.code, f.charged, f.retryable, f.next = exitOpen, "outcome_open", nil, true, "parley wallet pending"
	} else if bad, ok := errors.AsType[*agent.ResponseError](err); ok {
		f.code, f.charged = "bad_response", bad.Charged > 0
	} else if _, ok := errors.AsType[*poorError](err); ok {
		f.exit, f.code, f.retryable, f.next = exitNoMoney, "no_money", true, "parley wallet balance"
	} else if _, ok := errors.AsType[*usageError](err); ok {
		f.exit, f.code = exitUsage, "usage"
	} else {
		f.simple(err)
	}
	if ctx.Err() != nil {
		f.exit, f.code, f.charged, f.retryable = exitInterrupted, "interrupted", nil, true
	}
	return f
}

// simple explains errors without fields.
func (f *failure) simple(err error) {
	_, network := errors.AsType[net.Error](err)
	switch {
	case network:
		f.code, f.retryable = "unreachable", true
	case errors.Is(err, agent.ErrFrozen):
		f.exit, f.code, f.next = exitLimit, "frozen", "parley wallet unfreeze"
	case errors.Is(err, agent.ErrRaise), errors.Is(err, agent.ErrNoApproval):
		f.exit, f.code = exitLimit, "limit"
	case errors.Is(err, agent.ErrNoAccount), errors.Is(err, errNoWallet):
		f.exit, f.code, f.next = exitNoKey, "no_account", "parley init"
	case errors.Is(err, agent.ErrNoKeyring), errors.Is(err, errNoPlace):
		f.exit, f.code, f.next = exitNoKey, "no_keyring", "parley init --secrets encrypted"
	}
}

// refused explains a refusal of the server.
func (f *failure) refused(refused *agent.RefusedError) {
	f.exit, f.code, f.charged = exitRefused, agent.PlainWord(string(refused.Code)), false
	if refused.Charged != nil {
		f.charged = *refused.Charged
	}
	switch status := refused.Status; {
	case status == http.StatusUnauthorized:
		f.exit = exitNoKey
	case status == http.StatusPaymentRequired && refused.ParleyError.Error != nil && strings.Contains(*refused.ParleyError.Error, "insufficient"):
		f.exit, f.retryable, f.next = exitNoMoney, true, "parley wallet balance"
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		f.exit, f.retryable = exitError, true
	}
	if refused.Code == client.ErrorCodeAgentNotFound {
		f.next = "parley find WORDS"
	}
}

// report writes an error and returns the exit code.
func report(to io.Writer, err error) int {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		fmt.Fprintln(to, "parley:", agent.Reveal(err.Error())) // an endpoint or a facilitator may have written a part of it
		if _, usage := errors.AsType[*usageError](err); usage {
			return exitUsage
		}
		return exitError
	}
	text := agent.Visible(f.Error()) // a server may have written it
	if !f.asJSON {
		fmt.Fprintln(to, "parley:", strings.ReplaceAll(text, "\n", "\n    "))
		if f.next != "" && !strings.Contains(text, f.next) {
			fmt.Fprintln(to, "try:", agent.Reveal(f.next))
		}
		return f.exit
	}
	shown := object{"error": text, "code": f.code, "charged": f.charged, "retryable": f.retryable}
	if f.next != "" {
		shown["next"] = f.next
	}
	_ = encodeJSON(to, shown) // standard error may be closed
	return f.exit
}
