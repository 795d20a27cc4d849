//go:build !noserver

package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	calls "github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/internal/testkit"
)

// cost is a row of the table of costs in docs/agents.md.
type cost struct{ tools, amounts []string }

// costTable returns the rows by command.
func costTable(t *testing.T) map[string]cost {
	t.Helper()
	document, err := os.ReadFile("../../docs/agents.md")
	testkit.NoError(t, err)
	_, table, _ := strings.Cut(string(document), "| command | MCP tool | USD |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	word, amount, costs := regexp.MustCompile("`[a-z_ ]+`"), regexp.MustCompile(`\d\.\d+`), map[string]cost{}
	words := func(cell string) (found []string) {
		for _, one := range word.FindAllString(cell, -1) {
			found = append(found, strings.Trim(one, "`"))
		}
		return found
	}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		for _, command := range words(cells[1]) {
			if _, twice := costs[command]; twice {
				t.Errorf("%s is in two rows", command)
			}
			costs[command] = cost{words(cells[2]), amount.FindAllString(cells[3], -1)}
		}
	}
	return costs
}

// TestCostTable: the table has each command that can cost something, with its MCP tool and the prices of the contract.
func TestCostTable(t *testing.T) {
	t.Parallel()
	contract, err := calls.LoadContract()
	testkit.NoError(t, err)
	costs := costTable(t)
	want := map[string]cost{}
	for _, caller := range calls.Callers {
		for _, id := range caller.Operations {
			if price := calls.USD(contract[id].Price); contract[id].Price > 0 && !slices.Contains(want[caller.Command].amounts, price) {
				want[caller.Command] = cost{[]string{caller.Tool}, append(want[caller.Command].amounts, price)}
			}
		}
	}
	for command, cost := range want {
		if fmt.Sprint(costs[command]) != fmt.Sprint(cost) {
			t.Errorf("the table has %v for %s, want %v", costs[command], command, cost)
		}
		delete(costs, command)
	}
	if len(costs) > 0 {
		t.Errorf("the table has commands that cost nothing: %v", costs)
	}
	parser, err := kong.New(&agent.Commands{}, kong.Name("parley"))
	testkit.NoError(t, err)
	for _, leaf := range parser.Model.Leaves(false) {
		delete(want, console.CommandName(leaf))
	}
	if len(want) > 0 {
		t.Errorf("the table has commands that do not exist: %v", want)
	}
}

// TestCosts: each command pays what the table says, and a name is looked up once.
func TestCosts(t *testing.T) {
	t.Parallel()
	server, costs, paid := playServer(t), costTable(t), map[string]bool{}
	alice, bob := newUser(t, server.URL), newUser(t, server.URL)
	pays := func(u *user, line string, lookups ...string) map[string]any {
		t.Helper()
		args := strings.Fields(line)
		command := args[0]
		if two := strings.Join(args[:min(2, len(args))], " "); costs[two].amounts != nil {
			command = two
		}
		sums := costs[command].amounts
		if command == "init" {
			sums = []string{"1.001"} // all three
		}
		result := u.run(args...)
		if !slices.ContainsFunc(sums, func(sum string) bool { return result["paid_usd"] == total(t, append(lookups, sum)...) }) {
			t.Errorf("parley %s paid %v, want one of %v and %v for names", line, result["paid_usd"], sums, lookups)
		}
		paid[command] = true
		return result
	}
	approved := func(u *user, line string) map[string]any {
		t.Helper()
		u.approve(strings.Fields(line)...)
		return pays(u, line)
	}
	pays(alice, "init --username alice --yes")
	pays(bob, "init --username bob --yes")
	if plan := alice.run("who", "bob", "--dry-run"); len(plan["calls"].([]any)) != 1 {
		t.Errorf("the look-up of a name is not the answer to who: %v", plan)
	}
	pays(alice, "who bob")
	alice.run("contacts", "add", "bob")
	alone := []string{"profile show", "profile edit --description x", "key rotate", "inbox", "find bob", "who bob", "contacts block bob",
		"contacts unblock bob", "send bob hi", "read bob", "read bob --grep hi", "who bob --chat"}
	for _, line := range alone {
		pays(alice, line)
	}
	message := alice.run("send", "bob", "two")["message_id"].(string)
	pays(alice, "react "+message+" 👍")
	pays(alice, "react "+message+" --remove")

	group := approved(alice, "group create team --member bob")["chat_id"].(string)
	pinned := pays(alice, "send team hello")["message_id"].(string)
	for _, line := range []string{
		"read team", "group info team", "group edit team --discoverable", "group pin team " + pinned, "group unpin team " + pinned,
		"group remove team bob", "group add team bob", "group ban team bob", "group unban team bob",
	} {
		pays(alice, line)
	}
	pays(bob, "group join "+group)
	pays(alice, "group add team bob")
	pays(alice, "group transfer team bob --yes")
	if got := bob.fails(agent.ExitRefused, "group", "leave", group); !strings.Contains(got["error"].(string), "with --successor NAME") {
		t.Errorf("without a successor: %v", got)
	}
	pays(bob, "group leave "+group+" --successor alice", "0.001")
	pays(alice, "group delete team --yes")

	approved(alice, "channel create weather")
	pays(bob, "channel subscribe #weather", "0.005")
	for _, line := range []string{"read #weather", "channel info #weather", "channel unsubscribe #weather", "channel subscribe #weather"} {
		pays(bob, line)
	}
	for _, line := range []string{
		"send #weather sunny", "channel edit #weather --description x", "channel remove #weather bob", "channel ban #weather bob",
		"channel unban #weather bob", "channel transfer #weather bob --yes",
	} {
		pays(alice, line)
	}
	pays(bob, "channel delete #weather --yes")
	if known := fmt.Sprint(alice.run("contacts")["contacts"]); strings.Contains(known, "name:alice") {
		t.Errorf("alice is in her own contacts: %s", known)
	}
	if status := alice.run("status"); status["deposited_usd"] == "0.00" {
		t.Errorf("the deposit is missing: %v", status)
	}
	for _, want := range []string{"deposited", "0.00"} {
		if refunded := alice.run("wallet", "refund")["refunded_usd"]; refunded == "0.00" != (want == "0.00") {
			t.Errorf("%v came back, want %s", refunded, want)
		}
	}
	for command := range costs {
		if !paid[command] {
			t.Errorf("no call of parley %s was paid for", command)
		}
	}
}

// total returns the sum of amounts of USD.
func total(t *testing.T, amounts ...string) string {
	t.Helper()
	var sum uint64
	for _, amount := range amounts {
		one, err := console.ParseUSD(amount)
		testkit.NoError(t, err)
		sum += one
	}
	return calls.USD(sum)
}
