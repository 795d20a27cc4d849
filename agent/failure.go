package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/parley-chat/parley/client"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// The exit codes of commands of an agent.
const (
	ExitError   = 1
	ExitUsage   = 2
	ExitRefused = 3 // by the rules of the server
	ExitNoKey   = 4 // no account, or a wrong key
	ExitLimit   = 5 // the daily limit, or --yes is missing
	ExitNoMoney = 6
	ExitOpen    = 7 // a payment was sent, and its outcome is not known
)

// Failure is an error with everything that both faces tell of it.
type Failure struct {
	// Code is a stable word.
	Code string
	Exit int
	// Message is what went wrong, and Next the command that helps, without the name of the program, or "".
	Message, Next string
	// Action with Args is what Next runs, or nil.
	Action *Action
	Args   map[string]any
	// Question asks the human to confirm what is dear or final, or is "". Confirmed, the same is done.
	Question string
	// Retryable is true if the same may succeed later.
	Retryable bool
	// Charged is nil if it is not known whether the call that failed was charged.
	Charged *bool
	// Paid is what all calls of the command were charged, in atomic units.
	Paid       uint64
	Status     int // of the server's response, or 0
	RequestID  string
	RetryAfter time.Duration

	dear   uint64 // the price that Question is about, or 0
	reason string // of the server's refusal of a payment, as x402 names it
}

func (f *Failure) Error() string { return f.Message }

// failf returns the failure of what was refused before anything was paid for it.
func failf(exit int, code, next, format string, values ...any) *Failure {
	return &Failure{Exit: exit, Code: code, Next: next, Action: ActionNamed(next), Message: fmt.Sprintf(format, values...),
		Charged: new(false)}
}

// Usagef returns the failure of wrong arguments. Its text must not contain long values.
func Usagef(format string, values ...any) error {
	return failf(ExitUsage, "usage", "", format, values...)
}

// CodeOf returns the code of an error that is a [Failure], or "".
func CodeOf(err error) string {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Code
	}
	return ""
}

func isA[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// plain returns an error in words for readers who know neither Go nor its libraries.
func plain(err error) string {
	var network net.Error
	var ledger *sqlite.Error
	if failed, ok := errors.AsType[*url.Error](err); ok { // its URL has the query of the call
		return plain(failed.Err)
	}
	switch {
	case isA[*Failure](err), isA[*client.UnreachableError](err):
		return err.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "the server did not respond in time"
	case errors.Is(err, context.Canceled):
		return "interrupted; the same command finishes it"
	case isA[*net.OpError](err), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection to the server broke"
	case errors.Is(err, fs.ErrPermission), errors.As(err, &ledger) && ledger.Code()&0xff == sqlite3.SQLITE_READONLY:
		return err.Error() + "; parley must be able to write its folder (PARLEY_HOME) and what is in it"
	case isA[*sqlite.Error](err):
		return err.Error() + "; if " + stateFile + " is damaged, put a copy back, or move it away: then what was paid today is forgotten"
	case isA[*json.SyntaxError](err), isA[*json.UnmarshalTypeError](err):
		return "what was read is not JSON of the expected form"
	}
	return err.Error()
}

// Explain returns what to tell of an error of the command of ctx. a may be nil.
func (a *Agent) Explain(ctx context.Context, err error) *Failure {
	f := failf(ExitError, "error", "", "%s", plain(err))
	if known, ok := errors.AsType[*Failure](err); ok {
		*f = *known
		f.Message = err.Error()
	} else if isA[*client.UnreachableError](err) {
		f.Code, f.Retryable = "unreachable", true
	} else if errors.Is(err, context.DeadlineExceeded) {
		f.Code, f.Retryable = "timeout", true
	}
	command := commandOf(ctx)
	if a != nil {
		f.Message = command.words(a.contract, f.Message)
	}
	if f.Paid = command.Charged(); f.Paid > 0 && f.Charged != nil && !*f.Charged {
		f.Message += "; " + USD(f.Paid) + " USD was paid to look up names and rights before"
	}
	return f
}

// refusedAs reports whether the server refused a call with one of some codes.
func refusedAs(err error, codes ...client.ErrorCode) bool {
	return slices.Contains(codes, client.ErrorCode(CodeOf(err)))
}

// refusalOf returns the failure of a call to which the server did not respond with 200.
func refusalOf(status int, retryAfter time.Duration, said client.ParleyError) *Failure {
	f := failf(ExitRefused, PlainWord(cmp.Or(string(said.Code), "bad_response")), "", "%s",
		cmp.Or(said.Message, "the server does not say why"))
	f.Status, f.RequestID, f.RetryAfter, f.Charged = status, said.RequestID, retryAfter, cmp.Or(said.Charged, f.Charged)
	if said.Error != nil {
		f.reason = *said.Error
	}
	if said.Message == "" || status >= http.StatusInternalServerError {
		f.Message += fmt.Sprintf(" (status %d, request_id %s)", status, cmp.Or(PlainWord(said.RequestID), "unknown"))
	}
	if retryAfter > 0 {
		seconds := fmt.Sprintf("%.0f seconds", retryAfter.Seconds())
		f.Message = strings.NewReplacer("Retry-After seconds", seconds, "after Retry-After", "in "+seconds).Replace(f.Message)
	}
	switch {
	case status == http.StatusUnauthorized:
		f.Exit, f.Message = ExitNoKey, "the server refuses the API key that is stored here; it was replaced from a copy of this folder, or the "+
			"account was deleted. Use the folder that has the newest key"
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		f.Exit, f.Retryable = ExitError, true
	}
	return f
}

// codeOpen is the code of a payment that was sent, and whose outcome is not known. Making the same call again finishes it and pays nothing
// more.
const codeOpen = "outcome_open"

// outcomeOpen is its failure. cause may be nil.
func outcomeOpen(cause error) *Failure {
	f := &Failure{Exit: ExitOpen, Code: codeOpen, Retryable: true,
		Message: "the payment was sent, and its outcome is not known yet; make the same call again to finish it, it is not charged twice"}
	if cause != nil {
		f.Message += ": " + plain(cause)
	}
	return f
}

// Fields are those of the JSON object that tells the failure. next is how the caller can run [Failure.Next].
func (f *Failure) Fields(next string) map[string]any {
	fields := object{"error": f.Message, "code": f.Code, "charged": f.Charged, "retryable": f.Retryable, "paid_usd": USD(f.Paid)}
	if next != "" {
		fields["next"] = next
	}
	if f.Status != 0 {
		fields["status"] = f.Status
	}
	if f.RequestID != "" {
		fields["request_id"] = PlainWord(f.RequestID)
	}
	if f.RetryAfter > 0 {
		fields["retry_after_seconds"] = int(f.RetryAfter.Seconds())
	}
	return fields
}
