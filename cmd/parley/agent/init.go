package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

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
	RPCURL      string     `name:"rpc-url" env:"PARLEY_RPC_URL" placeholder:"URL"`
	Yes         bool       `help:"Agree without a question to the terms and to the price of the account: 1.001 USD, once for a wallet."`
}

// DefaultServer is the address at which parley dev serves.
const DefaultServer = "http://127.0.0.1:8402"

// Run makes what is missing. Two of them at the same time would make two keys, and keep one, so they take turns.
func (c *initCommand) Run(ctx context.Context, s *session) error {
	home, err := agentHome(s.flags.Home)
	if err == nil {
		err = os.MkdirAll(home, 0o700)
	}
	if err == nil {
		err = agent.CheckFolder(home) // before a file is made in it
	}
	if err != nil {
		return err
	}
	lock, err := lockfile.Wait(ctx, filepath.Join(home, ".init.lock"))
	if err != nil {
		return fmt.Errorf("wait for another parley init: %w", err)
	}
	defer lock.Release()
	s.initFlags = func() string {
		return flag("username", c.Username) + flag("description", c.Description) + flag("network", c.Network)
	}
	if err := s.load(); err != nil {
		return err
	}
	return c.run(ctx, s)
}

func (c *initCommand) run(ctx context.Context, s *session) error {
	server := strings.TrimSuffix(cmp.Or(s.flags.ServerURL, s.config.Server, DefaultServer), "/")
	published, err := agent.ReadPublished(ctx, server)
	if err != nil {
		return fmt.Errorf("%w; name another server with --server URL, or start one with: parley dev", err)
	}
	if s.config.Address == "" {
		if err := c.chooseName(s, false); err != nil { // before a wallet is made
			return err
		}
	}
	if err := c.openWallet(s, published.PlayMoney(server)); err != nil {
		return err
	}
	terms, err := s.agent.Terms(ctx, server, cmp.Or(c.Network, s.config.Network))
	if err != nil {
		return err
	}
	account, err := s.agent.HasAccount()
	if err != nil {
		return err
	}
	if published.PlayMoney(server) && terms.Network != agent.PlayNetwork {
		return fmt.Errorf("%s publishes that it takes play money, and asks for payments on %s; nothing was paid", server, terms.Network)
	}
	if err := c.agree(ctx, s, terms, account); err != nil {
		return err
	}
	s.config.Server, s.config.Network, s.config.PlayMoney = terms.Server, terms.Network, published.PlayMoney(server)
	if err := c.chooseEndpoint(ctx, s, published.Facilitator); err != nil {
		return err
	}
	if err := saveConfig(s.home, s.config); err != nil {
		return err
	}
	if account && s.config.Username != "" {
		return c.finish(ctx, s, terms)
	}
	if !account {
		if err := c.waitForMoney(ctx, s, terms, published.Facilitator); err != nil {
			return err
		}
	}
	body, err := c.register(ctx, s)
	if refused, ok := errors.AsType[*agent.RefusedError](err); ok && isPoor(refused) {
		return c.poor(s, terms, "too little")
	}
	if err != nil {
		return err
	}
	var own client.OwnAgent
	if err := json.Unmarshal(body, &own); err != nil {
		return fmt.Errorf("the server's response is not as the contract says: %w", err)
	}
	s.config.Username = own.Username
	if err := saveConfig(s.home, s.config); err != nil {
		return err
	}
	return c.finish(ctx, s, terms)
}

