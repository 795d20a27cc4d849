package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
)

// healthcheck asks the server on this machine whether it is ready. Container images have no other program that could.
type healthcheck struct {
	File        settings.File `embed:""`
	AdminListen string        `env:"PARLEY_ADMIN_LISTEN" placeholder:"HOST:PORT" help:"The admin listener of the server."`
}

// Run prints the body of /readyz. Its error says why the server is not ready.
func (h *healthcheck) Run(ctx context.Context, to console.Console) error {
	var wrong settings.Wrong
	wrong.Listen("admin-listen", h.AdminListen)
	if err := wrong.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+reachable(h.AdminListen)+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("the server does not respond: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return fmt.Errorf("read what the server says: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return errors.New("the server is not ready: " + strings.TrimSpace(string(body)))
	}
	_, err = to.Out.Write(body)
	return err
}

// reachable returns an address at which this machine reaches a listener: one that listens on all addresses is on loopback too.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); err != nil || host != "" && !ip.IsUnspecified() {
		return listen
	} else if ip.To4() == nil && ip != nil {
		return net.JoinHostPort("::1", port)
	}
	return net.JoinHostPort("127.0.0.1", port)
}
