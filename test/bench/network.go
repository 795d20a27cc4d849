//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/parley-chat/parley/internal/devnet"
)

// Servers of the benchmark other than Parley are this program, so that each has a process of its own that can be measured. Their names
// are its first argument, the address is its last.
const (
	asFacilitator = "facilitator"
	asPeer        = "peer"
)

// serveFacilitator serves the payment network of devnet, and POST /mint/{address}: play money without a limit.
func serveFacilitator(ctx context.Context, address string) error {
	ledger, err := devnet.OpenLedger("")
	if err != nil {
		return err
	}
	routes := http.NewServeMux()
	routes.Handle("/", devnet.NewFacilitator(ledger))
	routes.HandleFunc("POST /mint/{address}", func(w http.ResponseWriter, r *http.Request) {
		if err := ledger.Mint(r.PathValue("address"), 1e12); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	return serveHTTP(ctx, address, routes)
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, address string, handler http.Handler) error {
	server := &http.Server{Addr: address, Handler: handler} //nolint:gosec // only the benchmark connects
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// startSelf starts one of the servers above.
func (b *bench) startSelf(ctx context.Context, arguments ...string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return b.launch(ctx, nil, program, arguments...)
}

// mint funds a wallet.
func (b *bench) mint(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.facilitator.url+"/mint/"+address, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("fund %s: %s", address, response.Status)
	}
	return nil
}
