package agent

import (
	"regexp"
	"strings"

	"github.com/alecthomas/kong"
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
