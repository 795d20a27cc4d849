package store

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Errors of CheckSchema.
var (
	ErrSchemaTooOld = errors.New("the database's schema is older than this program: run parley migrate first")
	ErrSchemaTooNew = errors.New("the database's schema is too new for this program: run the version of parley that migrated it, or a " +
		"later one")
)

const (
	// lockWait is how long a migration waits for the lock of a table. While it waits, calls that need the table wait behind it.
	lockWait = "3s"
	// lockTries is how often a migration is tried again after that, and lockPause the pause.
	lockTries = 20
	lockPause = 2 * time.Second
)

// Migration is one step of the schema. Applied is zero if it is pending.
type Migration struct {
	Version int64
	Name    string
	Applied time.Time
}

// provider returns goose for a connection pool of its own, and a function that closes the pool. files has the migrations in the
// folder migrations.
func (s *Store) provider(files fs.FS) (*goose.Provider, func(), error) {
	folder, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, nil, err
	}
	config := s.pool.Config().ConnConfig
	config.Tracer = nil // a migration may take long
	config.RuntimeParams["lock_timeout"] = lockWait
	connections := stdlib.OpenDB(*config)
	// The lock is an advisory lock. If several migrations start at once, one of them runs and the others ask for the lock from time to
	// time. They do not wait in a statement: a concurrent index build would wait for that statement.
	provider, err := goose.NewProvider(goose.DialectPostgres, connections, folder, goose.WithSessionLocker(locker))
	if err != nil {
		return nil, nil, errors.Join(err, connections.Close())
	}
	return provider, func() { _ = connections.Close() }, nil
}

// Migrations returns all migrations of this program, the oldest first.
func (s *Store) Migrations(ctx context.Context) ([]Migration, error) {
	provider, done, err := s.provider(migrations)
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	defer done()
	begun, err := single(query[bool](ctx, s, `SELECT to_regclass('goose_db_version') IS NOT NULL`, none))
	if err != nil {
		return nil, fmt.Errorf("look at the schema: %w", err)
	}
	var list []Migration
	if !begun { // Status would create the table
		for _, source := range provider.ListSources() {
			list = append(list, Migration{Version: source.Version, Name: path.Base(source.Path)})
		}
		return list, nil
	}
	states, err := provider.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at the schema: %w", err)
	}
	for _, state := range states {
		list = append(list, Migration{state.Source.Version, path.Base(state.Source.Path), state.AppliedAt})
	}
	return list, nil
}

// Migrate updates the schema and returns how many migrations it ran. It tells progress what it does, unless that is nil. A
// migration that does not get the lock of a table in three seconds is rolled back and tried again, so that calls do not queue
// behind it.
func (s *Store) Migrate(ctx context.Context, progress func(text string)) (int, error) {
	if progress == nil {
		progress = func(string) {}
	}
	return s.migrate(ctx, migrations, progress)
}

func (s *Store) migrate(ctx context.Context, files fs.FS, progress func(text string)) (int, error) {
	provider, done, err := s.provider(files)
	if err != nil {
		return 0, fmt.Errorf("read migrations: %w", err)
	}
	defer done()
	for ran, tries := 0, 1; ; tries++ {
		results, err := provider.Up(ctx)
		if partial, ok := errors.AsType[*goose.PartialError](err); ok {
			results = partial.Applied
		}
		for _, result := range results {
			ran++
			progress(fmt.Sprintf("%s: done in %v", path.Base(result.Source.Path), result.Duration.Round(time.Millisecond)))
		}
		obstacle := s.obstacle(err)
		switch {
		case err == nil:
			return ran, nil
		case obstacle == "" || tries == lockTries:
			return ran, fmt.Errorf("migrate: %w", err)
		}
		progress(fmt.Sprintf("%s; try %d of %d follows", obstacle, tries+1, lockTries))
		pause(ctx, lockPause)
	}
}

// obstacle says why a migration did not run, if another try can succeed, and otherwise "".
func (s *Store) obstacle(err error) string {
	reason, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && reason.Code == "55P03":
		return "a table is locked by another transaction"
	case ok && reason.Code == "3D000" && s.severalHosts():
		// pgx does not try the other hosts after this error.
		return "a host does not have the database yet"
	}
	return ""
}

func (s *Store) severalHosts() bool {
	config := s.pool.Config().ConnConfig
	return slices.ContainsFunc(config.Fallbacks, func(other *pgconn.FallbackConfig) bool {
		return other.Host != config.Host || other.Port != config.Port
	})
}

// CheckSchema returns ErrSchemaTooOld or ErrSchemaTooNew if this program cannot work with the schema of the database. A newer schema
// that only added something fits: the table schema_compat has the version of the oldest program that can work with it.
func (s *Store) CheckSchema(ctx context.Context) error {
	program := SchemaVersion()
	versions, err := query[struct{ Version, Oldest int64 }](ctx, s, `
		SELECT (SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied) AS version, oldest FROM schema_compat`, none)
	missing, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && missing.Code == "42P01": // the tables do not exist
		return ErrSchemaTooOld
	case err != nil:
		return fmt.Errorf("look at the schema: %w", err)
	case len(versions) == 0:
		return fmt.Errorf("look at the schema: %w", pgx.ErrNoRows)
	case versions[0].Version < program:
		return ErrSchemaTooOld
	case versions[0].Oldest > program:
		return ErrSchemaTooNew
	}
	return nil
}

// SchemaVersion is the schema version of this program: its newest migration.
func SchemaVersion() (newest int64) {
	files, _ := fs.Glob(migrations, "migrations/*.sql") // fails only for a malformed pattern
	for _, file := range files {
		version, _ := goose.NumericComponent(file) // goose refuses a name without one
		newest = max(newest, version)
	}
	return newest
}
