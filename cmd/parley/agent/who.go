package agent

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

type whoCommand struct {
	Flags agentFlags `embed:""`
	Pay   payFlags   `embed:""`
	Chat  bool       `help:"Show the private chat with an agent."`
	Name  string     `arg:"" help:"A username, #channel, the name of a group chat in the contacts, or an id."`
}

func (c *whoCommand) Run(ctx context.Context, s *session) error {
	of, err := s.contact(ctx, c.Name)
	if err != nil {
		return err
	}
	if c.Chat {
		chat, err := s.chat(ctx, of)
		if err != nil {
			return err
		}
		return s.show(ctx, "getPrivateChat", of.ID, object{"chat_id": chat})
	}
	return s.info(ctx, of)
}

// info shows a contact as the server describes it.
func (s *session) info(ctx context.Context, of agent.Contact) error {
	operations := agent.OperationsOf[of.Kind]
	return s.show(ctx, operations.Info, of.ID, object{operations.ID: of.ID})
}

// show makes a call and prints its response. If the look-up of a name made the call, its response is shown.
func (s *session) show(ctx context.Context, operation, peer string, arguments object) error {
	if slices.ContainsFunc(s.planned, func(p plan) bool { return p.Operation == operation }) {
		return errDryRun
	}
	result, err := s.agent.Had(ctx, operation)
	if err == nil && result == nil {
		result, err = s.call(ctx, operation, peer, arguments)
	}
	if err != nil {
		return err
	}
	value, err := s.body(result, peer)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(value))
	value["note"] = dataNote
	return s.print(ctx, value, func(w io.Writer) {
		table, lists := console.Table(w), []string(nil)
		for _, name := range names {
			if rows, _ := value[name].([]any); len(rows) > 0 && asObject(rows[0]) != nil {
				lists = append(lists, name)
				continue
			}
			fmt.Fprintf(table, "%s\t%s\n", name, inline(value[name]))
		}
		_ = table.Flush() // into memory
		for _, name := range lists {
			printRows(w, name, value[name].([]any))
		}
	})
}

func asObject(value any) object {
	found, _ := value.(object)
	return found
}

// printRows prints a list of objects as a table, with the fields of the first as its columns.
func printRows(w io.Writer, name string, rows []any) {
	fmt.Fprintf(w, "%s:\n", name)
	table, first := console.Table(w), asObject(rows[0])
	for _, row := range append([]any{nil}, rows...) {
		for _, column := range slices.Backward(slices.Sorted(maps.Keys(first))) { // username is the last
			cell := strings.ToUpper(column)
			if row != nil {
				cell = inline(asObject(row)[column])
			}
			fmt.Fprintf(table, "%s\t", cell)
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // into memory
}
