package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/parley-chat/parley/store"
)

// migrate migrates the database's schema to this version. Concurrent migrations wait for each other.
type migrate struct {
	DatabaseURL string `env:"PARLEY_DATABASE_URL" placeholder:"URL" help:"PostgreSQL 15 or later, as a postgres:// URL."`
}

func (m *migrate) Run(ctx context.Context, to console) error {
	if m.DatabaseURL == "" {
		return errors.New("cannot migrate without --database-url (PARLEY_DATABASE_URL), the PostgreSQL database")
	}
	database, err := store.Open(ctx, m.DatabaseURL, store.Limits{})
	if err != nil {
		return err
	}
	defer database.Close()
	count, err := database.Migrate(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "the schema is up to date; migrations run: %d\n", count)
	return err
}
