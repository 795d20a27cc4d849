package operator

import (
	"crypto/ecdsa"
	"strings"
	"time"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/payment/channel"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// Channels are the settings for payment channels (x402 scheme batch-settlement), not for broadcast channels.
type Channels struct {
	AuthorizerKeyFile string        `name:"authorizer-key-file" env:"PARLEY_AUTHORIZER_KEY_FILE" type:"path" placeholder:"FILE" help:"File with the private key (64 hex digits) that signs claims and refunds of payment channels. Without it payment channels are not offered, except by parley dev, which creates a key in its data folder. Use a new key: it holds no money, must not be the payee's, and must not be used with another database. Former keys follow, one per line; they claim and refund older payment channels."`
	WithdrawDelay     time.Duration `name:"channel-withdraw-delay" env:"PARLEY_CHANNEL_WITHDRAW_DELAY" default:"24h" placeholder:"TIME" help:"How long a payer's withdrawal from its payment channel takes (${default}), from 15m to 720h. What is not claimed by then is lost."`
	MinDeposit        string        `name:"channel-min-deposit" env:"PARLEY_CHANNEL_MIN_DEPOSIT" default:"1.00" placeholder:"USD" help:"The deposit that is suggested to payers (${default} USD). A tenth of it is the least: each deposit costs the operator a transaction."`
	ClaimAge          time.Duration `name:"channel-claim-age" env:"PARLEY_CHANNEL_CLAIM_AGE" default:"24h" placeholder:"TIME" help:"Claim the vouchers of a payment channel on the blockchain when the oldest one has this age (${default}), at most the withdraw delay. A withdrawal is noticed and claimed earlier."`
	ClaimSum          string        `name:"channel-claim-sum" env:"PARLEY_CHANNEL_CLAIM_SUM" default:"1.00" placeholder:"USD" help:"Claim them earlier when they reach this sum (${default} USD)."`
	MaxUnclaimed      string        `name:"channel-max-unclaimed" env:"PARLEY_CHANNEL_MAX_UNCLAIMED" default:"10.00" placeholder:"USD" help:"Refuse vouchers of a payment channel while more than this is charged and not claimed (${default} USD). At least the claim sum."`
	MaxUnclaimedTotal string        `name:"channel-max-unclaimed-total" env:"PARLEY_CHANNEL_MAX_UNCLAIMED_TOTAL" default:"1000.00" placeholder:"USD" help:"Refuse all vouchers while more than this is charged and not claimed (${default} USD). From half of it on everything is claimed at once."`
	IdleRefund        time.Duration `name:"channel-idle-refund" env:"PARLEY_CHANNEL_IDLE_REFUND" default:"0" placeholder:"TIME" help:"Refund the rest of payment channels that were not used for this time, such as 720h. By default only payers ask for refunds. Each costs a transaction; balances below 0.01 USD are kept."`
	ExactFirst        bool          `name:"channel-exact-first" env:"PARLEY_CHANNEL_EXACT_FIRST" help:"Offer payment channels after single payments. Clients choose the first scheme that they support."`
}

// Config converts the settings. The error lists all invalid ones.
func (c Channels) Config(payee string) (channel.Config, error) {
	if c.AuthorizerKeyFile == "" {
		return channel.Config{}, nil
	}
	var wrong settings.Wrong
	config := channel.Config{WithdrawDelay: c.WithdrawDelay, ClaimAge: c.ClaimAge, IdleRefund: c.IdleRefund, ExactFirst: c.ExactFirst}
	var err error
	config.Authorizer, config.FormerAuthorizers, err = authorizerKeys(c.AuthorizerKeyFile, payee)
	wrong.Add(err)
	wrong.Check(c.WithdrawDelay >= x402.MinWithdrawDelay*time.Second && c.WithdrawDelay <= x402.MaxWithdrawDelay*time.Second && c.WithdrawDelay%time.Second == 0,
		"channel-withdraw-delay", c.WithdrawDelay, "whole seconds, from 15m to 720h")
	wrong.Check(c.ClaimAge > 0 && c.ClaimAge <= c.WithdrawDelay, "channel-claim-age", c.ClaimAge,
		"more than 0s and at most the withdraw delay, "+settings.Shown(c.WithdrawDelay))
	wrong.Check(c.IdleRefund >= 0, "channel-idle-refund", c.IdleRefund, "0s or longer")
	for _, sum := range []struct {
		into         *uint64
		name, text   string
		least        func() uint64
		leastSetting string // least is its value
	}{
		{&config.MinDeposit, "channel-min-deposit", c.MinDeposit, func() uint64 { return 1 }, ""},
		{&config.ClaimSum, "channel-claim-sum", c.ClaimSum, func() uint64 { return 1 }, ""},
		{&config.MaxUnclaimed, "channel-max-unclaimed", c.MaxUnclaimed, func() uint64 { return config.ClaimSum }, "channel-claim-sum"},
		{&config.MaxUnclaimedTotal, "channel-max-unclaimed-total", c.MaxUnclaimedTotal, func() uint64 { return config.MaxUnclaimed }, "channel-max-unclaimed"},
	} {
		*sum.into, err = console.ParseUSD(sum.text)
		remedy := "a sum in USD above 0, such as 1.00"
		if sum.leastSetting != "" {
			remedy = "a sum in USD, at least that of --" + sum.leastSetting
		}
		wrong.Check(err == nil && *sum.into >= sum.least() && *sum.into <= x402.MaxChannelAmount, sum.name, sum.text, remedy)
	}
	return config, wrong.Err()
}

// authorizerKeys reads the private keys from a file. The first one is the current one. The error does not contain a key.
func authorizerKeys(file, payee string) (current *ecdsa.PrivateKey, former []*ecdsa.PrivateKey, err error) {
	const setting = "authorizer-key-file"
	keys, err := readKeys(setting, file, "a private key", evm.HexToECDSA)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		if strings.EqualFold(evm.PubkeyToAddress(key.PublicKey).Hex(), payee) {
			var wrong settings.Wrong
			wrong.Check(false, setting, file, "a file with other keys than the payee's")
			return nil, nil, wrong
		}
	}
	return keys[0], keys[1:], nil
}
