package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/getkin/kin-openapi/openapi3"

	"github.com/parley-chat/parley/agent"
	"github.com/parley-chat/parley/cmd/parley/console"
)

// pricesCommand shows prices, and lets a person accept others.
type pricesCommand struct {
	Flags  agentFlags `embed:""`
	Accept bool       `help:"Accept the present prices and terms of the server. For a person."`
	Of     []string   `arg:"" optional:"" predictor:"operation" help:"A command, such as group create, or an operation, with its arguments."`
}

func (c *pricesCommand) Run(ctx context.Context, s *session, command *kong.Context) error {
	c.Of = strings.Fields(console.Canonical(command.Model.Node, c.Of))
	if c.Accept {
		if err := s.personOnly("accept other prices or terms", "parley prices --accept"); err != nil {
			return err
		}
	}
	prices, err := s.prices(ctx)
	if err != nil {
		return err
	}
	if c.Accept {
		return c.accept(ctx, s, prices)
	}
	shown := []object{}
	for _, o := range prices {
		if !c.about(o.ID) {
			continue
		}
		shown = append(shown, object{
			"operation": o.ID, "price_usd": agent.USD(o.Agreed), "command": agent.CallerOf(o.ID).Command, "summary": o.Summary})
		if o.ID == strings.Join(c.Of, " ") {
			shown[0]["arguments"] = o.Arguments
		}
	}
	if len(shown) == 0 && !c.free(command.Model) {
		return console.Usagef("no price is listed for %q; parley prices lists all", agent.Visible(strings.Join(c.Of, " ")))
	}
	return s.print(ctx, object{"prices": shown}, func(w io.Writer) {
		if len(shown) == 0 {
			fmt.Fprintln(w, "free")
			return
		}
		table := console.Table(w)
		fmt.Fprintln(table, "USD\tCOMMAND\tOPERATION\t")
		for _, o := range shown {
			fmt.Fprintf(table, "%s\tparley %s\t%s\t%s\n", o["price_usd"], o["command"], o["operation"], o["summary"])
		}
		if arguments, one := shown[0]["arguments"].(*openapi3.Schema); one {
			writeArguments(table, arguments)
		}
		_ = table.Flush() // into memory
	})
}

// OperationNames returns the operations of the contract, for completion.
func OperationNames() (names []string) {
	prices, _ := agent.ContractPrices() // without the contract nothing is completed
	for _, o := range prices {
		names = append(names, o.ID)
	}
	return names
}

// writeArguments writes the arguments of an operation, for parley call.
func writeArguments(table io.Writer, arguments *openapi3.Schema) {
	for _, name := range slices.Sorted(maps.Keys(arguments.Properties)) {
		schema, need := arguments.Properties[name].Value, ""
		if slices.Contains(arguments.Required, name) {
			need = "required"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, strings.Join(schema.Type.Slice(), ", "), need, schema.Description)
	}
}

// free reports whether the prices of a command are asked for that makes no call.
func (c *pricesCommand) free(model *kong.Application) bool {
	return slices.ContainsFunc(model.Leaves(true), func(leaf *kong.Node) bool { return console.CommandName(leaf) == strings.Join(c.Of, " ") })
}

// lookups find out whom a name or an id means that the contacts lack. Some commands make no other calls.
var (
	lookups        = []string{"getAgentProfile", "searchChannels", "getGroupChat", "getPrivateChat"}
	lookupCommands = []string{"contacts add", "contacts trust", "contacts hold"}
)

// about reports whether the command is about an operation.
func (c *pricesCommand) about(operation string) bool {
	of := strings.Join(c.Of, " ")
	if slices.Contains(lookupCommands, of) {
		return slices.Contains(lookups, operation)
	}
	return of == "" || of == operation || slices.ContainsFunc(agent.Callers, func(caller agent.Caller) bool {
		return slices.Contains(caller.Operations, operation) && strings.HasPrefix(caller.Command+" ", of+" ")
	})
}

// prices returns the agreed prices, or without a wallet the prices of the contract.
func (s *session) prices(ctx context.Context) ([]agent.Priced, error) {
	err := s.open(ctx)
	if errors.Is(err, errNoWallet) {
		return agent.ContractPrices()
	}
	if err != nil {
		return nil, err
	}
	return s.agent.Prices(), nil
}

// accept shows what the server asks for, and agrees to it if the person does.
func (c *pricesCommand) accept(ctx context.Context, s *session, prices []agent.Priced) error {
	if s.agent == nil || s.agent.Server() == "" {
		return errNoWallet
	}
	published, err := agent.ReadPublished(ctx, s.agent.Server())
	if err != nil {
		return err
	}
	terms, err := s.agent.Terms(ctx, s.agent.Server(), s.config.Network)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.Err, "server   %s\nnetwork  %s, token %s\npayee    %s\n", terms.Server, terms.Network, terms.Asset, terms.Payee)
	accepted, changed := map[string]uint64{}, []object{}
	for _, o := range prices {
		asked, known := published.Prices[o.ID]
		if !known || asked == o.Agreed || !c.about(o.ID) {
			continue
		}
		accepted[o.ID] = asked
		changed = append(changed, object{"operation": o.ID, "before_usd": agent.USD(o.Agreed), "price_usd": agent.USD(asked)})
		fmt.Fprintf(s.Err, "%s: %s instead of %s USD\n", o.ID, agent.USD(asked), agent.USD(o.Agreed))
	}
	if err := s.decide(fmt.Sprintf("Agree to these terms and to %d changed prices?", len(changed)), "accept other prices or terms",
		"parley prices --accept"); err != nil {
		return err
	}
	if err := errors.Join(s.agent.Agree(terms, true), s.agent.AcceptPrices(accepted)); err != nil {
		return err
	}
	return s.print(ctx, object{"accepted": changed}, func(w io.Writer) { fmt.Fprintln(w, "agreed") })
}
