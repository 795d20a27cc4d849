package agent

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver
)

// stateFile has everything that a wallet must not forget: its payments, payment channels, calls, responses, names, daily limit and terms.
const stateFile = "wallet.db"

//go:embed schema.sql
var schema string

// state is the SQLite file of a wallet. Each step of a payment is one transaction, which survives a crash whole or not at all. Several
// processes may use it at the same time.
type state struct {
	path string
	db   *sql.DB
}

// openState opens the file in a folder. It creates both if they do not exist.
func openState(folder string) (*state, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	path, err := filepath.Abs(filepath.Join(folder, stateFile))
	if err != nil {
		return nil, err
	}
	// SQLite would create it readable for others. A file that is there is not opened here: closing it would release SQLite's locks.
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = file.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	s := &state{path: path}
	address := url.URL{Scheme: "file", Path: "/" + strings.TrimPrefix(filepath.ToSlash(path), "/"), RawQuery: url.Values{
		// A commit is on the disk when it returns, also with a journal that is removed.
		// What is deleted, such as a payment whose outcome is known, is overwritten.
		"_pragma": {"busy_timeout(30000)", "journal_mode(DELETE)", "synchronous(EXTRA)", "secure_delete(ON)"},
		// A transaction that began to read could not write after another process has written.
		"_txlock": {"immediate"},
	}.Encode()}
	if s.db, err = sql.Open("sqlite", address.String()); err != nil {
		return nil, err
	}
	s.db.SetMaxOpenConns(1)
	if _, err := s.db.ExecContext(context.Background(), schema); err != nil {
		err = fmt.Errorf("open %s: %w", path, err)
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

// transact runs a function in a transaction while no other process writes. An error undoes everything.
func (s *state) transact(ctx context.Context, run func(tx *sql.Tx) error) (err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("open the wallet's file: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after a commit it does nothing
	if err := run(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("write the wallet's file: %w", err)
	}
	return nil
}

func (s *state) exec(ctx context.Context, statement string, arguments ...any) error {
	return s.transact(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement, arguments...)
		return err
	})
}

type queryer interface {
	QueryContext(ctx context.Context, query string, arguments ...any) (*sql.Rows, error)
}

// scanJSON reads a column with JSON, for [collect].
func scanJSON[T any](row *sql.Rows, into *T) error {
	var content []byte
	if err := row.Scan(&content); err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

func collect[T any](
	ctx context.Context, from queryer, scan func(row *sql.Rows, into *T) error, query string, arguments ...any,
) (all []T, err error) {
	rows, err := from.QueryContext(ctx, query, arguments...)
	if err != nil {
		return nil, fmt.Errorf("read the wallet's file: %w", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err says what went wrong
	for rows.Next() {
		var one T
		if err := scan(rows, &one); err != nil {
			return nil, fmt.Errorf("read the wallet's file: %w", err)
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// value returns the only column of the first row of a query, or the zero value if there is none.
func value[T any](ctx context.Context, from queryer, query string, arguments ...any) (found T, err error) {
	all, err := collect(ctx, from, func(row *sql.Rows, into *T) error { return row.Scan(into) }, query, arguments...)
	if len(all) > 0 {
		found = all[0]
	}
	return found, err
}

// The names of settings.
const (
	limitSetting    = "limit" // per day
	termsSetting    = "terms"
	contactsSetting = "contacts"
	cursorSetting   = "cursor" // of the last page of unread messages that was seen, for each server
)

// loadSetting returns a setting, or what it is otherwise if it is not set.
func loadSetting[T any](ctx context.Context, from queryer, name string, otherwise T) (T, error) {
	text, err := value[string](ctx, from, "SELECT value FROM settings WHERE name = ?", name)
	if err != nil || text == "" {
		return otherwise, err
	}
	var found T
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		return found, fmt.Errorf("read the %s: %w", name, err)
	}
	return found, nil
}

func saveSetting(ctx context.Context, tx *sql.Tx, name string, content any) error {
	text, err := json.Marshal(content)
	if err == nil {
		_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", name, string(text))
	}
	return err
}

func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(at int64) time.Time { return time.UnixMicro(at).UTC() }
