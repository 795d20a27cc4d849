package development

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/operator"
	"github.com/parley-chat/parley/internal/devnet"
)

// dev runs Parley, PostgreSQL and the payment network in one foreground process.
type dev struct {
	Listen            string            `default:"127.0.0.1:8402" help:"Address on which the server listens."`
	FacilitatorListen string            `default:"127.0.0.1:8403" help:"Address of the play-money payment network (loopback only)."`
	Data              string            `default:".parley" help:"Folder of the database and the play-money ledger; both survive restarts."`
	DatabaseURL       string            `env:"PARLEY_DEV_DATABASE_URL" placeholder:"URL" help:"Use this PostgreSQL instead of starting one."`
	Limits            operator.Limits   `embed:"" prefix:"limit-" envprefix:"PARLEY_"`
	Channels          operator.Channels `embed:""`
}

func (d *dev) Run(ctx context.Context, to console.Console) error {
	limits, err := d.Limits.Config(nil)
	if err != nil {
		return console.Usage(err)
	}
	world, err := startWorld(ctx, worldOptions{
		listen: d.Listen, facilitatorListen: d.FacilitatorListen, data: d.Data, databaseURL: d.DatabaseURL, limits: limits, channels: d.Channels,
		progress: to.Err, log: operator.NewLog(to.Err, slog.LevelInfo)})
	if err != nil {
		return err
	}
	fmt.Fprintln(to.Err, devnet.Warning)
	fmt.Fprintln(to.Err, "wallets with play money:", world.facilitatorURL+"/accounts")
	fmt.Fprintln(to.Out, "ready", world.url)
	return world.wait(ctx)
}
