package mcpserver

import (
	"context"
	"strings"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
)

func status(c *call) error {
	if err := c.showAccount(); err != nil {
		return err
	}
	limits, left, frozen, err := c.agent.Ledger().Limits(c.ctx)
	if err != nil {
		return err
	}
	c.line("limits: %s USD a call, %s a day of which %s for fetching; left today %s, for fetching %s", agent.USD(limits.PerCall),
		agent.USD(limits.PerDay), agent.USD(limits.Polls), agent.USD(left.PerDay), agent.USD(min(left.Polls, left.PerDay)))
	c.facts["limit_per_call"], c.facts["limit_per_day"] = agent.USD(limits.PerCall), agent.USD(limits.PerDay)
	c.facts["left_today"], c.facts["frozen"] = agent.USD(left.PerDay), frozen
	if frozen {
		c.line("The wallet is frozen: nothing is paid until the human ends that.")
	}
	open, err := c.agent.Ledger().Open()
	if err != nil {
		return err
	}
	c.facts["open_payments"] = len(open)
	for _, one := range open {
		c.line("open since %s: %s (%s) with %s; it finishes in the background, or when the same call is made again",
			one.Since.UTC().Format(time.DateTime), agent.CallerOf(one.Intent.Operation).Tool, one.Intent.Operation, said(one.Arguments()))
	}
	if err := c.countStored(); err != nil {
		return err
	}
	if c.flag("service") {
		return c.showService()
	}
	return nil
}

// balanceTime limits how long the status waits for the blockchain.
const balanceTime = 2 * time.Second

// showAccount says who the agent is, as far as that is known for free.
func (c *call) showAccount() error {
	has, err := c.agent.HasAccount()
	if err != nil {
		return err
	}
	own, err := c.agent.Own(c.ctx)
	if err != nil {
		return err
	}
	c.facts["wallet"], c.facts["service"], c.facts["account"] = c.agent.Address(), c.agent.Server(), has
	switch {
	case !has:
		c.line("no account yet: %s", c.registering())
	case own != nil:
		c.line("account %s", agent.PlainWord(own.Username))
		c.facts["username"] = agent.PlainWord(own.Username)
	default:
		c.line("account: its name is not stored; parley_lookup me")
	}
	if c.agent.Server() == "" {
		c.line("wallet %s, no service", c.agent.Address())
		return nil
	}
	c.line("wallet %s, service %s", c.agent.Address(), agent.VisibleName(c.agent.Server()))
	if c.Balance != nil {
		ctx, cancel := context.WithTimeout(c.ctx, balanceTime)
		defer cancel()
		balance, err := c.Balance(ctx)
		if err != nil {
			c.line("balance: the network did not respond")
			return nil //nolint:nilerr // the rest of the status is worth showing
		}
		c.line("balance %s USDC", agent.USD(balance))
		c.facts["balance"] = agent.USD(balance)
	}
	return nil
}

// countStored says what the inbox brought in the last 24 hours.
func (c *call) countStored() error {
	all, err := c.messagesFrom(unreadOperation)
	if err != nil {
		return err
	}
	judged, err := c.judged(all, "")
	if err != nil {
		return err
	}
	recent, held := 0, 0
	for _, m := range judged {
		if time.Since(agent.Time(m.CreatedAt)) < 24*time.Hour {
			recent++
			if m.held {
				held++
			}
		}
	}
	c.line("stored from the last 24 hours: %s, %d of strangers and held", count(recent, "message"), held)
	c.facts["stored_messages"], c.facts["held_messages"] = recent, held
	return nil
}

// showService asks the service for its health and skill.
func (c *call) showService() error {
	var health client.Health
	if err := c.do("getHealth", "", nil, &health); err != nil {
		return err
	}
	var skill struct {
		Skill struct {
			HubURL string `json:"hub_url"`
		} `json:"skill"`
	}
	if err := c.do("getSkill", "", nil, &skill); err != nil {
		return err
	}
	c.line("service: %s. It says: %s %s Skill: %s", agent.PlainWord(string(health.Status)),
		agent.VisibleName(health.Activity.AgentsCount), agent.VisibleName(health.Activity.MessagesSent), agent.VisibleName(skill.Skill.HubURL))
	c.facts["health"] = agent.PlainWord(string(health.Status))
	return nil
}

func prices(c *call) error {
	found := map[string]string{}
	for _, priced := range c.agent.Prices() {
		if strings.Contains(strings.ToLower(priced.ID), strings.ToLower(c.text("name"))) {
			found[priced.ID] = agent.USD(priced.Agreed)
			c.line("%s %s %s", agent.USD(priced.Agreed), priced.ID, c.callerOf(priced.ID))
		}
	}
	c.facts["prices"] = found
	c.line("in USD; a channel, a group and an account need the human's approval by default")
	return nil
}
