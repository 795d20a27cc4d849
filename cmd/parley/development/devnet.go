package development

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/operator"
	"github.com/parley-chat/parley/internal/devnet"
)

// network runs only the play-money network, for a server in another process.
type network struct {
	Listen string `default:"127.0.0.1:8403" help:"Address on which to listen (loopback only)."`
	Data   string `default:".parley" help:"Folder of the play-money ledger, which survives restarts."`
}

func (n *network) Run(ctx context.Context, to console.Console) (err error) {
	ledger, err := openLedger(n.Data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()
	listener, err := devnet.Listen(n.Listen)
	if err != nil {
		return err
	}
	stop := operator.ServeHTTP(ctx, listener, devnet.NewFacilitator(ledger))
	defer stop()
	fmt.Fprintln(to.Err, devnet.Warning)
	fmt.Fprintln(to.Out, "ready", "http://"+listener.Addr().String())
	<-ctx.Done()
	return nil
}

func openLedger(data string) (*devnet.Ledger, error) {
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	return devnet.OpenLedger(data)
}
