package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/parley-chat/parley/cmd/parley/console"
	"github.com/parley-chat/parley/store"
)

// migrate migrates the database's schema to this version. Concurrent migrations wait for each other.
type migrate struct {
	Database ledger `embed:""`
	DryRun   bool   `xor:"what" help:"List the migrations that would run, and change nothing."`
	Status   bool   `xor:"what" help:"List all migrations and when they ran."`
}

func (m *migrate) Run(ctx context.Context, to console.Console) error {
	database, err := m.Database.connect(ctx)
	if err != nil {
		return err
	}
	defer database.Close()
	if m.DryRun || m.Status {
		return m.list(ctx, database, to)
	}
	if err := m.check(ctx, database); err != nil {
		return err
	}
	count, err := database.Migrate(ctx, func(text string) { fmt.Fprintln(to.Out, text) })
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.Out, "the schema is up to date; migrations run: %d\n", count)
	return err
}

// check refuses a database that no server could use. Missing extensions are created by the migrations.
func (m *migrate) check(ctx context.Context, database *store.Store) error {
	is, err := database.Inspect(ctx)
	if err != nil {
		return nil //nolint:nilerr // Migrate tries again: a standby may not have the database yet
	}
	for _, one := range inspected(is) {
		if one.State == failed && one.What != extensions {
			return fmt.Errorf("%s: %s; %s", one.What, one.Found, one.Remedy)
		}
	}
	return nil
}

// list prints the migrations: all, or the pending ones.
func (m *migrate) list(ctx context.Context, database *store.Store, to console.Console) error {
	migrations, err := database.Migrations(ctx)
	if err != nil {
		return err
	}
	pending := 0
	for _, migration := range migrations {
		state := "pending"
		if migration.Applied.IsZero() {
			pending++
		} else if state = migration.Applied.UTC().Format(time.RFC3339); m.DryRun {
			continue
		}
		fmt.Fprintf(to.Out, "%-20s  %s\n", state, migration.Name)
	}
	_, err = fmt.Fprintf(to.Out, "pending migrations: %d\n", pending)
	return err
}
