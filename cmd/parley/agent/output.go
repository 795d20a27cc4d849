package agent

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

type object = map[string]any

// revealing is an output in which every character is seen.
type revealing struct{ io.Writer }

func (r revealing) Write(text []byte) (int, error) {
	if _, err := io.WriteString(r.Writer, agent.Reveal(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// print writes the value of an action, as JSON or as lines, and then notes that it was seen: from then on the same command is a new one. A
// server may send anything, and nothing of it drives a terminal. A program gets the texts that --jq names as they are.
func (s *session) print(run *agent.Run, value *agent.Value) (err error) {
	var text bytes.Buffer
	if s.flags.JSON || s.query != nil || s.Plain() {
		value.Data["paid_usd"] = agent.USD(s.calls.Charged())
		err = s.encode(&text, value.Data)
	} else {
		writeLines(&text, value)
	}
	shown := text.String()
	if console.IsTerminal(s.Out) {
		shown = agent.Reveal(shown)
	}
	if err == nil {
		_, err = io.WriteString(s.Out, shown)
	}
	if err == nil && run != nil {
		return run.Seen()
	}
	if err != nil && s.calls.Charged() > 0 {
		f := &agent.Failure{Exit: agent.ExitError, Code: "not_written", Charged: new(true), Message: "write the output: " + err.Error() +
			"; the call was made, and the same command with another --jq or output returns its response, free"}
		if s.flags.JQ != "" {
			f.Exit = agent.ExitUsage
		}
		return f
	}
	return err
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
			if console.IsTerminal(s.Out) && json.Valid([]byte(text)) { // of tojson: it stays JSON
				text = agent.EscapeJSON(text)
			}
			fmt.Fprintln(w, text)
		} else if err := console.EncodeJSON(w, next); err != nil {
			return err
		}
	}
}

// line returns a command line as any shell can run it: with the folder, unless it is the standard one.
func (s *session) line(command string) string {
	if command == "init" { // with a name that nobody has
		server := cmp.Or(s.flags.ServerURL, s.config.Server, "the URL of your server")
		command += " --server " + agent.Quoted(server) + " --username agent_" + strings.ToLower(rand.Text()[:8])
	}
	standard, err := agentHome("")
	home, wrong := agentHome(s.flags.Home)
	switch {
	case wrong != nil || err == nil && home == standard:
		return "parley " + command
	case strings.ContainsAny(home, " '\"$`\\"):
		home = strconv.Quote(home)
	}
	return "parley --home " + home + " " + command
}

// face names commands so that they run as they are.
type face struct {
	agent.CommandLine
	s *session
}

func (f face) Call(a *agent.Action, arguments map[string]any) string {
	if arguments == nil {
		return "parley " + a.Name
	}
	return f.s.line(a.Line(arguments))
}

// again returns the command line that was run, with flags before it.
func (s *session) again(flags string) string {
	line := strings.TrimSpace(flags)
	for _, word := range s.args {
		line += " " + agent.Quoted(word)
	}
	if strings.Contains(line, " --home") {
		return "parley " + strings.TrimSpace(line)
	}
	return s.line(strings.TrimSpace(line))
}
