//go:build !noserver

package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/parley-chat/parley/internal/devnet"
)

// dev is a server for developers, and what else can be done with its data.
type dev struct {
	Run     devServer  `cmd:"" default:"withargs" help:"Run server, PostgreSQL and a play-money payment network (default)."`
	Backup  devBackup  `cmd:"" help:"Write database, play-money ledger and keys into one file. Stop dev before."`
	Restore devRestore `cmd:"" help:"Read them from a file into a folder without data."`
}

// devServer runs Parley, PostgreSQL and the payment network in one foreground process.
type devServer struct {
	Listen            string   `default:"127.0.0.1:8402" help:"Address on which the server listens."`
	FacilitatorListen string   `default:"127.0.0.1:8403" help:"Address on which the play-money payment network listens (loopback only)."`
	Data              string   `default:".parley" help:"Folder of the database and the play-money ledger; both survive restarts."`
	DatabaseURL       string   `env:"PARLEY_DEV_DATABASE_URL" placeholder:"URL" help:"Use this PostgreSQL instead of starting one."`
	Limits            limits   `embed:"" prefix:"limit-" envprefix:"PARLEY_"`
	Channels          channels `embed:""`
}

func (d *devServer) Run(ctx context.Context, to console) error {
	limits, err := d.Limits.config(nil)
	if err != nil {
		return &usageError{err}
	}
	world, err := startWorld(ctx, worldOptions{
		listen: d.Listen, facilitatorListen: d.FacilitatorListen, data: d.Data, databaseURL: d.DatabaseURL, limits: limits, channels: d.Channels,
		progress: to.err, log: newLog(to.err, slog.LevelInfo),
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(to.err, devnet.Warning)
	fmt.Fprintln(to.err, "wallets with play money:", world.facilitatorURL+"/accounts")
	fmt.Fprintln(to.out, "ready", world.url)
	return world.wait(ctx)
}
