//go:build !noserver

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
)

func TestChannelSettings(t *testing.T) {
	t.Parallel()
	file := func(content string) string {
		name := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	key, payees := devnet.Accounts()[2].PrivateKey, devnet.Accounts()[3]
	good := channels{
		AuthorizerKeyFile: file(key + "\n"), WithdrawDelay: 24 * time.Hour, MinDeposit: "1.00", ClaimAge: 6 * time.Hour, ClaimSum: "1.00",
		MaxUnclaimed: "10.00", MaxUnclaimedTotal: "1000",
	}
	config, err := good.config(payees.Address)
	if err != nil || config.Authorizer == nil || config.MinDeposit != 1_000_000 || config.WithdrawDelay != 24*time.Hour {
		t.Errorf("good settings: %+v, %v", config, err)
	}
	first := config.Authorizer
	rotated := good
	rotated.AuthorizerKeyFile = file(devnet.Accounts()[4].PrivateKey + "\n" + key + "\n\n")
	if config, err := rotated.config(payees.Address); err != nil || len(config.FormerAuthorizers) != 1 || !config.FormerAuthorizers[0].Equal(first) {
		t.Errorf("a new key and a former one: %+v, %v", config, err)
	}
	if config, err := (channels{MinDeposit: "nonsense"}).config(payees.Address); err != nil || config.Authorizer != nil {
		t.Errorf("without a key: %+v, %v, want no payment channels", config, err)
	}
	for name, test := range map[string]struct {
		change func(c *channels)
		want   string
	}{
		"no file":                   {func(c *channels) { c.AuthorizerKeyFile = "/nowhere" }, "can be read"},
		"no key":                    {func(c *channels) { c.AuthorizerKeyFile = file("hunter2") }, "64 hex digits"},
		"the zero key":              {func(c *channels) { c.AuthorizerKeyFile = file(strings.Repeat("0", 64)) }, "64 hex digits"},
		"the payee's key":           {func(c *channels) { c.AuthorizerKeyFile = file(payees.PrivateKey) }, "other keys"},
		"a former key of the payee": {func(c *channels) { c.AuthorizerKeyFile = file(key + "\n" + payees.PrivateKey) }, "other keys"},
		"a bad second key":          {func(c *channels) { c.AuthorizerKeyFile = file(key + "\nhunter2") }, "64 hex digits"},
		"a low bound":               {func(c *channels) { c.MaxUnclaimed = "0.99" }, "max-unclaimed"},
		"a low total bound":         {func(c *channels) { c.MaxUnclaimedTotal = "9.99" }, "max-unclaimed-total"},
		"a negative idle time":      {func(c *channels) { c.IdleRefund = -time.Hour }, "idle-refund"},
		"a short delay":             {func(c *channels) { c.WithdrawDelay = time.Minute }, "delay"},
		"a long delay":              {func(c *channels) { c.WithdrawDelay = 721 * time.Hour }, "delay"},
		"half a second":             {func(c *channels) { c.WithdrawDelay += time.Second / 2 }, "delay"},
		"a late claim":              {func(c *channels) { c.ClaimAge = 25 * time.Hour }, "claim-age"},
		"no sum":                    {func(c *channels) { c.ClaimSum = "0" }, "claim-sum"},
		"no deposit":                {func(c *channels) { c.MinDeposit = "0" }, "deposit"},
		"a malformed deposit":       {func(c *channels) { c.MinDeposit = "one dollar" }, "deposit"},
	} {
		bad := good
		test.change(&bad)
		if _, err := bad.config(payees.Address); err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error about %s", name, err, test.want)
		}
	}
}

// TestAuthorizerKey: parley dev creates a key once, for its owner only.
func TestAuthorizerKey(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	var keys []string
	for range 2 {
		path, err := ownKey(data, devAuthorizerKey)
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path) //nolint:gosec // the test's own file
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the key's file is %v, %v, want one for the owner only", info.Mode(), err)
		}
		keys = append(keys, string(content))
	}
	settings := demoChannels
	settings.AuthorizerKeyFile = filepath.Join(data, "authorizer-key")
	if config, err := settings.config(devnet.Payee); keys[0] != keys[1] || err != nil || config.Authorizer == nil {
		t.Errorf("the key is %q, then %q, with the settings %+v, %v", keys[0], keys[1], config, err)
	}
}
