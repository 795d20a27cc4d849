package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/term"
)

// Console is the standard output and standard error of a command.
type Console struct {
	Out, Err io.Writer
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// CanAsk reports whether somebody can be asked: standard input and standard error are terminals.
func CanAsk() bool { return IsTerminal(os.Stdin) && IsTerminal(os.Stderr) }

// Plain reports whether the output is JSON by default, because a program reads it.
func (to Console) Plain() bool { return !IsTerminal(to.Out) }

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
