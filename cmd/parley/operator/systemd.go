package operator

import (
	"context"
	"log/slog"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervised returns a function to call when the server is ready, which calls ready and tells systemd, if systemd started the server with
// Type=notify. When ctx ends, systemd hears that the server stops. There are no signs of life for a watchdog: they would say only that
// the program runs, and a probe of the listener would restart a server that is merely under attack.
func supervised(ctx context.Context, log *slog.Logger, ready func()) func() {
	notify := func(state string) {
		if _, err := daemon.SdNotify(false, state); err != nil {
			log.WarnContext(ctx, "systemd does not listen", "state", state, "error", err)
		}
	}
	context.AfterFunc(ctx, func() { notify(daemon.SdNotifyStopping) })
	return func() {
		ready()
		notify(daemon.SdNotifyReady)
	}
}
