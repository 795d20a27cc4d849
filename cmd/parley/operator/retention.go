package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/internal/retention"
	"github.com/parley-chat/parley/store"
)

// lifetimes say how long data stays.
type lifetimes struct {
	Messages time.Duration `name:"retention-messages" env:"PARLEY_RETENTION_MESSAGES" default:"0s" placeholder:"TIME"`
	Payments time.Duration `name:"retention-payments" env:"PARLEY_RETENTION_PAYMENTS" default:"9600h" placeholder:"TIME"`
}

const (
	// leastRetention is the shortest retention of messages. Agents that look once a day miss nothing, and an operator has a day to notice a
	// mistake.
	leastRetention = 24 * time.Hour
	// leastPayments is that of payments: accounts are made up by month.
	leastPayments = 30 * 24 * time.Hour
)

// config returns the retention.
func (r lifetimes) config() (store.Retention, error) {
	var wrong settings.Wrong
	wrong.Check(r.Messages == 0 || r.Messages >= leastRetention, "retention-messages", r.Messages,
		"24h or longer, or 0s to keep everything for ever")
	wrong.Check(r.Payments == 0 || r.Payments >= leastPayments, "retention-payments", r.Payments,
		"720h or longer, or 0s to keep everything for ever")
	return store.Retention{Messages: r.Messages, Deleted: r.Messages, Payments: r.Payments}, wrong.Err()
}

// oldData removes old data by hand.
type oldData struct {
	Run retentionRun `cmd:"" help:"Remove what has outlived the retention settings, as the server does every hour, or count it."`
}

type retentionRun struct {
	Ledger   ledger    `embed:""`
	Settings lifetimes `embed:""`
	DryRun   bool      `help:"Count what would be removed, and remove nothing."`
}

// ReportsSettings lets Run report all wrong settings.
func (r *retentionRun) ReportsSettings() {}

func (r *retentionRun) Run(ctx context.Context, to console.Console, given *settings.Settings) error {
	policy, err := r.Settings.config()
	if err := given.Report(err); err != nil {
		return err
	}
	if policy == (store.Retention{}) {
		return console.Usagef("nothing is to be removed: set --retention-messages or --retention-payments")
	}
	return r.Ledger.with(ctx, func(database *store.Store) error { return r.sweep(ctx, to, database, policy) })
}

func (r *retentionRun) sweep(ctx context.Context, to console.Console, database *store.Store, policy store.Retention) error {
	report, err := retention.Sweep(ctx, database, policy, r.DryRun, r.progress(to))
	if err != nil {
		return err
	}
	outcome := "removed"
	if r.DryRun {
		outcome = "would be removed"
	}
	out := console.Table(to.Out)
	fmt.Fprintf(out, "kind\t%s\n", outcome)
	for _, line := range []struct {
		kind  string
		count int64
	}{
		{"messages", report.Messages}, {"bytes of their content", report.Bytes}, {"reactions", report.Reactions},
		{"deleted conversations", report.Conversations}, {"their memberships", report.Memberships}, {"payments", report.Payments},
		{"left out because they were locked", report.Busy},
	} {
		fmt.Fprintf(out, "%s\t%d\n", line.kind, line.count)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	disk, err := database.DiskOfMessages(ctx, report.Messages)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.Out, "about %s on disk, with indexes; PostgreSQL uses it for new messages after the next VACUUM\n",
		byteCount(disk))
	return err
}

// progress returns a function that tells every few seconds how much is done.
func (r *retentionRun) progress(to console.Console) func(store.Removed) {
	var done store.Removed
	last := time.Now()
	return func(removed store.Removed) {
		done.Add(removed)
		if time.Since(last) > 5*time.Second {
			last = time.Now()
			fmt.Fprintf(to.Err, "so far: %d payments, %d messages\n", done.Payments, done.Messages)
		}
	}
}
