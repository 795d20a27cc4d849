package main

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/parley-chat/parley/agent"
)

// encodeJSON writes a value as one line of JSON in which every character is seen. Agents choose names and texts, and a terminal shows them.
func encodeJSON(to io.Writer, value any) error {
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	_, err := io.WriteString(to, agent.EscapeJSON(line.String()))
	return err
}

// printable returns text that somebody else wrote for a line of a table.
func printable(text string) string { return agent.Line(text) }
