//go:build !noserver

package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/internal/testkit"
)

var amounts = regexp.MustCompile(`\d\.\d+`)

// words are the words of a command line.
var shellWord = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)

// exampleArgs returns the arguments of an example.
func exampleArgs(line string) (args []string) {
	for _, word := range shellWord.FindAllString(line, -1) {
		if word[0] == '\'' || word[0] == '"' {
			word = word[1 : len(word)-1]
		}
		args = append(args, word)
	}
	return args
}

// TestTable walks the table of actions: each has both faces or is for the human only, an operation of the contract, the price that it pays,
// and an example that runs. Each operation has an action, and docs/agents.md has the prices.
func TestTable(t *testing.T) {
	t.Parallel()
	contract, err := agent.LoadContract()
	testkit.NoError(t, err)
	document, err := os.ReadFile("../../docs/agents.md")
	testkit.NoError(t, err)
	made := map[string]bool{}
	human := []string{"init", "wallet limit", "wallet export", "mcp", "config"}
	for _, a := range agent.Actions {
		if (a.Tool == "") != slices.Contains(human, a.Name) {
			t.Errorf("%s has the tool %q", a.Name, a.Tool)
		}
		prices := map[string]bool{}
		for _, id := range a.Operations {
			made[id] = true
			if contract[id].Price > 0 {
				prices[agent.USD(contract[id].Price)] = true
			}
		}
		said := amounts.FindAllString(a.Price, -1)
		for price := range prices {
			if !slices.Contains(said, price) && a.Name != "call" {
				t.Errorf("%s costs %s, and says %q", a.Name, price, a.Price)
			}
		}
		if a.Name != "call" && (len(said) != len(prices) || len(said) == 0 && a.Price != "free") {
			t.Errorf("%s says the price %q, the contract has %v", a.Name, a.Price, prices)
		}
		if !strings.HasPrefix(a.Example, strings.Split(a.Name, " ")[0]) {
			t.Errorf("the example of %s is %s", a.Name, a.Example)
		}
		if a.Price != "free" && a.Tool != "" && a.Name != "call" && (!strings.Contains(string(document), "`"+a.Tool+"`") ||
			!strings.Contains(string(document), "`"+a.Name+"`") && a.Price != "0.002") {
			t.Errorf("the costs in docs/agents.md lack %s", a.Name)
		}
	}
	for id := range contract {
		if !made[id] {
			t.Errorf("no action makes %s", id)
		}
	}
}

// TestExamples runs the examples of the table on the command line, and each action with the same arguments as a tool: both pay what the
// table says.
func TestExamplesRun(t *testing.T) {
	t.Parallel()
	server := playServer(t)
	alice := newUser(t, server.URL)
	line := strings.Replace(agent.ActionNamed("init").Example, "https://parley.example", server.URL, 1)
	if made := alice.run(exampleArgs(line)...); made["paid_usd"] != "1.001" {
		t.Errorf("parley %s: %v", line, made)
	}
	bob := newAgent(t, server.URL, "bob")
	alice.run("wallet", "limit", "5")
	bob.run("wallet", "limit", "5")
	bob.run("who", "alice")
	alice.run("send", "bob", "hello") // they know each other
	tools := toolSession(t, alice)
	group := bob.run("group", "create", "Go readers", "--yes")["chat_id"].(string)
	message, everywhere := "", "paid_usd today_usd limit_usd reserved_usd earlier already"
	contract, err := agent.LoadContract()
	testkit.NoError(t, err)
	run := func(name string) {
		t.Helper()
		a := agent.ActionNamed(name)
		args := exampleArgs(a.Example)
		for i, arg := range args {
			if strings.HasPrefix(arg, "msg_") {
				args[i] = message
			}
			if strings.HasPrefix(arg, "chat_") {
				args[i] = group
			}
		}
		var value map[string]any
		if name == "group join" || name == "channel join" || name == "channel leave" {
			value = map[string]any{"paid_usd": amounts.FindString(a.Price)} // of others' conversations: TestJoinedBefore
		} else {
			value = alice.run(args...)
		}
		if id, ok := value["message_id"].(string); ok && name == "send" {
			message = id
		}
		for field := range value {
			if !slices.Contains(a.Fields(contract), field) && !strings.Contains(everywhere, field) && name != "call" {
				t.Errorf("parley help %s lacks the field %s", name, field)
			}
		}
		paid, _ := value["paid_usd"].(string)
		if want := append(amounts.FindAllString(a.Price, -1), map[bool]string{true: "0.00"}[a.Price == "free"]); a.Name != "call" &&
			!slices.Contains(want, paid) {
			t.Errorf("parley %s paid %s, the table says %s", strings.Join(args, " "), paid, a.Price)
		}
	}
	for _, name := range []string{"status", "prices", "send", "inbox", "read", "find", "who", "react", "group create", "group edit"} {
		run(name)
	}
	message = alice.run("send", "team", "hello")["message_id"].(string)
	for _, name := range []string{"group pin", "group unpin", "group remove", "group add", "group ban", "group unban", "group add",
		"group info", "group transfer", "group join"} {
		run(name)
	}
	alice.run("group", "leave", "team")
	for _, name := range []string{"group create", "group leave", "group create", "group delete", "channel create"} {
		run(name)
	}
	bob.run("channel", "join", "#weather")
	for _, name := range []string{"channel remove", "channel ban", "channel unban", "channel join", "channel leave", "channel info",
		"channel edit", "channel transfer"} {
		run(name)
	}
	bob.run("channel", "delete", "#weather", "--yes")
	for _, name := range []string{"channel create", "channel delete", "contacts list", "contacts block", "contacts unblock", "profile show",
		"profile edit", "key rotate", "wallet balance", "wallet report", "wallet deposits", "wallet refund", "call", "config"} {
		run(name)
	}
	for name, arguments := range map[string]map[string]any{
		"parley_status": {}, "parley_send": {"to": "bob", "text": "hi"}, "parley_inbox": {}, "parley_read": {"conversation": "bob", "n": "5"},
		"parley_find": {"words": "weather"}, "parley_who": {"name": "bob"}, "parley_contacts": {"action": "list"},
		"parley_account": {"action": "edit", "discoverable": "true"}, "parley_wallet": {"action": "deposits"},
		"parley_call": {"operation": "searchAgents", "arguments": `{"query": "weather", "page_size": "5"}`},
	} {
		result, err := tools.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
		testkit.NoError(t, err)
		fields, _ := result.StructuredContent.(map[string]any)
		paid, _ := fields["paid_usd"].(string)
		verb, _ := arguments["action"].(string)
		for _, a := range agent.Actions {
			if a.Tool == name && (verb == "" || a.Verb() == verb) {
				if want := append(amounts.FindAllString(a.Price, -1), map[bool]string{true: "0.00"}[a.Price == "free"]); a.Name != "call" &&
					!slices.Contains(want, paid) || result.IsError {
					t.Errorf("%s %v: %s, paid %s, the table says %s", name, arguments, mustJSON(t, result), paid, a.Price)
				}
				break
			}
		}
	}
	run("wallet limit")
}

