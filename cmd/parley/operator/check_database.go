package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-chat/parley/store"
)

// oldestPostgres is the oldest version of PostgreSQL that Parley works with, and slowClock the difference of clocks that is told.
const (
	oldestPostgres = 150000
	slowClock      = 2 * time.Second
)

// checkDatabase checks the database as the role of --database-url sees it.
func (c *check) checkDatabase(ctx context.Context) (found findings) {
	if c.DatabaseURL.Value == "" || store.CheckURL(c.DatabaseURL.Value) != nil {
		return nil // told as a wrong setting
	}
	database, err := store.Open(ctx, c.DatabaseURL.Value, store.Limits{})
	if err != nil {
		return found.fail("database", err.Error(), "correct --database-url")
	}
	defer database.Close()
	is, err := database.Inspect(ctx)
	if err != nil {
		return found.fail("database", "it does not respond: "+err.Error(),
			"start PostgreSQL, let this machine through its firewall and pg_hba.conf, or correct --database-url")
	}
	found = inspected(is)
	switch err := database.CheckSchema(ctx); {
	case errors.Is(err, store.ErrSchemaTooOld):
		found.fail("schema", fmt.Sprintf("older than this program, which needs version %d", store.SchemaVersion()),
			"run parley migrate with the role that owns the schema")
	case errors.Is(err, store.ErrSchemaTooNew):
		found.fail("schema", "too new for this program", "use the version of parley that migrated it, or a later one")
	case err != nil:
		found.fail("schema", err.Error(), "grant the role the rights of docs/roles.sql")
	default:
		found.ok("schema", fmt.Sprintf("fits version %d", store.SchemaVersion()))
		found.rights(is)
	}
	if err := database.ReadClock(ctx); err != nil {
		found.fail("clock", "the database does not tell its time: "+err.Error(), "look for the cause in the log of PostgreSQL")
	} else {
		found.clock("database", -database.ClockDifference())
	}
	return found
}

const extensions = "extensions"

// inspected returns the findings about PostgreSQL and the database.
func inspected(is store.Inspection) (found findings) {
	found.require(is.VersionNumber >= oldestPostgres, "database", "PostgreSQL "+is.Version, "upgrade PostgreSQL to version 15 or later")
	if is.ReadOnly {
		found.fail("database", "it is read-only, such as a standby",
			"connect to the leader; with several hosts in the URL add target_session_attrs=read-write")
	}
	const recreate = "create the database again: CREATE DATABASE parley TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8'"
	switch {
	case is.Encoding != "UTF8":
		found.fail("encoding", is.Encoding, recreate)
	case !is.FoldsLetters:
		found.fail("encoding", "UTF8, but LC_CTYPE is not for UTF-8: search would miss letters outside of ASCII", recreate)
	default:
		found.ok("encoding", "UTF8, LC_CTYPE for UTF-8")
	}
	if len(is.MissingExtensions) == 0 {
		found.ok(extensions, "pg_trgm and btree_gin")
	} else {
		missing := strings.Join(is.MissingExtensions, " and ")
		found.fail(extensions, missing+" missing",
			"install PostgreSQL's contrib package and run parley migrate, or as a superuser: CREATE EXTENSION "+is.MissingExtensions[0])
	}
	return found
}

// rights adds a finding about the rights of the role, for a database with a schema.
func (f *findings) rights(is store.Inspection) {
	switch {
	case len(is.MissingRights) > 0:
		f.fail("role", fmt.Sprintf("%s may not read and write %s", is.Role, strings.Join(is.MissingRights, ", ")),
			"grant it the rights of docs/roles.sql")
	case is.Superuser:
		f.warn("role", is.Role+" is a superuser", "use a role that can only read and write rows: docs/roles.sql")
	default:
		f.ok("role", is.Role+" may read and write rows")
	}
}

// Clock adds a finding about a clock that is ahead of this machine's.
func (f *findings) clock(whose string, ahead time.Duration) {
	found := fmt.Sprintf("that of the %s differs from this machine's by %s", whose, ahead.Abs().Round(time.Millisecond))
	if ahead.Abs() > slowClock {
		f.warn("clock", found, "run NTP on both machines")
	} else {
		f.ok("clock", found)
	}
}
