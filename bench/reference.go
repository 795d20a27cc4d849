//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/labstack/echo/v4"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/devnet"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// The reference servers run in a process of their own, like the server that they are compared with.
const (
	emptyHandler = "empty" // an empty handler of the same framework
	freeParley   = "free"  // Parley without prices
)

// newFreeParley makes a server whose operations are all free, and which is otherwise the same: it removes the prices from
// the contract that the server reads. The product has no such switch.
func newFreeParley(base string, database *store.Store, log *slog.Logger) (*server.Server, error) {
	contract := parley.Contract
	parley.Contract = bytes.ReplaceAll(contract, []byte("x-payment-info:"), []byte("x-was-payment-info:"))
	defer func() { parley.Contract = contract }()
	network, _ := x402.LookupNetwork(devnet.NetworkID)
	unlimited := server.Rate{PerSecond: 1e6, Burst: 1e6}
	const nobody = "http://facilitator.test" // no payment, no settlement
	return server.New(server.Config{
		BaseURL: base, Network: network, PayTo: devnet.Payee, FacilitatorURL: nobody,
		Limits: server.Limits{Address: unlimited, Account: unlimited, Wallet: unlimited},
	}, database, &x402.Facilitator{BaseURL: nobody}, &x402.Chain{URL: nobody}, log)
}

// serveReference serves until ctx ends.
func serveReference(ctx context.Context, kind, listen, databaseURL string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	if kind == freeParley {
		database, err := store.Open(ctx, databaseURL)
		if err != nil {
			return err
		}
		defer database.Close()
		free, err := newFreeParley("http://"+listen, database, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
		if err != nil {
			return err
		}
		fmt.Println("ready")
		return free.Serve(ctx, listener)
	}
	e := echo.New()
	e.POST("/", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	fmt.Println("ready")
	empty := &http.Server{Handler: e} //nolint:gosec // for the benchmark on this machine
	context.AfterFunc(ctx, func() { _ = empty.Close() })
	if err := empty.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
