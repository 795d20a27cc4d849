//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/parley-chat/parley/internal/devnet"
)

// Servers of the benchmark other than Parley are this program, so that each has a process of its own that can be measured. Their names
// are its first argument, the address is its last.
const (
	asFacilitator = "facilitator"
	asPeer        = "peer"
)

// serveFacilitator serves the payment network of devnet, POST /mint/{address}: play money without a limit, and
// POST /pauses?verify=DURATION&settle=DURATION: what the facilitator waits for, as hosted ones do.
func serveFacilitator(ctx context.Context, address string) error {
	ledger, err := devnet.OpenLedger("")
	if err != nil {
		return err
	}
	routes, facilitator := http.NewServeMux(), devnet.NewFacilitator(ledger)
	pauses := map[string]*atomic.Int64{"/verify": {}, "/settle": {}}
	routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if pause := pauses[r.URL.Path]; pause != nil {
			time.Sleep(time.Duration(pause.Load()))
		}
		facilitator.ServeHTTP(w, r)
	})
	routes.HandleFunc("POST /pauses", func(w http.ResponseWriter, r *http.Request) {
		for path, pause := range pauses {
			duration, err := time.ParseDuration(r.FormValue(path[1:]))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
			pause.Store(int64(duration))
		}
	})
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
	return b.facilitatorDoes(ctx, "/mint/"+address)
}

// facilitatorDoes makes a request to the facilitator.
func (b *bench) facilitatorDoes(ctx context.Context, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.facilitator.url+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s at the facilitator: %s", path, response.Status)
	}
	return nil
}
