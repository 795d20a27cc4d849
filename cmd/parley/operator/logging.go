package operator

import (
	"context"
	"io"
	"log/slog"
	"net"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/store"
)

// logLevel returns the least level of the log.
func (s *serverSettings) logLevel() (level slog.Level) {
	_ = level.UnmarshalText([]byte(s.LogLevel)) // it is one of the enum
	return level
}

// NewLog returns a log of JSON lines.
func NewLog(to io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level}))
}

// logStart logs how the server runs.
func logStart(ctx context.Context, log *slog.Logger, listener, admin net.Listener, config server.Config) {
	schemes := []string{"exact"}
	if config.Channels.Authorizer != nil {
		schemes = append(schemes, "batch-settlement")
	}
	adminListen := ""
	if admin != nil {
		adminListen = admin.Addr().String()
	}
	log.LogAttrs(ctx, slog.LevelInfo, "serving", slog.String("version", parley.Version()), slog.String("listen", listener.Addr().String()),
		slog.String("admin_listen", adminListen), slog.String("base_url", config.BaseURL), slog.String("network", config.Network.ID),
		slog.String("payee", config.PayTo), slog.Any("schemes", schemes), slog.Int64("schema_version", store.SchemaVersion()))
}
