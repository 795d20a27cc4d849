package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/internal/lockfile"
)

// initCommand makes everything that an agent needs. Each step is kept, so an interrupted run goes on where it was.
type initCommand struct {
	Flags       agentFlags `embed:""`
	Username    string     `placeholder:"NAME" help:"Name of the account: a-z, 0-9 and _, at most 32 characters."`
	Description string     `placeholder:"TEXT" help:"Text by which others find the account."`
	Network     string     `placeholder:"ID" help:"The blockchain to pay on, such as eip155:8453, if the server takes several."`
	RPCURL      string     `name:"rpc-url" env:"PARLEY_RPC_URL" placeholder:"URL" help:"A JSON-RPC endpoint of the blockchain."`
	Agree       bool       `help:"Agree to the server's present terms and prices in place of those that were agreed."`

	funded bool // with play money
}

// DefaultServer is the address at which parley dev serves.
const DefaultServer = "http://127.0.0.1:8402"

const accountPrice = 1_001_000

// Run makes what is missing. Two of them at the same time would make two keys, and keep one, so they take turns.
func (c *initCommand) Run(ctx context.Context, s *session) error {
	err := s.load() // checks the folder before a file is made in it
	if err == nil {
		err = os.MkdirAll(s.home, 0o700)
	}
	if err != nil {
		return err
	}
	lock, err := lockfile.Wait(ctx, filepath.Join(s.home, ".init.lock"))
	if err != nil {
		return fmt.Errorf("wait for another parley init: %w", err)
	}
	defer lock.Release()
	if err := s.load(); err != nil { // what another one has made
		return err
	}
	server := strings.TrimSuffix(cmp.Or(s.flags.ServerURL, s.config.Server, DefaultServer), "/")
	published, err := agent.ReadPublished(ctx, server)
	if agent.CodeOf(err) == "usage" { // it is no URL
		return err
	}
	if err != nil {
		return fmt.Errorf("%w; name another server with --server URL, or start one with: parley dev", err)
	}
	err = c.run(ctx, s, server, published)
	if f, ok := errors.AsType[*agent.Failure](err); ok && f.Code == "terms_changed" {
		f.Next = "init --agree --server " + agent.Quoted(server)
	}
	return err
}

func (c *initCommand) run(ctx context.Context, s *session, server string, published *agent.Published) error {
	if s.config.Address == "" {
		if err := c.chooseName(s, false); err != nil { // before a wallet is made
			return err
		}
	}
	play := published.PlayMoney(server)
	if play {
		s.config.RPCURL = strings.TrimSuffix(published.Facilitator, "/") + "/rpc"
	} else {
		s.config.RPCURL = cmp.Or(c.RPCURL, s.config.RPCURL)
	}
	if err := c.openWallet(s, server); err != nil {
		return err
	}
	terms, err := s.agent.Terms(ctx, server, cmp.Or(c.Network, s.config.Network))
	if err != nil {
		return err
	}
	if play && terms.Network != agent.PlayNetwork {
		return fmt.Errorf("%s publishes that it takes play money, and asks for payments on %s; nothing was paid", server, terms.Network)
	}
	account, err := s.agent.HasAccount()
	if err == nil {
		err = c.chooseName(s, account)
	}
	if err == nil {
		err = c.agree(s, terms, account)
	}
	if err != nil {
		return err
	}
	s.config.Server, s.config.Network = terms.Server, terms.Network
	if err := saveConfig(s.home, s.config); err != nil {
		return err
	}
	if !account {
		if err := c.fund(ctx, s, published.Facilitator, play); err != nil {
			return err
		}
	}
	if !account || s.config.Username == "" {
		own, err := s.agent.Register(ctx, c.Username, c.Description)
		if err != nil {
			return err
		}
		s.config.Username = own.Username
		if err := cmp.Or(saveConfig(s.home, s.config), c.chooseName(s, true)); err != nil { // an interrupted run may have made another
			return err
		}
	}
	own, err := s.agent.Own(ctx)
	if err != nil || own == nil {
		own = &client.OwnAgent{} // the ledger was lost
	}
	message := agent.PlainWord(s.config.Username) + " is ready. The folder " + s.home + " is the account: keep a copy of it"
	if account && c.Description != "" {
		message += ". The account was there before and keeps its description: parley profile edit changes that"
	}
	return s.print(nil, &agent.Value{Data: object{"message": message, "username": s.config.Username, "agent_id": own.AgentID,
		"server": terms.Server, "network": terms.Network, "asset": terms.Asset, "payee": terms.Payee, "address": s.agent.Address(),
		"wallet_key": s.keyPlace, "secrets": s.config.Secrets, "play_money": play, "funded": c.funded, "home": s.home},
		Parts: []agent.Part{{Line: message}, {Line: "Try: " + s.line("send NAME TEXT")}}})
}

