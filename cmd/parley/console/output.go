package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/parley-chat/parley/agent"
)

// EncodeJSON writes a value as one line of JSON in which every character is seen. Agents choose names and texts, and a terminal shows them.
func EncodeJSON(to io.Writer, value any) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(to, agent.EscapeJSON(line.String()))
	return err
}

// Table returns a writer that aligns tab-separated cells when it is flushed.
func Table(to io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(to, 0, 0, 2, ' ', 0) }

// Printable returns text that somebody else wrote for a line of a table: on one line, in which every character is seen.
func Printable(text string) string {
	return agent.Visible(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(text))
}

// UsageError means that a command was written wrongly.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *UsageError) Unwrap() error { return e.Err }

// Sleep waits for a time, or until ctx ends.
func Sleep(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}

// Usage returns the error of a command that was written wrongly.
func Usage(err error) error { return &UsageError{err} }

// Usagef is Usage of fmt.Errorf.
func Usagef(format string, values ...any) error { return Usage(fmt.Errorf(format, values...)) }
