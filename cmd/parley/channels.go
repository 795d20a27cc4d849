package main

import (
	"errors"
	"os"
	"strings"
	"time"

	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
	"github.com/parley-chat/parley/x402/evm"
)

// channels are the settings for payment channels (x402 scheme batch-settlement), not for broadcast channels.
type channels struct {
	AuthorizerKeyFile string        `name:"authorizer-key-file" env:"PARLEY_AUTHORIZER_KEY_FILE" type:"path" placeholder:"FILE" help:"File with the private key (64 hex digits) that signs claims and refunds of payment channels. Without it payment channels are not offered, except by parley dev, which creates a key in its data folder. Use a new key: it holds no money, must not be the payee's, and must not be used with another database."`
	WithdrawDelay     time.Duration `name:"channel-withdraw-delay" env:"PARLEY_CHANNEL_WITHDRAW_DELAY" default:"24h" placeholder:"TIME" help:"How long a payer's withdrawal from its payment channel takes (${default}), from 15m to 720h. What is not claimed by then is lost."`
	MinDeposit        string        `name:"channel-min-deposit" env:"PARLEY_CHANNEL_MIN_DEPOSIT" default:"1.00" placeholder:"USD" help:"The deposit that is suggested to payers (${default} USD)."`
	ClaimAge          time.Duration `name:"channel-claim-age" env:"PARLEY_CHANNEL_CLAIM_AGE" default:"6h" placeholder:"TIME" help:"Claim the vouchers of a payment channel on the blockchain when the oldest one has this age (${default}), at most a quarter of the withdraw delay."`
	ClaimSum          string        `name:"channel-claim-sum" env:"PARLEY_CHANNEL_CLAIM_SUM" default:"1.00" placeholder:"USD" help:"Claim them earlier when they reach this sum (${default} USD)."`
	ExactFirst        bool          `name:"channel-exact-first" env:"PARLEY_CHANNEL_EXACT_FIRST" help:"Offer payment channels after single payments. Clients choose the first scheme that they support."`
}

// config converts the settings. The error lists all invalid ones.
func (c channels) config(payee string) (server.PaymentChannels, error) {
	if c.AuthorizerKeyFile == "" {
		return server.PaymentChannels{}, nil
	}
	var wrong []string
	need := func(ok bool, text string) {
		if !ok {
			wrong = append(wrong, text)
		}
	}
	config := server.PaymentChannels{WithdrawDelay: c.WithdrawDelay, ClaimAge: c.ClaimAge, ExactFirst: c.ExactFirst}
	raw, err := os.ReadFile(c.AuthorizerKeyFile)
	need(err == nil, "--authorizer-key-file (PARLEY_AUTHORIZER_KEY_FILE), a readable file")
	if err == nil {
		// The library's error may quote the key.
		config.Authorizer, err = evm.HexToECDSA(strings.TrimPrefix(strings.TrimSpace(string(raw)), "0x"))
		need(err == nil, "--authorizer-key-file (PARLEY_AUTHORIZER_KEY_FILE) with a private key of 64 hex digits")
		need(err != nil || !strings.EqualFold(evm.PubkeyToAddress(config.Authorizer.PublicKey).Hex(), payee),
			"--authorizer-key-file (PARLEY_AUTHORIZER_KEY_FILE) with another key than the payee's")
	}
	need(c.WithdrawDelay >= x402.MinWithdrawDelay*time.Second && c.WithdrawDelay <= x402.MaxWithdrawDelay*time.Second && c.WithdrawDelay%time.Second == 0,
		"--channel-withdraw-delay (PARLEY_CHANNEL_WITHDRAW_DELAY) in whole seconds, from 15m to 720h")
	need(c.ClaimAge > 0 && c.ClaimAge <= c.WithdrawDelay/4, "--channel-claim-age (PARLEY_CHANNEL_CLAIM_AGE) above 0, at most a quarter of the withdraw delay")
	config.ClaimSum, err = atomicUSD(c.ClaimSum)
	need(err == nil && config.ClaimSum > 0 && config.ClaimSum <= x402.MaxChannelAmount, "--channel-claim-sum (PARLEY_CHANNEL_CLAIM_SUM) in USD above 0, such as 1.00")
	config.MinDeposit, err = atomicUSD(c.MinDeposit)
	need(err == nil && config.MinDeposit > 0 && config.MinDeposit <= x402.MaxChannelAmount, "--channel-min-deposit (PARLEY_CHANNEL_MIN_DEPOSIT) in USD above 0, such as 1.00")
	if wrong != nil {
		return server.PaymentChannels{}, errors.New(strings.Join(wrong, "; "))
	}
	return config, nil
}

// atomicUSD converts dollars with at most six decimals to atomic units.
func atomicUSD(text string) (uint64, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	return x402.AtomicAmount(whole + "." + fraction + strings.Repeat("0", max(0, 6-len(fraction))))
}
