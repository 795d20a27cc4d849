package operator

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/internal/devnet"
)

func TestChannelSettings(t *testing.T) {
	t.Parallel()
	secret := func(lines ...string) settings.Secret { return settings.Secret{Value: strings.Join(lines, "\n")} }
	key, payees := devnet.Accounts()[2].PrivateKey, devnet.Accounts()[3]
	good := Channels{AuthorizerKey: secret(key), WithdrawDelay: 24 * time.Hour, MinDeposit: "1.00", ClaimSum: "1.00",
		MaxUnclaimed: "1000"}
	config, err := good.Config(payees.Address)
	if err != nil || config.Authorizer == nil || config.MinDeposit != 1_000_000 || config.WithdrawDelay != 24*time.Hour {
		t.Errorf("good settings: %+v, %v", config, err)
	}
	first := config.Authorizer
	rotated := good
	rotated.AuthorizerKey = secret(devnet.Accounts()[4].PrivateKey, key)
	if config, err := rotated.Config(payees.Address); err != nil || len(config.FormerAuthorizers) != 1 ||
		!config.FormerAuthorizers[0].Equal(first) {
		t.Errorf("a new key and a former one: %+v, %v", config, err)
	}
	if config, err := (Channels{MinDeposit: "nonsense"}).Config(payees.Address); err != nil || config.Authorizer != nil {
		t.Errorf("without a key: %+v, %v, want no payment channels", config, err)
	}
	for name, test := range map[string]struct {
		change func(c *Channels)
		want   string
	}{"no key": {func(c *Channels) { c.AuthorizerKey = secret("hunter2") }, "64 hex digits"},
		"the zero key":              {func(c *Channels) { c.AuthorizerKey = secret(strings.Repeat("0", 64)) }, "64 hex digits"},
		"the payee's key":           {func(c *Channels) { c.AuthorizerKey = secret(payees.PrivateKey) }, "other keys"},
		"a former key of the payee": {func(c *Channels) { c.AuthorizerKey = secret(key, payees.PrivateKey) }, "other keys"},
		"a bad second key":          {func(c *Channels) { c.AuthorizerKey = secret(key, "hunter2") }, "64 hex digits"},
		"a low bound":               {func(c *Channels) { c.MaxUnclaimed = "0.99" }, "max-unclaimed"},
		"a negative idle time":      {func(c *Channels) { c.IdleRefund = -time.Hour }, "idle-refund"},
		"a short delay":             {func(c *Channels) { c.WithdrawDelay = time.Minute }, "delay"},
		"a long delay":              {func(c *Channels) { c.WithdrawDelay = 721 * time.Hour }, "delay"},
		"half a second":             {func(c *Channels) { c.WithdrawDelay += time.Second / 2 }, "delay"},
		"no sum":                    {func(c *Channels) { c.ClaimSum = "0" }, "claim-sum"},
		"no deposit":                {func(c *Channels) { c.MinDeposit = "0" }, "deposit"},
		"a malformed deposit":       {func(c *Channels) { c.MinDeposit = "one dollar" }, "deposit"},
	} {
		bad := good
		test.change(&bad)
		if _, err := bad.Config(payees.Address); err == nil || !strings.Contains(err.Error(), test.want) ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error about %s", name, err, test.want)
		}
	}
}
