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
	Exec          filled        `placeholder:"COMMAND"`
	ForwardTo     string        `placeholder:"URL"`
	Budget        string        `default:"0.10" placeholder:"USD" help:"With --follow: what fetching may cost in 24 hours (${default})."`
	MaxWait       time.Duration `default:"15m" help:"With --follow: the longest pause between two fetches (${default})."`
	WakeStrangers bool          `help:"With --exec and --forward-to: also for messages of strangers. Their text is not shown."`
}

// forwardTime limits one request of --forward-to.
const forwardTime = 30 * time.Second

// What fails is run again after firstRetry, then after twice that, and so on up to longestRetry.
const (
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

// follow shows messages as they come.
func (c *inboxCommand) follow(ctx context.Context, s *session) error {
	f := c.Following
	target, err := forwardURL(f.ForwardTo)
	if err != nil {
		return console.Usage(err)
	}
	policy, err := f.policy(ctx, s)
	if err != nil {
		return err
	}
	if s.pay.DryRun {
		_, err := s.call(ctx, fetchOperation, "", object{"wait": int(policy.Wait.Seconds())})
		return err
	}
	s.calls.Waiting = nil // it waits all the time
	err = s.agent.Follow(ctx, policy, nil, func(page *client.UnreadPage) error {
		if err := c.show(s, page); err != nil {
			return err
		}
		return c.wake(ctx, s, page, target) // until then the messages are not confirmed
	})
	if ctx.Err() != nil {
		err = fmt.Errorf("stopped; fetches: %d, cost: %s USD", s.calls.Calls(), agent.USD(s.calls.Charged()))
	}
	return err
}

// fetchOperation fetches unread messages.
const fetchOperation = "listUnreadMessages"

// policy returns how often to fetch, and tells what that costs.
func (f *following) policy(ctx context.Context, s *session) (agent.Polling, error) {
	budget, err := console.ParseUSD(f.Budget)
	if err != nil {
		return agent.Polling{}, console.Usagef("--budget: %w", err)
	}
	fetch, err := s.agent.Operation(fetchOperation)
	if err != nil {
		return agent.Polling{}, err
	}
	limits, left, _, err := s.agent.Ledger().Limits(ctx)
	if err != nil {
		return agent.Polling{}, err
	}
	ends := "--budget " + agent.USD(budget)
	if most := min(limits.Polls, limits.PerDay); most < budget {
		budget = most
		ends = fmt.Sprintf("the limit of the wallet, which is below --budget: %s USD a day for fetches (parley wallet limits)", agent.USD(most))
	}
	policy, err := f.within(budget, fetch.Agreed)
	if err == nil && fetch.Agreed > 0 {
		cost := func(fetches int) string { return agent.USD(uint64(fetches) * fetch.Agreed) } //nolint:gosec // not negative
		fmt.Fprintf(s.Err, "fetching costs at most %s USD an hour and %s USD a day, %s USD for each fetch, which waits up to %s; "+
			"it is limited by %s; %s USD are left today%s\n",
			cost(policy.Most(time.Hour)), cost(policy.PerDay), agent.USD(fetch.Agreed), policy.Wait, ends, agent.USD(left.Polls),
			f.slower(policy))
	}
	return policy, err
}

// slower says that the budget allows only longer pauses than --max-wait, or "".
func (f *following) slower(policy agent.Polling) string {
	pause := 24 * time.Hour / time.Duration(policy.PerDay)
	if pause <= policy.Longest {
		return ""
	}
	return fmt.Sprintf("; so that this lasts a day, pauses are longer than --max-wait: the fetch after the first is in about %s",
		pause.Round(time.Minute))
}

// within returns how often to fetch for a price.
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
	return s.encode(s.Out, object{"messages": shown, "notices": notices, "note": dataNote})
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
		err = s.insist(ctx, "--exec", func() error { return runFor(ctx, s, string(c.Following.Exec), shown, text) })
	}
	if err == nil && target != nil {
		direct := &http.Client{Timeout: forwardTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		err = s.insist(ctx, "--forward-to", func() error { return forward(ctx, direct, target, text) })
	}
	return err
}

// insist does something until it succeeds or ctx ends, with longer and longer pauses. Meanwhile nothing is fetched or paid.
func (s *session) insist(ctx context.Context, what string, do func() error) error {
	for pause := firstRetry; ; pause = min(2*pause, longestRetry) {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err
		}
		fmt.Fprintf(s.Err, "parley: %s: %v; again in %s. The messages stay unread, and are in: parley inbox --cached\n", what, err, pause)
		if err := console.Sleep(ctx, pause); err != nil {
			return err
		}
	}
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
	return cmd.Run()
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
func forward(ctx context.Context, direct *http.Client, target *url.URL, text []byte) error {
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