// openWallet opens the wallet, whose key it makes if there is none.
func (c *initCommand) openWallet(s *session, playMoney bool) error {
	place, err := s.choosePlace(playMoney)
	if err != nil {
		return err
	}
	if place == agent.PlaceFile && s.config.PlayMoney && !playMoney && s.flags.Secrets == "" {
		return console.Usagef(
			"the keys in %s are in a plaintext file because they were made for play money; name another folder with PARLEY_HOME", s.home)
	}
	if before := s.config.Secrets; before != "" && before != place {
		if err := s.openSecrets(before); err != nil { // the wallet's passphrase is there
			return err
		}
		err := s.agreeToChange("keep the API key of this wallet in another place than "+before, "parley init --secrets "+quoted(place))
		if err != nil {
			return err
		}
	}
	if err := s.openSecrets(place); err != nil {
		return err
	}
	signer, made, err := s.makeSigner()
	if err != nil {
		return err
	}
	if made {
		fmt.Fprintf(s.Err, "made the wallet %s\n", signer.Address())
	}
	if before := s.config.Address; before != "" && before != signer.Address() {
		if err := s.agreeToChange("use another wallet in this folder than "+before+"; PARLEY_HOME names another folder",
			"parley init"); err != nil {
			return err
		}
	}
	fmt.Fprintf(s.Err, "the wallet's key is stored in: %s; the API key will be stored in: %s\n", s.keyPlace, place)
	if place == agent.PlaceFile {
		note := "because --secrets file asks for it"
		if s.flags.Secrets == "" {
			note = "because this is play money"
		}
		fmt.Fprintf(s.Err, "NOTE: secrets are in the plaintext file %s, %s\n", agent.SecretsFile(place, s.home), note)
	}
	s.config.Secrets, s.config.Address = place, signer.Address()
	if made {
		s.config.PlayMoney = playMoney // the place was chosen for that
	}
	if command := os.Getenv("PARLEY_SIGNER"); command != "" {
		s.config.Signer = command
	}
	if err := saveConfig(s.home, s.config); err != nil {
		return err
	}
	return s.openAgent(signer)
}

// chooseEndpoint takes the endpoint of the blockchain. What it says about refused payments gives them back to the limits. So only a
// person may change it once the wallet has paid something.
func (c *initCommand) chooseEndpoint(ctx context.Context, s *session, facilitator string) error {
	if s.config.PlayMoney {
		s.config.RPCURL = strings.TrimSuffix(facilitator, "/") + "/rpc"
		return nil
	}
	if c.RPCURL == "" || c.RPCURL == s.config.RPCURL {
		return nil
	}
	used, err := s.agent.Ledger().Used(ctx)
	if err == nil && used {
		err = s.agreeToChange("change the endpoint of the blockchain (--rpc-url, PARLEY_RPC_URL) of this wallet", "parley init --rpc-url URL")
	}
	if err != nil {
		return err
	}
	s.config.RPCURL = c.RPCURL
	return nil
}

// agree shows the terms and lets the wallet pay them, if a person agrees or --yes does.
func (c *initCommand) agree(ctx context.Context, s *session, terms *agent.Agreement, account bool) error {
	if err := c.chooseName(s, account); err != nil {
		return err
	}
	limits, _, _, err := s.agent.Ledger().Limits(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "server   %s\nnetwork  %s, token %s\npayee    %s\nwallet   %s\n",
		terms.Server, terms.Network, terms.Asset, terms.Payee, s.agent.Address())
	fmt.Fprintf(s.Err, "prices   message 0.005, channel message 0.025, reading 0.001 USD; all of them: parley prices\n")
	fmt.Fprintf(s.Err, "limits   %s USD per call, %s per day, %s of it for polls; above that a person is asked\n",
		agent.USD(limits.PerCall), agent.USD(limits.PerDay), agent.USD(limits.Polls))
	if account {
		return s.agreeAgain(terms)
	}
	fmt.Fprintf(s.Err, "account  %s costs 1.00 USD, once, and 0.001 USD to read it\n", agent.VisibleName(c.Username))
	if c.Yes {
		return s.agreeAgain(terms)
	}
	if !s.Person() {
		return console.Usagef("there is no terminal to ask you in; read the terms above and add --yes to agree")
	}
	if err := s.decide("Agree and create the account?", "agree to the price of an account", "parley init"); err != nil {
		return err
	}
	return s.agent.Agree(terms, true)
}

