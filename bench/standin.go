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
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
	"github.com/parley-chat/parley/x402"
)

// The stand-ins are servers that only the benchmark has, in processes of their own like the one that they stand beside.
const (
	standInEcho   = "echo"   // an empty handler of the same framework
	standInUnpaid = "unpaid" // Parley, with all operations free
)

// newParley makes the server as it is, or with all prices taken out of its contract: then every operation is free, and all
// else is the same. The product has no such switch.
func newParley(config server.Config, database *store.Store, log *slog.Logger, paid bool) (*server.Server, error) {
	contract := parley.Contract
	if !paid {
		parley.Contract = bytes.ReplaceAll(contract, []byte("x-payment-info:"), []byte("x-was-payment-info:"))
		defer func() { parley.Contract = contract }()
	}
	return server.New(config, database, &x402.Facilitator{BaseURL: config.FacilitatorURL}, &x402.Chain{URL: config.FacilitatorURL + "/rpc"}, log)
}

// standIn serves until ctx ends.
func standIn(ctx context.Context, kind, listen, databaseURL string) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	switch kind {
	case standInEcho:
		e := echo.New()
		e.POST("/", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
		fmt.Println("ready")
		server := &http.Server{Handler: e} //nolint:gosec // for the benchmark on this machine
		go func() {
			<-ctx.Done()
			_ = server.Close()
		}()
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	case standInUnpaid:
		database, err := store.Open(ctx, databaseURL)
		if err != nil {
			return err
		}
		defer database.Close()
		parley, err := newParley(configFor("http://"+listen, "http://facilitator.test"), database, slog.New(slog.NewJSONHandler(os.Stderr, nil)), false)
		if err != nil {
			return err
		}
		fmt.Println("ready")
		return parley.Serve(ctx, listener)
	}
	return errors.New("no such stand-in: " + kind)
}
