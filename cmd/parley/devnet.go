//go:build !noserver

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
)

// network runs only the play-money network, for a server in another process.
type network struct {
	Listen string `default:"127.0.0.1:8403" help:"Address on which to listen (loopback only)."`
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

func openLedger(data string) (*devnet.Ledger, error) {
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	return devnet.OpenLedger(data)
}

// serveHTTP serves callers of the operator in the background. The returned function stops it. A profile of a minute fits
// into the times: net/http cancels a request when the time to read it is over. Clients keep idle connections for 90 seconds by default.
func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler) (stop func()) {
	return serveBy(ctx, listener, &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 90 * time.Second, WriteTimeout: 90 * time.Second, IdleTimeout: 2 * time.Minute,
	})
}

// serveBy serves in the background. The returned function stops it.
func serveBy(ctx context.Context, listener net.Listener, server *http.Server) (stop func()) {
	go func() { _ = server.Serve(listener) }()
	return func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(stopping)
	}
}