// chooseName asks a person for a username that is possible, three times. A wallet that has an account keeps its name.
func (c *initCommand) chooseName(s *session, account bool) (err error) {
	if account {
		if c.Username != "" && s.config.Username != "" && c.Username != s.config.Username {
			fmt.Fprintf(s.Err, "NOTE: the account of this wallet is %s; --username %s is ignored\n", agent.PlainWord(s.config.Username),
				agent.VisibleName(c.Username))
		}
		return nil
	}
	if c.Username == "" && !s.Person() {
		return console.Usagef("name the account with --username NAME")
	}
	const form = "a username has 1 to 32 characters of a-z, 0-9 and _"
	for tries := 0; c.Username == "" && tries < 3; tries++ {
		if c.Username, err = s.Ask("Username (a-z, 0-9 and _): "); err != nil {
			return err
		}
		if !agent.IsUsername(c.Username) {
			fmt.Fprintln(s.Err, form)
			c.Username = ""
		}
	}
	if !agent.IsUsername(c.Username) {
		return console.Usagef("%s", form)
	}
	return nil
}

// agreeAgain agrees to terms. If they are not those that were agreed before, it asks a person.
func (s *session) agreeAgain(terms *agent.Agreement) error {
	err := s.agent.Agree(terms, false)
	if !errors.Is(err, agent.ErrOtherTerms) || !s.Person() {
		return err
	}
	fmt.Fprintln(s.Err, err)
	if noErr := s.decide("Agree to these terms in place of them?", "agree to other terms", "parley init"); noErr != nil {
		return errors.Join(err, noErr)
	}
	return s.agent.Agree(terms, true)
}

// register makes the account, or shows the one that is there. It goes on where an earlier run was interrupted. A reservation of the
// username that has expired is lost, and made again once.
func (c *initCommand) register(ctx context.Context, s *session) (json.RawMessage, error) {
	register := s.agent.RegisterOnce
	if s.Person() {
		register = s.agent.RegisterApproved
	}
	reserved, err := s.agent.Reserved(ctx)
	if err != nil {
		return nil, err
	}
	if reserved != nil && time.Now().After(reserved.Until) {
		tellLost(s, reserved)
	}
	body, err := register(ctx, c.Username, c.Description)
	if refused, ok := errors.AsType[*agent.RefusedError](err); ok && refused.Code == client.ErrorCodeInvalidTAN {
		tellLost(s, &agent.Reserved{Username: c.Username})
		body, err = register(ctx, c.Username, c.Description)
	}
	if limit, over := errors.AsType[*agent.LimitError](err); over && !s.Person() {
		sent, sentErr := s.agent.SentForAccounts(ctx)
		if sentErr != nil {
			return nil, sentErr
		}
		what := "agree to the price of an account (" + limit.Reason() + ")"
		if sent > 0 {
			what = fmt.Sprintf("agree to another payment for an account: %s USD were sent for one before. If they were not taken, "+
				"and the blockchain shows that after some minutes (--rpc-url), the same command goes on. Otherwise", agent.USD(sent))
		}
		return nil, &personError{what, "parley init"}
	}
	return body, err
}

// tellLost says that the payment for a username is lost.
func tellLost(s *session, reserved *agent.Reserved) {
	fmt.Fprintf(s.Err, "the reservation of the username %s has expired before the account was made: the 0.01 USD for it are lost; "+
		"reserving it again for 0.01 USD\n", agent.VisibleName(reserved.Username))
}

// finish prints what there is now.
func (c *initCommand) finish(ctx context.Context, s *session, terms *agent.Agreement) error {
	value := object{"username": s.config.Username, "server": terms.Server, "network": terms.Network, "address": s.agent.Address(),
		"wallet_key": s.keyPlace, "secrets": s.config.Secrets, "play_money": s.config.PlayMoney, "folder": s.home}
	return s.print(ctx, value, func(w io.Writer) {
		fmt.Fprintf(w, "%s is ready. Try: %s\n", cmp.Or(s.config.Username, "the account"),
			s.runnable("parley send NAME TEXT, parley inbox, parley status"))
	})
}
