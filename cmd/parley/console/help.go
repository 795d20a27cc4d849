package console

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Topic is a text of the help that is not about one command.
type Topic struct {
	Name    string
	Entries [][2]string // a term, and what it means
}

// Topics are all topics of the help.
type Topics []Topic

// Help is the command that prints the help of another one, or about a topic.
type Help struct {
	Command []string `arg:"" optional:"" predictor:"command" help:"A command, such as wallet report, or flags, json, exit-codes, environment."`
}

// Run prints what the command prints with --help.
func (c *Help) Run(ctx *kong.Context, to Console, topics Topics) error {
	name := strings.Join(c.Command, " ")
	if i := slices.IndexFunc(topics, func(topic Topic) bool { return topic.Name == name }); i >= 0 {
		return topics[i].print(to.Out)
	}
	asked, err := kong.Trace(ctx.Kong, append(c.Command, "--help"))
	if err == nil {
		err = asked.Error
	}
	if err != nil {
		return Usage(err)
	}
	return asked.PrintUsage(false)
}

func (t Topic) print(to io.Writer) error {
	table := Table(to)
	for _, entry := range t.Entries {
		fmt.Fprintf(table, "%s\t%s\n", entry[0], entry[1])
	}
	return table.Flush()
}

// CommandName returns the name of a command without the program's and without aliases, such as "wallet limit".
func CommandName(command *kong.Node) string {
	if command.Parent == nil {
		return ""
	}
	return strings.TrimSpace(CommandName(command.Parent) + " " + command.Name)
}

// FlagsLast moves the flags at the beginning of a command line behind the name of the command, where kong expects them. flags are the
// ones that may stand there.
func FlagsLast(args []string, flags []*kong.Flag) []string {
	command := 0
	for command < len(args) && strings.HasPrefix(args[command], "--") {
		name, _, hasValue := strings.Cut(args[command][2:], "=")
		i := slices.IndexFunc(flags, func(flag *kong.Flag) bool { return flag.Name == name })
		if i < 0 {
			break
		}
		command++
		if !hasValue && !flags[i].IsBool() {
			command++
		}
	}
	if command >= len(args) {
		return args
	}
	return slices.Concat(args[command:command+1], args[:command], args[command+1:])
}

// AddHelp sets the help of flags and arguments that have none in their tags, where longer texts do not fit. A key is a name, or a command
// and a name, such as "payments channels state". ${default} stands for the default.
func AddHelp(model *kong.Application, texts map[string]string) {
	_ = kong.Visit(model, func(visited kong.Visitable, next kong.Next) error { // returns no error, because the function does not
		node, ok := visited.(*kong.Node)
		if !ok {
			return next(nil)
		}
		values := node.Positional
		for _, flag := range node.Flags {
			values = append(values[:len(values):len(values)], flag.Value)
		}
		path := CommandName(node)
		for _, value := range values {
			if value.Help != "" {
				continue
			}
			text, special := texts[path+" "+value.Name]
			if !special {
				text = texts[value.Name]
			}
			value.Help = strings.ReplaceAll(text, "${default}", value.Default)
		}
		return next(nil)
	})
}
