package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// following are the flags of parley inbox --follow.
type following struct {
	Follow        bool          `help:"Wait for messages until interrupted. One JSON object per line, or text on a terminal."`
	Exec          string        `placeholder:"COMMAND"`
	ForwardTo     string        `placeholder:"URL"`
	Budget        string        `default:"0.10" placeholder:"USD" help:"With --follow: what fetching may cost in 24 hours (${default})."`
	MaxWait       time.Duration `default:"15m" help:"With --follow: the longest pause between two fetches (${default})."`
	WakeStrangers bool          `help:"With --exec and --forward-to: also for messages of strangers. Their text is not shown."`
}

const (
	// forwardTime limits one request of --forward-to, and forwardTries how often it is repeated.
	forwardTime  = 30 * time.Second
	forwardTries = 3
)

// follow shows messages as they come.
func (c *inboxCommand) follow(ctx context.Context, s *session) error {
	f := c.Following
	target, err := forwardURL(f.ForwardTo)
	if err != nil {
		return console.Usage(err)
	}
	policy, err := f.policy(s)
	if err != nil {
		return err
	}
	return s.agent.Follow(ctx, policy, nil, func(page *client.UnreadPage) error {
		if err := c.show(s, page); err != nil {
			return err
		}
		if err := c.wake(ctx, s, page, target); err != nil {
			fmt.Fprintln(s.Err, "parley:", err) // the messages stay in the local copy
		}
		return nil
	})
}

// policy returns how often to fetch.
func (f *following) policy(s *session) (agent.Polling, error) {
	budget, err := console.ParseUSD(f.Budget)
	if err != nil {
		return agent.Polling{}, console.Usagef("--budget: %w", err)
	}
	fetch, err := s.agent.Operation("listUnreadMessages")
	if err != nil {
		return agent.Polling{}, err
	}
	return f.within(budget, fetch.Agreed)
}

// Within returns how often to fetch for a price.
func (f *following) within(budget, price uint64) (agent.Polling, error) {
	policy := agent.DefaultPolling
	policy.Longest = max(f.MaxWait, policy.First)
	if price == 0 {
		return policy, nil // any budget lasts
	}
	policy.PerDay = int(budget / price) //nolint:gosec // far below the limit
	if policy.PerDay == 0 {
		return agent.Polling{}, console.Usagef("--budget: one fetch costs %s USD", agent.USD(price))
	}
	return policy, nil
}

// show writes a page of messages.
func (c *inboxCommand) show(s *session, page *client.UnreadPage) error {
	shown, notices, _, err := c.view(s, []client.UnreadPage{*page})
	if err != nil {
		return err
	}
	if !s.wantsJSON() {
		var text bytes.Buffer
		writeMessages(&text, shown)
		return s.write(text.String())
	}
	return s.encode(s.Out, object{"messages": nonNil(shown), "notices": nonNil(notices), "note": dataNote})
}

// wake runs the command and sends the request for messages that came. The text of strangers is held back.
func (c *inboxCommand) wake(ctx context.Context, s *session, page *client.UnreadPage, target *url.URL) error {
	if c.Following.Exec == "" && target == nil {
		return nil
	}
	contacts, err := s.agent.Contacts()
	if err != nil {
		return err
	}
	v := view{contacts: contacts, self: s.config.Username}
	var shown []shownMessage
	for _, m := range page.Messages {
		if message := v.unread(m); !message.Held || c.Following.WakeStrangers {
			shown = append(shown, message)
		}
	}
	if shown == nil {
		return nil
	}
	text, err := json.Marshal(object{"messages": shown, "note": dataNote})
	if err != nil {
		return err
	}
	if c.Following.Exec != "" {
		err = runFor(ctx, s, c.Following.Exec, shown, text)
	}
	if target != nil {
		err = errors.Join(err, forward(ctx, target, text))
	}
	return err
}

// runFor runs a command of the user. The environment has only numbers, ids and names in which every character is seen.
func runFor(ctx context.Context, s *session, command string, shown []shownMessage, text []byte) error {
	var senders, ids []string
	for _, m := range shown {
		senders, ids = append(senders, m.From), append(ids, m.ID)
	}
	cmd := agent.Shell(ctx, command)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), s.rawErr, s.rawErr
	cmd.Env = append(environmentWithoutSecrets(), "PARLEY_MESSAGES="+strconv.Itoa(len(shown)),
		"PARLEY_FROM="+strings.Join(senders, " "), "PARLEY_MESSAGE_IDS="+strings.Join(ids, " "))
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("--exec: %w; the messages are in: parley inbox --cached", err)
	}
	return nil
}

// environmentWithoutSecrets is the environment without the keys of the wallet.
func environmentWithoutSecrets() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == "PARLEY_WALLET_KEY" || name == "PARLEY_PASSPHRASE"
	})
}

// forwardURL checks the URL of --forward-to.
func forwardURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // none
	}
	target, err := url.Parse(text)
	if err != nil || target.Host == "" {
		return nil, fmt.Errorf("--forward-to: %q is no URL", text)
	}
	if host := target.Hostname(); target.Scheme != "https" && host != "localhost" && host != "127.0.0.1" && host != "::1" {
		return nil, errors.New("--forward-to: messages leave this machine only by https://")
	}
	return target, nil
}

// forward sends messages to a URL, which must respond with a status of 2xx. It follows no redirects.
func forward(ctx context.Context, target *url.URL, text []byte) (err error) {
	direct := &http.Client{Timeout: forwardTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for try := range forwardTries {
		if err := console.Sleep(ctx, time.Duration(try)*time.Second); err != nil {
			return err
		}
		if err = forwardOnce(ctx, direct, target, text); err == nil {
			return nil
		}
	}
	return fmt.Errorf("--forward-to: %w; the messages are in: parley inbox --cached", err)
}

func forwardOnce(ctx context.Context, direct *http.Client, target *url.URL, text []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := direct.Do(request)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // the URL may contain a token
		}
		return err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
	_ = response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the URL responded with status %d", response.StatusCode)
	}
	return nil
}
