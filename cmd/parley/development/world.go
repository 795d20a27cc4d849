package development

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/parley-chat/parley/cmd/parley/operator"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/embedded"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/server/edge"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

type worldOptions struct {
	listen, facilitatorListen string
	data                      string // folder
	databaseURL               string // if empty, start PostgreSQL in data
	volatile                  bool   // the data is deleted at the end
	limits                    edge.Limits
	channels                  operator.Channels // without a key, one in data
	progress                  io.Writer
	log                       *slog.Logger
}

// world is a running server with its own payment network and database.
type world struct {
	url, facilitatorURL string
	ledger              *devnet.Ledger
	database            *store.Store
	failed              chan error
	stopServer          context.CancelFunc
	closers             []func() error // in the order of opening
}

// startWorld starts PostgreSQL, the payment network and the server, in this order. If it returns an error, it has
// stopped everything.
func startWorld(ctx context.Context, options worldOptions) (_ *world, err error) {
	w := &world{failed: make(chan error, 1), stopServer: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	// Open the listeners first, to report a port in use before a database starts.
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
	stop := operator.ServeHTTP(ctx, facilitatorListener, devnet.NewFacilitator(w.ledger))
	w.closers = append(w.closers, func() error { stop(); return nil })

	if options.channels.AuthorizerKey.Value == "" {
		if options.channels.AuthorizerKey, err = ownKey(options.data, authorizerKey); err != nil {
			return nil, err
		}
	}
	channels, err := options.channels.Config(devnet.Payee)
	if err != nil {
		return nil, err
	}
	secret, err := ownKey(options.data, serverSecret)
	if err != nil {
		return nil, err
	}
	secrets, err := operator.ServerSecrets(secret)
	if err != nil {
		return nil, err
	}
	if err := w.openDatabase(ctx, options); err != nil {
		return nil, err
	}
	play, _ := x402.LookupNetwork(x402.NetworkBaseSepolia)
	w.url, w.facilitatorURL = "http://"+listener.Addr().String(), "http://"+facilitatorListener.Addr().String()
	config := server.Config{
		BaseURL: w.url, Network: play, PayTo: devnet.Payee, FacilitatorURL: w.facilitatorURL, Skill: operator.AgentSkill, Limits: options.limits,
		Channels: channels,
		Secrets:  secrets,
	}
	client, err := operator.Facilitator{URL: w.facilitatorURL}.Config(options.log)
	if err != nil {
		return nil, err
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.stopServer = cancel
	ready := make(chan struct{})
	go func() {
		w.failed <- operator.ServeOn(serving, listener, nil, config, client, &x402.Chain{URL: w.facilitatorURL + "/rpc"}, w.database, options.log,
			func() { close(ready) })
	}()
	select {
	case <-ready:
		return w, nil
	case err := <-w.failed:
		w.failed <- nil // for close
		return nil, err
	}
}

// openDatabase opens the given database or starts one, and migrates it.
func (w *world) openDatabase(ctx context.Context, options worldOptions) (err error) {
	databaseURL := options.databaseURL
	if databaseURL == "" {
		postgres, err := embedded.Start(ctx,
			embedded.Options{Folder: filepath.Join(options.data, "postgres"), Volatile: options.volatile, Progress: options.progress})
		if err != nil {
			return err
		}
		if options.volatile {
			w.closers = append(w.closers, func() error { return os.RemoveAll(postgres.Folder()) })
		}
		w.closers = append(w.closers, postgres.Stop)
		databaseURL = postgres.URL("postgres")
	}
	if w.database, err = store.Open(ctx, databaseURL, store.Serving); err != nil {
		return err
	}
	w.closers = append(w.closers, func() error { w.database.Close(); return nil })
	_, err = w.database.Migrate(ctx, nil)
	return err
}

// wait waits until ctx ends or the server fails, then stops everything.
func (w *world) wait(ctx context.Context) error {
	select {
	case err := <-w.failed:
		w.failed <- nil
		return errors.Join(err, w.close())
	case <-ctx.Done():
		return w.close()
	}
}

// close stops the server first, so that running requests can still use the database. It stops the rest in reverse
// order.
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
