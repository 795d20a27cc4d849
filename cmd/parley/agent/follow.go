package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// What fails is run again after firstRetry, then after twice that, and so on up to longestRetry.
const (
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

func (s *session) follow(ctx context.Context, arguments object) error {
	command, _ := arguments["exec"].(string)
	policy := agent.DefaultPolling
	told := ""
	s.calls.Warn = func(err error) {
		if text := s.agent.Explain(ctx, err).Message; text != told {
			told = text
			s.warn(text + "; fetching goes on, with pauses of at most " + policy.Longest.String())
		}
	}
	err := s.agent.Follow(ctx, policy, func(page *agent.Page) error {
		value, err := s.agent.Inbox(ctx, page, 0)
		if err == nil {
			err = s.print(nil, value)
		}
		if err == nil && command != "" && len(page.Messages) > 0 {
			err = s.insist(ctx, func() error { return s.runFor(ctx, command, page, value) }) // until then the messages are not confirmed
		}
		return err
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it has no other end
	}
	return err
}

// insist does something until it succeeds or ctx ends, with longer and longer pauses. Meanwhile nothing is fetched or paid.
func (s *session) insist(ctx context.Context, do func() error) error {
	for pause := firstRetry; ; pause = min(2*pause, longestRetry) {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err
		}
		s.warn(fmt.Sprintf("--exec: %v; again in %s. The messages stay unread", err, pause))
		if err := console.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// runFor runs a command of the user. The environment has only numbers, ids and names in which every character is seen.
func (s *session) runFor(ctx context.Context, command string, page *agent.Page, value *agent.Value) error {
	text, err := json.Marshal(value.Data)
	if err != nil {
		return err
	}
	var senders, ids []string
	for _, m := range page.Messages {
		senders, ids = append(senders, agent.PlainWord(m.SenderUsername)), append(ids, agent.PlainWord(m.MessageID))
	}
	shell, option := "/bin/sh", "-c"
	if runtime.GOOS == "windows" {
		shell, option = "cmd", "/C"
	}
	cmd := exec.CommandContext(ctx, shell, option, command) //nolint:gosec // the user's own command
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), s.rawErr, s.rawErr
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(one string) bool { return strings.HasPrefix(one, "PARLEY_WALLET_KEY=") }),
		"PARLEY_MESSAGES="+strconv.Itoa(len(page.Messages)), "PARLEY_FROM="+strings.Join(senders, " "),
		"PARLEY_MESSAGE_IDS="+strings.Join(ids, " "))
	return cmd.Run()
}
