package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// agentEnvironment are variables that runtimes of agents set for the commands that they run.
var agentEnvironment = []string{"CLAUDECODE", "CODEX_SANDBOX", "CURSOR_AGENT"}

func inAgentRuntime() bool {
	for _, name := range agentEnvironment {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// person reports whether a person runs the command: standard input and standard output are terminals, and no agent's runtime is
// around it. This keeps an agent from raising its limits by mistake, not a program that wants to.
func (to console) person() bool {
	return isTerminal(os.Stdin) && isTerminal(to.out) && !inAgentRuntime()
}

// plain reports whether the output is JSON by default, because a program reads it.
func (to console) plain() bool { return !isTerminal(to.out) || inAgentRuntime() }

// ask asks a person for a line of text. The caller has checked that there is one.
func (to console) ask(question string) (string, error) {
	fmt.Fprintf(to.err, "%s", question)
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(line), nil
}

// confirm asks a person for a yes.
func (to console) confirm(question string) (bool, error) {
	response, err := to.ask(question + " [y/N] ")
	return strings.EqualFold(response, "y") || strings.EqualFold(response, "yes"), err
}

// askSecret asks a person for a text that is not shown.
func (to console) askSecret(question string) (string, error) {
	fmt.Fprintf(to.err, "%s", question)
	secret, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(to.err)
	return string(secret), err
}

// personOnly returns an error that names the command for a person, unless a person runs it.
func (to console) personOnly(what, command string) error {
	if to.person() {
		return nil
	}
	return &personError{what, command}
}

// agreeToChange asks a person whether to do something. Without one it is not done.
func (to console) agreeToChange(what, command string) error {
	if err := to.personOnly(what, command); err != nil {
		return err
	}
	yes, err := to.confirm("This will " + what + ". Agree?")
	if err == nil && !yes {
		err = errors.New("not agreed; nothing was changed")
	}
	return err
}

// personError means that only a person may do something.
type personError struct{ what, command string }

func (e *personError) Error() string {
	return fmt.Sprintf("only a person at a terminal can %s: run %s in a terminal of your own", e.what, e.command)
}
