package development

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"text/tabwriter"
	"time"

	"github.com/parley-chat/parley/client"
	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/operator"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/x402"
)

// demo runs three agents that call all parts of the API, with real signatures and play money.
type demo struct{}

// demoChannels make one deposit pay for all calls of an agent, and claim soon after the last call.
var demoChannels = operator.Channels{WithdrawDelay: 24 * time.Hour, MinDeposit: "2.00",
	ClaimSum: "0.000001", MaxUnclaimed: "1000.00"}

func (demo) Run(ctx context.Context, to console.Console) (err error) {
	folder, err := os.MkdirTemp("", "parley-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	// If this process runs as root, PostgreSQL runs as another user, who needs access to the folder.
	if err := os.Chmod(folder, 0o755); err != nil {
		return err
	}
	world, err := startWorld(ctx, worldOptions{
		listen: "127.0.0.1:0", facilitatorListen: "127.0.0.1:0", data: folder, volatile: true, channels: demoChannels,
		progress: to.Err, log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.close()) }()
	return (&journey{world: world, table: console.Table(to.Out)}).run(ctx, to.Out)
}

// Travel calls operations of all parts of the API of a server that is paid on the play-money network. It returns the number of charged
// calls.
func Travel(ctx context.Context, url string) (calls int, err error) {
	j := &journey{world: &world{url: url}, table: console.Table(io.Discard)}
	err = j.travel(ctx)
	return j.calls, err
}

// journey is one run of the demo, with its cost.
type journey struct {
	world   *world
	table   *tabwriter.Writer
	calls   int    // that were charged
	charged uint64 // as counted by the payers, in atomic units
	payers  map[string]*client.Payer
	kept    map[string]any // values of responses
}

func (j *journey) run(ctx context.Context, out io.Writer) error {
	fmt.Fprintf(out, "Parley at %s, paid on a play-money network at %s\n\n", j.world.url, j.world.facilitatorURL)
	fmt.Fprintln(j.table, "AGENT\tCALL\tSTATUS\tCHARGED USD\tRESPONSE")
	failed := j.travel(ctx)
	if failed == nil {
		failed = j.waitForPayout(ctx)
	}
	balance := j.world.ledger.Balance(devnet.Payee)
	fmt.Fprintf(j.table, "\ttotal charged\t\t%s\t\n", x402.FormatUSD(j.charged))
	fmt.Fprintf(j.table, "\tpayee's balance on the ledger\t\t%s\t\n", x402.FormatUSD(balance))
	if err := errors.Join(failed, j.table.Flush()); err != nil {
		return err
	}
	if balance != j.charged {
		return errors.New("the ledger does not hold exactly what was charged")
	}
	fmt.Fprintln(out, "\nEvery call with a 200 response was charged its price, and nothing else was charged.")
	return printSettlementCost(out, j.world.ledger.Transactions(), j.calls)
}

// payoutPatience is how long the demo waits for the worker, which claims every five seconds.
const payoutPatience = 30 * time.Second

// waitForPayout waits until the vouchers are claimed and paid out.
func (j *journey) waitForPayout(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, payoutPatience)
	defer cancel()
	for j.world.ledger.Balance(devnet.Payee) < j.charged {
		if err := console.Sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the payout: %w", err)
		}
	}
	return nil
}
