package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/parley-chat/parley/devnet"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/store/embedded"
	"github.com/parley-chat/parley/x402"
)

// dev runs everything that Parley needs in one foreground process.
type dev struct {
	Listen            string `default:"127.0.0.1:8402" help:"Where the server listens."`
	FacilitatorListen string `default:"127.0.0.1:8403" help:"Where the play-money payment network listens (loopback only)."`
	Data              string `default:".parley" help:"Folder of the database and of the play-money ledger; both survive restarts."`
	DatabaseURL       string `env:"PARLEY_DEV_DATABASE_URL" placeholder:"URL" help:"Use this PostgreSQL instead of an own one."`
	Limits            limits `embed:"" prefix:"limit-" envprefix:"PARLEY_"`
}

func (d *dev) Run(ctx context.Context, to console) error {
	limits, err := d.Limits.config(nil)
	if err != nil {
		return err
	}
	world, err := startWorld(ctx, worldOptions{
		listen: d.Listen, facilitatorListen: d.FacilitatorListen, data: d.Data, databaseURL: d.DatabaseURL, limits: limits, progress: to.err, log: newLog(to.err),
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(to.err, devnet.Warning)
	fmt.Fprintln(to.err, "wallets with play money:", world.facilitatorURL+"/accounts")
	fmt.Fprintln(to.out, "ready", world.url)
	return world.wait(ctx)
}

// network runs only the play-money network, for those who run the server by other means.
type network struct {
	Listen string `default:"127.0.0.1:8403" help:"Where it listens (loopback only)."`
	Data   string `default:".parley" help:"Folder of the play-money ledger, which survives restarts."`
}

func (n *network) Run(ctx context.Context, to console) (err error) {
	ledger, err := openLedger(n.Data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()
	listener, err := devnet.Listen(n.Listen)
	if err != nil {
		return err
	}
	stop := serveHTTP(ctx, listener, devnet.NewFacilitator(ledger))
	defer stop()
	fmt.Fprintln(to.err, devnet.Warning)
	fmt.Fprintln(to.out, "ready", "http://"+listener.Addr().String())
	<-ctx.Done()
	return nil
}

type worldOptions struct {
	listen, facilitatorListen string
	data                      string // folder
	databaseURL               string // empty: an own PostgreSQL in data
	volatile                  bool   // the data will be thrown away
	limits                    server.Limits
	progress                  io.Writer
	log                       *slog.Logger
}

// world is a running server with a payment network and a database of its own.
type world struct {
	url, facilitatorURL string
	ledger              *devnet.Ledger
	database            *store.Store
	failed              chan error
	stopServer          context.CancelFunc
	closers             []func() error // in the order of opening
}

// startWorld starts PostgreSQL, the payment network and the server, in this order. On an error nothing is left running.
func startWorld(ctx context.Context, options worldOptions) (_ *world, err error) {
	w := &world{failed: make(chan error, 1), stopServer: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	// The listeners come first: a port in use is told before a database is started for nothing.
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", options.listen)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, func() error { _ = listener.Close(); return nil })
	facilitatorListener, err := devnet.Listen(options.facilitatorListen)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, func() error { _ = facilitatorListener.Close(); return nil })
	if w.ledger, err = openLedger(options.data); err != nil {
		return nil, err
	}
	w.closers = append(w.closers, w.ledger.Close)
	stop := serveHTTP(ctx, facilitatorListener, devnet.NewFacilitator(w.ledger))
	w.closers = append(w.closers, func() error { stop(); return nil })

	databaseURL := options.databaseURL
	if databaseURL == "" {
		postgres, err := embedded.Start(ctx, embedded.Options{Folder: filepath.Join(options.data, "postgres"), Volatile: options.volatile, Progress: options.progress})
		if err != nil {
			return nil, err
		}
		if options.volatile {
			w.closers = append(w.closers, func() error { return os.RemoveAll(postgres.Folder()) })
		}
		w.closers = append(w.closers, postgres.Stop)
		databaseURL = postgres.URL("postgres")
	}
	if w.database, err = store.Open(ctx, databaseURL); err != nil {
		return nil, err
	}
	w.closers = append(w.closers, func() error { w.database.Close(); return nil })
	if _, err = w.database.Migrate(ctx); err != nil {
		return nil, err
	}

	play, _ := x402.LookupNetwork(x402.NetworkBaseSepolia)
	w.url, w.facilitatorURL = "http://"+listener.Addr().String(), "http://"+facilitatorListener.Addr().String()
	config := server.Config{BaseURL: w.url, Network: play, PayTo: devnet.Payee, FacilitatorURL: w.facilitatorURL, Skill: skill{}.config(), Limits: options.limits}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.stopServer = cancel
	ready := make(chan struct{})
	go func() {
		w.failed <- serveOn(serving, listener, nil, config, w.facilitatorURL+"/rpc", w.database, options.log, func() { close(ready) })
	}()
	select {
	case <-ready:
		return w, nil
	case err := <-w.failed:
		return nil, err
	}
}

// wait runs until ctx ends or the server fails, then stops everything.
func (w *world) wait(ctx context.Context) error {
	select {
	case err := <-w.failed:
		w.failed <- nil
		return errors.Join(err, w.close())
	case <-ctx.Done():
		return w.close()
	}
}

// close stops the server first, so that running requests still have their database, then the rest backwards.
func (w *world) close() error {
	var errs []error
	if w.url != "" {
		w.stopServer()
		errs = append(errs, <-w.failed)
	}
	for i := len(w.closers) - 1; i >= 0; i-- {
		errs = append(errs, w.closers[i]())
	}
	return errors.Join(errs...)
}

func openLedger(data string) (*devnet.Ledger, error) {
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	return devnet.OpenLedger(data)
}

// serveHTTP serves in the background; the returned function stops it.
func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler) (stop func()) {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(stopping)
	}
}
