package operator

import (
	"crypto/ecdsa"
	"strings"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/payment/channel"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// Channels are the settings for payment channels (x402 scheme batch-settlement), not for broadcast channels.
type Channels struct {
	AuthorizerKey settings.Secret `env:"PARLEY_AUTHORIZER_KEY" placeholder:"KEY"`
	WithdrawDelay time.Duration   `name:"channel-withdraw-delay" env:"PARLEY_CHANNEL_WITHDRAW_DELAY" default:"24h" placeholder:"TIME"`
	MinDeposit    string          `name:"channel-min-deposit" env:"PARLEY_CHANNEL_MIN_DEPOSIT" default:"1.00" placeholder:"USD"`
	ClaimSum      string          `name:"channel-claim-sum" env:"PARLEY_CHANNEL_CLAIM_SUM" default:"1.00" placeholder:"USD"`
	MaxUnclaimed  string          `name:"channel-max-unclaimed" env:"PARLEY_CHANNEL_MAX_UNCLAIMED" default:"1000.00" placeholder:"USD"`
	IdleRefund    time.Duration   `name:"channel-idle-refund" env:"PARLEY_CHANNEL_IDLE_REFUND" default:"0s" placeholder:"TIME"`
}

const (
	// claimAge is the age of a payment channel's oldest voucher at which the server claims, unless withdrawals are faster.
	claimAge = 24 * time.Hour
	// One payment channel may leave ten times the sum unclaimed at which the server claims, or a hundredth of what all may. It is reached
	// only if claims fail for long.
	unclaimedFactor, unclaimedShare = 10, 100
)

// Config converts the settings. The error lists all invalid ones.
func (c Channels) Config(payee string) (channel.Config, error) {
	if c.AuthorizerKey.Value == "" {
		return channel.Config{}, nil
	}
	var wrong settings.Wrong
	config := channel.Config{WithdrawDelay: c.WithdrawDelay, ClaimAge: min(claimAge, c.WithdrawDelay), IdleRefund: c.IdleRefund}
	var err error
	config.Authorizer, config.FormerAuthorizers, err = authorizerKeys(c.AuthorizerKey, payee)
	wrong.Add(err)
	delay := c.WithdrawDelay
	wrong.Check(delay >= x402.MinWithdrawDelay*time.Second && delay <= x402.MaxWithdrawDelay*time.Second && delay%time.Second == 0,
		"channel-withdraw-delay", delay, "whole seconds, from 15m to 720h")
	wrong.Check(c.IdleRefund >= 0, "channel-idle-refund", c.IdleRefund, "0s or longer")
	for _, sum := range []struct {
		into       *uint64
		name, text string
	}{{&config.MinDeposit, "channel-min-deposit", c.MinDeposit}, {&config.ClaimSum, "channel-claim-sum", c.ClaimSum},
		{&config.MaxUnclaimedTotal, "channel-max-unclaimed", c.MaxUnclaimed},
	} {
		*sum.into, err = agent.ParseUSD(sum.text)
		wrong.Check(err == nil && *sum.into > 0 && *sum.into <= x402.MaxChannelAmount/unclaimedFactor, sum.name, sum.text,
			"a sum in USD above 0, such as 1.00")
	}
	wrong.Check(config.MaxUnclaimedTotal >= config.ClaimSum, "channel-max-unclaimed", c.MaxUnclaimed,
		"a sum in USD, at least that of --channel-claim-sum")
	config.MaxUnclaimed = min(max(unclaimedFactor*config.ClaimSum, config.MaxUnclaimedTotal/unclaimedShare), config.MaxUnclaimedTotal)
	return config, wrong.Err()
}

// authorizerKeys returns the current private key and the former ones. The error does not contain a key.
func authorizerKeys(secret settings.Secret, payee string) (current *ecdsa.PrivateKey, former []*ecdsa.PrivateKey, err error) {
	const setting = "authorizer-key"
	keys, err := parseKeys(setting, secret, "a private key", evm.HexToECDSA)
	if err != nil {
		return nil, nil, err
	}
	for _, key := range keys {
		if strings.EqualFold(evm.PubkeyToAddress(key.PublicKey).Hex(), payee) {
			return nil, nil, settings.Invalid(setting, secret, "other keys than the payee's")
		}
	}
	return keys[0], keys[1:], nil
}