// openWallet opens the wallet, whose key it makes if there is none.
func (c *initCommand) openWallet(s *session, server string) error {
	if err := s.openSecrets(); err != nil {
		return err
	}
	if before := s.config.Secrets; before != "" && before != s.secrets.Place() {
		return agent.Usagef("the keys of this folder are in: %s; name another folder with PARLEY_HOME", before)
	}
	signer, err := s.makeSigner()
	if err != nil {
		return err
	}
	if before := s.config.Address; before != "" && before != signer.Address() {
		return agent.Usagef("this folder is of the wallet %s, and the key is of %s; name another folder with PARLEY_HOME", before,
			signer.Address())
	}
	where := s.secrets.Place()
	if where == agent.PlaceFile {
		where = agent.SecretsFile(s.home) + ", readable by you only"
	}
	fmt.Fprintf(s.Err, "the wallet's key comes from: %s; the API key is stored in: %s\n", s.keyPlace, where)
	s.config.Secrets, s.config.Address = s.secrets.Place(), signer.Address()
	if s.config.Network == "" { // no terms were agreed to: the next init asks this server
		s.config.Server = server
	}
	if err := saveConfig(s.home, s.config); err != nil {
		return err
	}
	return s.openAgent(signer)
}

// chooseName asks for a username if there is a terminal. A wallet that has an account keeps its name.
func (c *initCommand) chooseName(s *session, account bool) (err error) {
	if account {
		if c.Username != "" && s.config.Username != "" && c.Username != s.config.Username {
			return agent.Usagef("the account of this wallet is %s; for another account name another folder with PARLEY_HOME",
				agent.PlainWord(s.config.Username))
		}
		return nil
	}
	if c.Username == "" && console.CanAsk() {
		if c.Username, err = s.Ask("Username (a-z, 0-9 and _): "); err != nil {
			return err
		}
	}
	if !agent.IsUsername(c.Username) {
		return agent.Usagef("name the account with --username NAME: 1 to 32 characters of a-z, 0-9 and _")
	}
	return nil
}

// agree asks whether the wallet pays the terms.
func (c *initCommand) agree(s *session, terms *agent.Agreement, account bool) error {
	if s.flags.Yes || account && !c.Agree {
		return s.agent.Agree(terms, c.Agree)
	}
	text := fmt.Sprintf("%s takes payments on %s to %s", terms.Server, terms.Network, terms.Payee)
	if !account {
		text += ", and an account costs " + agent.USD(accountPrice) + " USD"
	}
	return &agent.Failure{Code: "confirmation_needed", Exit: agent.ExitLimit, Charged: new(false), Question: text + ". Agree?",
		Message: text + "; nothing was paid"}
}

func (c *initCommand) fund(ctx context.Context, s *session, facilitator string, play bool) error {
	if used, err := s.agent.Ledger().Used(ctx); err != nil || used {
		return err // an interrupted run has paid a part; the server refuses the payment if there is too little
	}
	balance, err := s.agent.Balance(ctx)
	switch {
	case errors.Is(err, agent.ErrNoChain):
		fmt.Fprintf(s.Err, "the wallet %s needs %s USDC on %s\n", s.agent.Address(), agent.USD(accountPrice), s.config.Network)
		return nil // the server refuses the payment if there is too little
	case err != nil || balance >= accountPrice:
		return err
	case play:
		c.funded = true
		fmt.Fprintf(s.Err, "the wallet takes play money from %s\n", facilitator)
		return takePlayMoney(ctx, facilitator, s.agent.Address())
	}
	return agent.NoMoney(accountPrice, &balance, s.agent.Address(), s.config.Network)
}

func takePlayMoney(ctx context.Context, facilitator, address string) error {
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
