package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// Console is the standard output and standard error of a command.
type Console struct {
	Out, Err io.Writer
}

// AgentEnvironment are variables that runtimes of agents set for the commands that they run.
var AgentEnvironment = []string{"CLAUDECODE", "CODEX_SANDBOX", "CURSOR_AGENT"}

func inAgentRuntime() bool {
	return slices.ContainsFunc(AgentEnvironment, func(name string) bool { return os.Getenv(name) != "" })
}

func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Person reports whether a person runs the command: standard input and standard output are terminals, and no agent's runtime is
// around it. This keeps an agent from raising its limits by mistake, not a program that wants to.
func (to Console) Person() bool {
	return IsTerminal(os.Stdin) && IsTerminal(to.Out) && !inAgentRuntime()
}

// Plain reports whether the output is JSON by default, because a program reads it.
func (to Console) Plain() bool { return !IsTerminal(to.Out) || inAgentRuntime() }

// Ask asks a person for a line of text. The caller has checked that there is one.
func (to Console) Ask(question string) (string, error) {
	fmt.Fprintf(to.Err, "%s", question)
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(line), nil
}

// Confirm asks a person for a yes.
func (to Console) Confirm(question string) (bool, error) {
	response, err := to.Ask(question + " [y/N] ")
	return strings.EqualFold(response, "y") || strings.EqualFold(response, "yes"), err
}

// AskSecret asks a person for a text that is not shown.
func (to Console) AskSecret(question string) (string, error) {
	fmt.Fprintf(to.Err, "%s", question)
	secret, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(to.Err)
	return string(secret), err
}
