package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// object is the output of a command as JSON.
type object = map[string]any

// wantsJSON reports whether the output is JSON.
func (s *session) wantsJSON() bool { return s.flags.JSON || s.query != nil || s.Plain() }

// write writes to standard output. Everything that a command prints there passes here, and everything that it prints on standard error
// passes [revealing]: a server may send anything, and nothing of it drives a terminal.
func (s *session) write(text string) error {
	if _, err := io.WriteString(s.Out, agent.Reveal(text)); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// revealing is an output in which every character is seen, and every command can be run. It is safe for concurrent use.
type revealing struct {
	io.Writer

	change func(string) string
	mu     sync.Mutex
}

func (r *revealing) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := io.WriteString(r.Writer, agent.Reveal(r.change(string(text)))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// print writes the output of a command, as JSON or with a function for people, and then notes that it was seen: from then on the same
// command is a new one.
func (s *session) print(ctx context.Context, value object, human func(w io.Writer)) error {
	var text bytes.Buffer
	finished := s.finishedCalls(ctx)
	if s.wantsJSON() {
		for _, call := range finished {
			all, _ := value["finished"].([]object)
			value["finished"] = append(all, object{"operation": call.Operation, "to": call.Peer, "since": call.Since,
				"paid_usd": agent.USD(call.Charged)})
		}
		maps.Copy(value, s.money(ctx))
		if err := s.encode(&text, value); err != nil {
			return s.unseen(err)
		}
	} else {
		human(&text)
		for _, call := range finished {
			fmt.Fprintln(&text, call)
		}
		if line := s.moneyLine(ctx); line != "" {
			fmt.Fprintln(&text, line)
		}
	}
	if err := s.write(text.String()); err != nil {
		return s.unseen(err)
	}
	for _, result := range s.seen {
		if err := s.agent.Seen(context.WithoutCancel(ctx), result); err != nil {
			return err
		}
	}
	return nil
}

// outputError means that the calls of a command succeeded, and their output could not be written.
type outputError struct {
	error

	charged bool
}

func (e *outputError) Error() string {
	return e.error.Error() + "; the call was made, and the same command again returns its response, free"
}

func (e *outputError) Unwrap() error { return e.error }

// unseen returns the error of an output. The responses that it would have had are not seen.
func (s *session) unseen(err error) error {
	if len(s.seen) == 0 {
		return err
	}
	failed := &outputError{error: err}
	for _, result := range s.seen {
		failed.charged = failed.charged || result.Charged > 0 && !result.Earlier
	}
	return failed
}

// encode writes JSON on one line, or what the jq expression makes of it: strings as they are, everything else as JSON.
func (s *session) encode(w io.Writer, value object) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	plain, err := decode(raw) // gojq takes only the types of encoding/json
	if err != nil {
		return err
	}
	if s.query == nil {
		return console.EncodeJSON(w, mapTexts(plain, agent.Reveal))
	}
	found := s.query.Run(plain)
	for {
		next, more := found.Next()
		if !more {
			return nil
		}
		if err, failed := next.(error); failed {
			return console.Usagef("--jq: %w", err)
		}
		next = mapTexts(next, agent.Reveal)
		if text, ok := next.(string); ok {
			fmt.Fprintln(w, text)
		} else if err := console.EncodeJSON(w, next); err != nil {
			return err
		}
	}
}

// printPlan prints what a dry run would have done.
func (s *session) printPlan(ctx context.Context) error {
	value := object{"dry_run": true, "calls": append([]plan{}, s.planned...)}
	return s.print(ctx, value, func(w io.Writer) {
		if len(s.planned) == 0 {
			fmt.Fprintln(w, "dry run: this costs nothing; nothing was done")
		}
		for _, p := range s.planned {
			fmt.Fprintf(w, "dry run: %s (%s) would cost %s USD; nothing was done\n", p.Summary, p.Operation, p.Price)
			if p.Problem != "" {
				fmt.Fprintln(w, "it would not be paid now:", p.Problem)
			}
		}
	})
}

// done prints the outcome of a command whose output is one line. It is the end of most commands.
func (s *session) done(ctx context.Context, result *agent.Result, err error, line string) error {
	if err != nil {
		return err
	}
	value, err := s.body(result, "")
	if err != nil {
		return err
	}
	return s.print(ctx, value, func(w io.Writer) { fmt.Fprintln(w, line) })
}

// body returns a response as JSON in whose texts every character is seen. If a program reads the output, the text of strangers is held
// back. in is the conversation of the call, or "".
func (s *session) body(result *agent.Result, in string) (object, error) {
	value, err := decode(result.Body)
	if err != nil {
		return nil, errors.New("the response is not JSON")
	}
	if s.wantsJSON() {
		contacts, err := s.agent.Contacts()
		if err != nil {
			return nil, err
		}
		value = contacts.Withhold(value, in, view{self: s.config.Username}.own)
	}
	value = withTimes(mapTexts(value, agent.Visible))
	if found, ok := value.(object); ok {
		return found, nil
	}
	return object{"response": value}, nil
}

// decode returns a JSON value with numbers as they are written.
func decode(raw []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

// withTimes returns a response with times as the rest of the output has them, in place of seconds since 1970.
func withTimes(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = withTimes(v[i])
		}
	case object:
		for name, each := range v {
			if at, isNumber := each.(json.Number); isNumber && (strings.HasSuffix(name, "_at") || name == "timestamp") {
				seconds, _ := at.Float64()
				each = agent.Time(seconds).Format(time.RFC3339)
			}
			v[name] = withTimes(each)
		}
	}
	return value
}

// mapTexts changes all texts of a JSON value, and all names of fields.
func mapTexts(value any, change func(string) string) any {
	switch v := value.(type) {
	case string:
		return change(v)
	case []any:
		for i := range v {
			v[i] = mapTexts(v[i], change)
		}
	case object:
		shown := object{}
		for name, each := range v {
			shown[change(name)] = mapTexts(each, change)
		}
		return shown
	}
	return value
}

// inline returns a value of a response on one line: texts are quoted unless they are plain words or times.
func inline(value any) string {
	if found, ok := value.(string); ok {
		if _, noTime := time.Parse(time.RFC3339, found); noTime == nil || agent.VisibleName(found) == found {
			return found
		}
		return strconv.Quote(found)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return "?"
	}
	return string(raw)
}
