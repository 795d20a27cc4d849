package agent

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// Commands in errors, questions and outputs are written as for the standard folder. Whoever runs them may have another shell, without the
// environment of this one.

// findMentions sets what finds the commands of an agent in a text.
func (s *session) findMentions(model *kong.Application) {
	var names []string
	for _, command := range model.Children {
		if command.Group != nil && command.Group.Key == Group {
			names = append(names, command.Name)
		}
	}
	s.mentions = regexp.MustCompile(`\bparley (` + strings.Join(names, "|") + `)\b`)
}

// runnable adds to the commands in a text the folder, unless it is the standard one, and to parley init what was given to it.
func (s *session) runnable(text string) string {
	folder := ""
	standard, err := agentHome("")
	if home, wrong := agentHome(s.flags.Home); wrong == nil && (err != nil || home != standard) {
		folder = flag("home", home)
	}
	return s.mentions.ReplaceAllStringFunc(text, func(mention string) string {
		name := strings.TrimPrefix(mention, "parley ")
		if name == "init" {
			name += flag("server", s.flags.ServerURL) + s.initFlags()
		}
		return "parley" + folder + " " + name
	})
}

// phrases are what the server says to callers of its interface, and what a command says in place of it.
var phrases = strings.NewReplacer(
	"add it first with POST /chat/group/edit", "add it first with: parley group add",
	"unpin_message_ids of POST /chat/group/edit", "parley group unpin",
	"set successor_agent_id to another current member", "name another current member with --successor NAME",
)

// inFlags are the names of the contract's arguments in a command.
var inFlags = map[string]string{
	"n": "-n", "page_size": "-n", "page": "--page", "before_message_id": "--before", "reply_to_message_id": "--reply-to",
	"query": "the words", "content": "the message", "message_id": "the id of the message", "description": "--description",
	"username": "the username", "emoji": "the emoji", "name": "the name", "message": "--message", "transfer_message": "--message",
	"unpin_message_ids": "the ids of the messages", "chat_id": "the conversation", "channel_id": "the channel",
}

var argumentName = regexp.MustCompile(`(^|; )([a-z_]+)(\.[0-9]+)?: `)

// inCommands returns a message of the server, or of a check against its contract, in the words of the command line. The command call has
// those of the contract.
func (s *session) inCommands(text string) string {
	if s.command == "call" || s.agent == nil {
		return text
	}
	return s.agent.InCallers(phrases.Replace(text), func(operation string) string { return "parley " + agent.CallerOf(operation).Command })
}

// wrongArguments returns the error for arguments that are not as the contract says.
func (s *session) wrongArguments(operation string, err error) error {
	if s.command == "call" {
		return console.Usage(err)
	}
	text := strings.TrimPrefix(err.Error(), operation+": ")
	return console.Usagef("%s", argumentName.ReplaceAllStringFunc(text, func(found string) string {
		parts := argumentName.FindStringSubmatch(found)
		return parts[1] + cmp.Or(inFlags[parts[2]], parts[2]) + ": "
	}))
}

// flag returns a flag with its value as a shell reads it, or "" without a value.
func flag(name, value string) string {
	if value == "" {
		return ""
	}
	return " --" + name + " " + quoted(value)
}

// plainWord matches what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quoted returns a word as a shell reads it.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
