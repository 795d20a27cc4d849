package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

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

// CanAsk reports whether a person can be asked: standard input is a terminal, and no agent's runtime is around the command.
func CanAsk() bool { return IsTerminal(os.Stdin) && !inAgentRuntime() }

// Person reports whether a person runs the command: one can be asked, and standard output is a terminal too. This keeps an agent from
// raising its limits by mistake, not a program that wants to.
func (to Console) Person() bool { return CanAsk() && IsTerminal(to.Out) }

// Plain reports whether the output is JSON by default, because a program reads it.
func (to Console) Plain() bool { return !IsTerminal(to.Out) || inAgentRuntime() }

// terminal opens the terminal of the process: what is typed there, not what is piped into the command.
func terminal() (*os.File, error) {
	name := "/dev/tty"
	if runtime.GOOS == "windows" {
		name = "CONIN$"
	}
	opened, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("there is no terminal to ask you in: %w", err)
	}
	return opened, nil
}

// Ask asks a person for a line of text. The caller has checked that there is one.
func (to Console) Ask(question string) (string, error) {
	from, err := terminal()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(to.Err, "%s", question)
	line, err := unlessInterrupted(from, func() (string, error) { return bufio.NewReader(from).ReadString('\n') })
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
	from, err := terminal()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(to.Err, "%s", question)
	secret, err := unlessInterrupted(from, func() (string, error) {
		secret, err := term.ReadPassword(int(from.Fd()))
		return string(secret), err
	})
	fmt.Fprintln(to.Err)
	return secret, err
}

// ErrInterrupted means that a signal came instead of an answer.
var ErrInterrupted = errors.New("interrupted")

// unlessInterrupted reads from the terminal, and then closes it. A signal ends it with the terminal as it was: a read cannot be ended.
func unlessInterrupted(from *os.File, read func() (string, error)) (text string, err error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	state, _ := term.GetState(int(from.Fd()))
	done := make(chan struct{})
	var line string
	var failed error
	go func() {
		defer close(done)
		line, failed = read()
		_ = from.Close() // it was only read
	}()
	select {
	case <-done:
		return line, failed
	case <-signals:
		if state != nil {
			_ = term.Restore(int(from.Fd()), state)
		}
		return "", ErrInterrupted
	}
}
