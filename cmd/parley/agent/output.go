package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// object is the output of a command as JSON.
type object = map[string]any

// wantsJSON reports whether the output is JSON.
func (s *session) wantsJSON() bool { return s.flags.JSON || s.query != nil || s.Plain() }

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

// print writes the value of an action, as JSON or as lines, and then notes that it was seen: from then on the same command is a new one. A
// server may send anything, and nothing of it drives a terminal.
func (s *session) print(run *agent.Run, value *agent.Value) error {
	var text bytes.Buffer
	var finished []agent.Finished
	money, line := object{"paid_usd": agent.USD(s.calls.Charged())}, ""
	if run != nil {
		var err error
		if finished, err = s.agent.Finished(run.Context); err != nil {
			fmt.Fprintln(s.Err, "look for finished calls:", err)
		}
		money, line = run.Money()
	}
	if s.wantsJSON() {
		fields := maps.Clone(value.Data)
		maps.Copy(fields, money)
		for _, call := range finished {
			all, _ := fields["finished"].([]object)
			fields["finished"] = append(all, object{"operation": call.Operation, "to": call.Peer, "since": call.Since,
				"paid_usd": agent.USD(call.Charged)})
		}
		if err := s.encode(&text, fields); err != nil {
			return s.unseen(run, err)
		}
	} else {
		writeLines(&text, value)
		for _, call := range finished {
			fmt.Fprintln(&text, call)
		}
		if line != "" {
			fmt.Fprintln(&text, line)
		}
	}
	if _, err := io.WriteString(s.Out, agent.Reveal(text.String())); err != nil {
		return s.unseen(run, fmt.Errorf("write the output: %w", err))
	}
	if run == nil {
		return nil
	}
	return run.Seen()
}

// writeLines writes a value for people. Texts of others are indented, so that they cannot look like our own words.
func writeLines(w io.Writer, value *agent.Value) {
	for _, part := range value.Parts {
		fmt.Fprintln(w, part.Line)
		if part.Foreign != "" {
			fmt.Fprintf(w, "    %s\n", strings.ReplaceAll(agent.Visible(part.Foreign), "\n", "\n    "))
		}
	}
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
func (s *session) unseen(run *agent.Run, err error) error {
	if run == nil || len(run.Results()) == 0 {
		return err
	}
	run.Release()
	failed := &outputError{error: err}
	for _, result := range run.Results() {
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
	if s.query == nil {
		return console.EncodeJSON(w, json.RawMessage(raw))
	}
	var plain any // gojq takes only the types of encoding/json
	if err := json.Unmarshal(raw, &plain); err != nil {
		return err
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
		if text, ok := next.(string); ok {
			fmt.Fprintln(w, text)
		} else if err := console.EncodeJSON(w, next); err != nil {
			return err
		}
	}
}

// runnable adds the folder to the commands in a text, unless it is the standard one: whoever runs them may have another shell.
func (s *session) runnable(text string) string {
	standard, err := agentHome("")
	home, wrong := agentHome(s.flags.Home)
	if wrong != nil || err == nil && home == standard {
		return text
	}
	if strings.ContainsAny(home, " '\"$`\\") {
		home = strconv.Quote(home)
	}
	for _, command := range []string{"init", "status", "wallet", "send", "find", "profile", "inbox", "contacts", "group", "channel"} {
		text = strings.ReplaceAll(text, "parley "+command, "parley --home "+home+" "+command)
	}
	return text
}
