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

// logging are the settings of the log.
type logging struct {
	Level string `name:"log-level" env:"PARLEY_LOG_LEVEL" default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" help:"Least level of the lines in the log: debug, info, warn or error (${default}). At warn there are no lines for calls that succeed or are refused."`
}

// level returns the level.
func (l logging) level() (level slog.Level) {
	_ = level.UnmarshalText([]byte(l.Level)) // it is one of the enum
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
