// Package agent has the commands of an agent: the face of [agent.Actions] on the command line.
package agent

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/agent"
)

// Group is the group of the commands of an agent, OtherGroup that of help and version, and commonGroup that of the flags that all commands
// of an agent have.
const (
	Group       = "agent"
	OtherGroup  = "other"
	commonGroup = "common"
)

var Groups = []kong.Group{{Key: Group, Title: "Commands for agents:"}}

var own = map[string]any{"init": initCommand{}, "mcp": mcpCommand{}, "config": configCommand{}, "wallet export": walletExport{}}

var aliases = map[string]string{"channel join": "subscribe", "channel leave": "unsubscribe", "group add": "invite", "contacts list": "ls"}

// placeholders are what a flag takes, where that is not its name.
var placeholders = map[string]string{"reply_to": "ID", "before": "ID", "message_id": "ID", "grep": "REGEXP", "find": "TEXT", "n": "N",
	"description": "TEXT", "message": "TEXT", "members": "AGENT", "successor": "AGENT", "exec": "COMMAND", "since": "DAY", "wait": "SECONDS",
	"page": "N", "offset": "N"}

// nouns are the summaries of commands with subcommands.
var nouns = map[string]string{
	"group": "Create, change, join and leave group chats.", "channel": "Create, change and subscribe to channels.",
	"contacts": "List known names, block agents.", "profile": "Show or change the account.", "key": "Replace the API key.",
	"wallet": "Balance, daily limit, report, refund.",
}

func Commands() (options []kong.Option) {
	done := map[string]bool{}
	for _, a := range agent.Actions {
		name, _, several := strings.Cut(a.Name, " ")
		switch {
		case done[name]:
		case several:
			options = append(options, kong.DynamicCommand(name, nouns[name], Group, reflect.New(nounType(name)).Interface()))
		default:
			options = append(options, kong.DynamicCommand(name, a.Summary, Group, reflect.New(actionType(a, true)).Interface()))
		}
		done[name] = true
	}
	return options
}

func flagFields() []reflect.StructField {
	return []reflect.StructField{{Name: "Flags", Type: reflect.TypeFor[agentFlags](), Tag: `embed:""`}}
}

func nounType(noun string) reflect.Type {
	fields := flagFields()
	for _, a := range agent.Actions {
		verb, ours := strings.CutPrefix(a.Name, noun+" ")
		if !ours {
			continue
		}
		tag := fmt.Sprintf(`cmd:"" name:%q help:%q aliases:%q`, verb, a.Summary, aliases[a.Name])
		if len(fields) == 1 && !a.Changes { // the first one runs if the noun is named alone, unless it changes something
			tag += ` default:"1"`
		}
		fields = append(fields, reflect.StructField{Name: "C" + strings.ToUpper(verb), Type: actionType(a, false), Tag: reflect.StructTag(tag)})
	}
	return reflect.StructOf(fields)
}

// actionType returns the struct of an action, with the flags of all commands if it is a command of its own.
func actionType(a *agent.Action, alone bool) reflect.Type {
	if command, ok := own[a.Name]; ok {
		return reflect.TypeOf(command)
	}
	var fields []reflect.StructField
	if alone {
		fields = flagFields()
	}
	for i, p := range a.Params {
		help, holder := p.Limited(), cmp.Or(placeholders[p.Name], strings.ToUpper(p.Flag()))
		if p.Enum != nil {
			help, holder = p.Help, strings.Join(p.Enum, "|")
		}
		if p.Stdin {
			help += map[bool]string{true: "; - or a pipe is standard input", false: "; - is standard input"}[p.Required]
		}
		if p.Default != "" {
			help += "; default " + p.Default
		}
		kind, tag := reflect.TypeFor[*string](), fmt.Sprintf(`name:%q help:%q`, p.Flag(), sentence(help))
		switch {
		case p.Type == agent.List:
			kind = reflect.TypeFor[[]string]()
		case p.Type == agent.Flag && p.Name != "discoverable":
			kind = reflect.TypeFor[bool]()
		case p.Type == agent.Flag:
			kind, tag = reflect.TypeFor[*bool](), tag+` negatable:""`
		}
		if p.Arg {
			tag += ` arg:""`
		}
		if p.Arg && (!p.Required || p.Stdin) {
			tag += ` optional:""`
		}
		if p.Name == "operation" {
			tag += ` predictor:"operation"`
		}
		if p.Short != "" {
			tag += fmt.Sprintf(` short:%q`, p.Short)
		}
		if !p.Arg && p.Type != agent.Flag {
			tag += fmt.Sprintf(` placeholder:%q`, holder)
		}
		fields = append(fields, reflect.StructField{Name: fmt.Sprint("P", i), Type: kind, Tag: reflect.StructTag(tag)})
	}
	return reflect.StructOf(fields)
}

func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] + "." }

func argumentsOf(command *kong.Node, a *agent.Action) map[string]any {
	values := append([]*kong.Value{}, command.Positional...)
	for _, flag := range command.Flags {
		values = append(values, flag.Value)
	}
	arguments := map[string]any{}
	for _, p := range a.Params {
		for _, value := range values {
			if value.Name != p.Flag() || !value.Target.IsValid() || value.Target.IsZero() {
				continue
			}
			target := value.Target
			if target.Kind() == reflect.Pointer {
				target = target.Elem()
			}
			arguments[p.Name] = target.Interface()
		}
	}
	return arguments
}

// CommonFlags returns the flags that all commands of an agent have.
func CommonFlags(model *kong.Application) []*kong.Flag {
	one := slices.IndexFunc(model.Children, func(command *kong.Node) bool { return command.Name == "init" })
	return slices.DeleteFunc(slices.Clone(model.Children[one].Flags), func(flag *kong.Flag) bool {
		return flag.Group == nil || flag.Group.Key != commonGroup
	})
}

func OperationNames() []string {
	contract, _ := agent.LoadContract() // without it nothing is completed
	return slices.Sorted(maps.Keys(contract))
}