// toolSession connects an MCP client to parley mcp.
func toolSession(t *testing.T, u *user) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.CommandTransport{Command: u.command("mcp", "--tools", "all")}, nil)
	testkit.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// TestOneCode: an error has the same code and the same text on the command line and as the result of a tool.
func TestOneCode(t *testing.T) {
	t.Parallel()
	alice := newAgent(t, playServer(t).URL, "alice")
	tools := toolSession(t, alice)
	for _, one := range []struct {
		line, tool string
		arguments  map[string]any
	}{
		{"send nobody hi", "parley_send", map[string]any{"to": "nobody", "text": "hi"}},
		{"send alice hi", "parley_send", map[string]any{"to": "alice", "text": "hi"}},
		{"read bob --grep (", "parley_read", map[string]any{"conversation": "bob", "grep": "("}},
		{"call nonsense", "parley_call", map[string]any{"operation": "nonsense"}},
	} {
		out, errs, _ := alice.try(strings.Fields(one.line)...)
		var failed map[string]any
		testkit.NoError(t, json.Unmarshal([]byte(errs), &failed))
		result, err := tools.CallTool(t.Context(), &mcp.CallToolParams{Name: one.tool, Arguments: one.arguments})
		testkit.NoError(t, err)
		fields, _ := result.StructuredContent.(map[string]any)
		for _, field := range []string{"code", "error", "retryable"} {
			said := strings.NewReplacer("parley inbox", "parley_inbox", "--", "").Replace(fmt.Sprint(failed[field])) // each face names its own
			if fmt.Sprint(fields[field]) != said || !result.IsError {
				t.Errorf("%s: the program says %v, the tool %v\n%s", one.line, failed, fields, out)
			}
		}
	}
}

// TestWords: no help, tool, error or document has the words of what went, and the help lists at most 20 commands for agents.
func TestWords(t *testing.T) {
	t.Parallel()
	gone := regexp.MustCompile(`(?i)\b(trust|hold|held|stranger|witness|freeze|frozen|guard|passphrase|approv)`)
	check := func(from, text string) {
		t.Helper()
		if found := gone.FindString(text); found != "" {
			t.Errorf("%s says %s: %.100s", from, found, text)
		}
	}
	for _, folder := range []string{"../../agent", "../../agent/mcpserver", "agent"} {
		files, err := filepath.Glob(folder + "/*.go")
		testkit.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			testkit.NoError(t, err)
			ast.Inspect(parsed, func(node ast.Node) bool { // every text of help, tools and errors is a literal
				if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
					check(file, literal.Value)
				}
				return true
			})
		}
	}
	for _, document := range []string{"../../docs/agents.md", "../../skills/parley/SKILL.md"} {
		text, err := os.ReadFile(document)
		testkit.NoError(t, err)
		check(document, string(text))
	}
	tools, err := toolSession(t, newUser(t, "http://127.0.0.1:1")).ListTools(t.Context(), nil)
	testkit.NoError(t, err)
	check("a tool", mustJSON(t, tools))
	listed, _, _ := strings.Cut(invoke(t, "help").good(t), "Commands for operators")
	_, listed, _ = strings.Cut(listed, "Commands for agents:\n")
	if n := len(regexp.MustCompile(`(?m)^  [a-z]+ `).FindAllString(listed, -1)); n == 0 || n > 20 {
		t.Errorf("the help lists %d commands for agents", n)
	}
}
