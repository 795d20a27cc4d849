package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// installCommand adds the MCP server to the configuration of a runtime of agents.
type installCommand struct {
	Flags   agentFlags `embed:""`
	Runtime string     `arg:"" enum:"claude,codex,cursor,openclaw" help:"claude, codex, cursor or openclaw."`
	Tools   string     `enum:"read,core,all" default:"core" help:"The tools of the server: read, core or all (${default})."`
	File    string     `placeholder:"FILE" help:"The configuration file. Default: the runtime's own; for claude .mcp.json in this folder."`
	Print   bool       `help:"Print what would be added. Change nothing."`
}

// runtimeConfig is how a runtime of agents is told of an MCP server.
type runtimeConfig struct {
	file func(home string) string
	keys []string // the path of the object with the servers in a JSON file; nil for TOML
	then string   // what to do then
}

var runtimes = map[string]runtimeConfig{
	"claude": {func(string) string { return ".mcp.json" }, []string{"mcpServers"},
		"Claude Code asks once whether it may use the server; /mcp shows it"},
	"cursor": {func(home string) string { return filepath.Join(home, ".cursor", "mcp.json") }, []string{"mcpServers"}, "restart Cursor"},
	"openclaw": {func(home string) string { return filepath.Join(home, ".openclaw", "openclaw.json") }, []string{"mcp", "servers"},
		"openclaw mcp doctor parley --probe"},
	"codex": {codexFile, nil, "codex mcp list"},
}

func codexFile(home string) string {
	if folder := os.Getenv("CODEX_HOME"); folder != "" {
		return filepath.Join(folder, "config.toml")
	}
	return filepath.Join(home, ".codex", "config.toml")
}

// mcpServer is the entry of the server in JSON.
type mcpServer struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env,omitempty"`
}

func (c *installCommand) Run(ctx context.Context, s *session) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	entry := mcpServer{Command: program, Args: []string{"mcp", "--tools", c.Tools}}
	if folder := s.flags.Home; folder != "" {
		if folder, err = filepath.Abs(folder); err != nil {
			return err
		}
		entry.Env = map[string]string{"PARLEY_HOME": folder}
	}
	into, file := runtimes[c.Runtime], c.File
	if file == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return err
		}
		file = into.file(home)
	}
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	after, err := into.add(before, entry)
	if err != nil {
		return fmt.Errorf("%s: %w; add the server yourself: parley install %s --print", file, err, c.Runtime)
	}
	if c.Print {
		alone, err := into.add(nil, entry)
		if err != nil {
			return err
		}
		_, err = s.Out.Write(alone)
		return err
	}
	if before != nil && !bytes.Equal(before, after) {
		if err := os.WriteFile(file+".bak", before, 0o600); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file, after, 0o600); err != nil {
		return err
	}
	value := object{"file": file, "runtime": c.Runtime, "next": into.then}
	return s.print(ctx, value, func(w io.Writer) { fmt.Fprintf(w, "added parley to %s; then: %s\n", file, into.then) })
}

// add returns a configuration with the server.
func (r runtimeConfig) add(before []byte, entry mcpServer) ([]byte, error) {
	if r.keys == nil {
		return addTOML(before, entry), nil
	}
	raw, err := json.Marshal(entry)
	if err != nil {
		return nil, err
	}
	changed, err := addJSON(before, append(r.keys, "parley"), raw)
	if err != nil {
		return nil, err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, changed, "", "  "); err != nil {
		return nil, err
	}
	indented.WriteByte('\n')
	return indented.Bytes(), nil
}

// addJSON sets the value at a path of objects, and leaves everything else as it is.
func addJSON(before json.RawMessage, path []string, value json.RawMessage) (json.RawMessage, error) {
	if len(path) == 0 {
		return value, nil
	}
	members := map[string]json.RawMessage{}
	if len(bytes.TrimSpace(before)) > 0 {
		if err := json.Unmarshal(before, &members); err != nil {
			return nil, errors.New("it is not plain JSON with an object at " + path[0])
		}
	}
	inner, err := addJSON(members[path[0]], path[1:], value)
	if err != nil {
		return nil, err
	}
	members[path[0]] = inner
	return json.Marshal(members)
}

// tomlTable is the heading of the server in TOML.
const tomlTable = "[mcp_servers.parley]"

// addTOML replaces the table of the server, or appends it. Tables end where the next one begins.
func addTOML(before []byte, entry mcpServer) []byte {
	var kept []string
	inside := false
	for _, line := range strings.Split(strings.TrimRight(string(before), "\n"), "\n") {
		if trimmed := strings.TrimSpace(line); strings.HasPrefix(trimmed, "[") {
			inside = trimmed == tomlTable || strings.HasPrefix(trimmed, "[mcp_servers.parley.")
		}
		if !inside {
			kept = append(kept, line)
		}
	}
	text := strings.TrimRight(strings.Join(kept, "\n"), "\n")
	if text != "" {
		text += "\n\n"
	}
	var arguments []string
	for _, argument := range entry.Args {
		arguments = append(arguments, strconv.Quote(argument))
	}
	text += fmt.Sprintf("%s\ncommand = %s\nargs = [%s]\n", tomlTable, strconv.Quote(entry.Command), strings.Join(arguments, ", "))
	if folder := entry.Env["PARLEY_HOME"]; folder != "" {
		text += fmt.Sprintf("env = { PARLEY_HOME = %s }\n", strconv.Quote(folder))
	}
	return []byte(text)
}
