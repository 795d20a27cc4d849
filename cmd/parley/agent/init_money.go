package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// poor returns the error that says what to send where.
func (c *initCommand) poor(s *session, terms *agent.Agreement, balance string) error {
	next := "parley init"
	if c.Yes {
		next += " --yes"
	}
	return &poorError{fmt.Sprintf("the wallet %s has %s USDC and needs %s; send USDC on %s to it and run the same command again",
		s.agent.Address(), balance, agent.USD(accountPrice), terms.Network), next}
}

// accountPrice is what an account costs, and the price of the first calls.
const accountPrice = 1_010_000

// waitForMoney gives play money to a new wallet, or waits until a person has sent money to it.
func (c *initCommand) waitForMoney(ctx context.Context, s *session, terms *agent.Agreement, facilitator string) error {
	if used, err := s.agent.Ledger().Used(ctx); err != nil || used {
		return err // an interrupted run has paid a part; the server refuses the payment if there is too little
	}
	chain := s.chain()
	if chain == nil {
		fmt.Fprintf(s.Err, "send at least %s USDC on %s to %s; with --rpc-url this program waits until they are there\n",
			agent.USD(accountPrice), terms.Network, s.agent.Address())
		if !s.Person() {
			return nil // the server refuses the payment if there is too little
		}
		_, err := s.Ask("Press Enter when they have arrived: ")
		return err
	}
	for told := false; ; told = true {
		balance, err := chain.Balance(ctx, terms.Asset, s.agent.Address())
		if err != nil {
			return fmt.Errorf("read the balance of the wallet: %w", err)
		}
		switch {
		case balance >= accountPrice:
			return nil
		case s.config.PlayMoney:
			return Fund(ctx, facilitator, s.agent.Address())
		case !s.Person():
			return c.poor(s, terms, agent.USD(balance))
		case !told:
			fmt.Fprintf(s.Err, "send at least %s USDC on %s to %s; waiting (Ctrl-C stops, the same command goes on)\n",
				agent.USD(accountPrice-balance), terms.Network, s.agent.Address())
		}
		if err := console.Sleep(ctx, 5*time.Second); err != nil {
			return err
		}
	}
}

// Fund asks the play-money network for money.
func Fund(ctx context.Context, facilitator, address string) error {
	body, err := json.Marshal(map[string]string{"address": address})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(facilitator, "/")+"/fund", bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("get play money: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // it is not read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("get play money: %s", response.Status)
	}
	return nil
}
