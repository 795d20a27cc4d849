//go:build !noserver

package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/parley-chat/parley/cmd/parley/development"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// execute runs statements on a database.
func execute(databaseURL, statements string) error {
	connection, err := pgx.Connect(context.Background(), databaseURL)
	if err != nil {
		return err
	}
	_, err = connection.PgConn().Exec(context.Background(), statements).ReadAll()
	return errors.Join(err, connection.Close(context.Background()))
}

// withRoles creates the roles of docs/roles.sql on an empty database, and returns the database's URL for each of them.
func withRoles(t *testing.T) (migrating, serving string) {
	t.Helper()
	return withRolesOn(t, storetest.URL(t),
		"DROP SCHEMA public CASCADE; CREATE SCHEMA public AUTHORIZATION pg_database_owner; GRANT USAGE ON SCHEMA public TO PUBLIC;")
}

// withRolesOn creates the roles of docs/roles.sql on the database at a URL, after other statements.
func withRolesOn(t *testing.T, superuser, before string) (migrating, serving string) {
	t.Helper()
	parsed, err := url.Parse(superuser)
	testkit.NoError(t, err)
	database := strings.TrimPrefix(parsed.Path, "/")
	text, err := os.ReadFile("../../docs/roles.sql")
	testkit.NoError(t, err)
	// Roles belong to all databases of a server.
	statements := regexp.MustCompile(`\bparley_(migrate|serve)\b`).ReplaceAllString(string(text), database+"_$1")
	statements = strings.Replace(statements, "ALTER DATABASE parley ", "ALTER DATABASE "+database+" ", 1)
	t.Cleanup(func() {
		for _, role := range []string{database + "_migrate", database + "_serve"} {
			if err := execute(superuser, "REASSIGN OWNED BY "+role+" TO CURRENT_USER; DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
				t.Errorf("drop the role %s: %v", role, err)
			}
		}
	})
	testkit.NoError(t, execute(superuser, before+statements))
	parsed.User = url.UserPassword(database+"_migrate", "choose-a-password")
	migrating = parsed.String()
	parsed.User = url.UserPassword(database+"_serve", "choose-another-password")
	return migrating, parsed.String()
}

// TestRoles: with the roles of docs/roles.sql one role migrates, and another one serves every operation without a right to change the
// schema.
func TestRoles(t *testing.T) {
	t.Parallel()
	migrating, serving := withRoles(t)
	invoke(t, "migrate", "--database-url", migrating).good(t)
	for _, statement := range []string{
		"CREATE TABLE mine (id integer)", "ALTER TABLE agents ADD COLUMN mine text", "DROP TABLE agents", "TRUNCATE blocks",
	} {
		notPermitted(t, serving, statement)
	}
	auditIsAppendOnly(t, serving)
	// The systemd unit migrates at each start, also with this role.
	if err := invoke(t, "migrate", "--database-url", serving).err; err != nil {
		t.Errorf("nothing is to migrate; the role that serves: %v", err)
	}
	server, admin := serveWith(t, serving, "--authorizer-key", strings.Repeat("1", 64))
	calls, err := development.Travel(t.Context(), server.URL)
	testkit.NoError(t, err)
	if calls < 40 {
		t.Errorf("only %d calls were charged", calls)
	}
	if got := status(admin + "/readyz"); got != 200 {
		t.Errorf("/readyz returns %d", got)
	}
	var wrong []string
	for line := range strings.Lines(server.logs.String()) {
		if strings.Contains(line, "permission denied") || strings.Contains(line, `"level":"ERROR"`) {
			wrong = append(wrong, line)
		}
	}
	if wrong != nil {
		t.Errorf("the server logs:\n%s", strings.Join(wrong, ""))
	}
	t.Logf("%d calls were charged", calls)
}

// notPermitted wants that the role that serves may not execute a statement.
func notPermitted(t *testing.T, serving, statement string) {
	t.Helper()
	refused, ok := errors.AsType[*pgconn.PgError](execute(serving, statement))
	if !ok || refused.Code != "42501" {
		t.Errorf("the role that serves: %s: %v, want that it is not permitted", statement, refused)
	}
}

// auditIsAppendOnly wants that the role that serves can add to the audit, and not change it.
func auditIsAppendOnly(t *testing.T, serving string) {
	t.Helper()
	if err := execute(serving, `INSERT INTO audit (target_id, id, target_kind, action, actor, reason, details, created_at)
		VALUES (gen_random_uuid(), gen_random_uuid(), 'agent', 'agents.show', 'olga', 'a test', '{}', now())`); err != nil {
		t.Errorf("the role that serves adds to the audit: %v", err)
	}
	for _, statement := range []string{"UPDATE audit SET actor = 'nobody'", "DELETE FROM audit", "TRUNCATE audit"} {
		notPermitted(t, serving, statement)
	}
}

// TestRolesOfAnExistingDatabase: docs/roles.sql also fits a database that a superuser has migrated.
func TestRolesOfAnExistingDatabase(t *testing.T) {
	t.Parallel()
	migrating, serving := withRolesOn(t, storetest.URL(t), "")
	// A migration changes a table, which only its owner can.
	const change = "ALTER TABLE agents ADD COLUMN later text; UPDATE schema_compat SET oldest = oldest; CREATE TABLE later (id bigint)"
	if err := execute(migrating, change); err != nil {
		t.Errorf("the role that migrates: %v", err)
	}
	auditIsAppendOnly(t, serving)
	if err := execute(serving, "SELECT id FROM agents; DELETE FROM blocks; INSERT INTO later (id) VALUES (1)"); err != nil {
		t.Errorf("the role that serves: %v", err)
	}
}

// roleOf returns the role in the URL of a database.
func roleOf(databaseURL string) string {
	parsed, err := url.Parse(databaseURL)
	if err != nil {
		return err.Error()
	}
	return parsed.User.Username()
}

// emptyDatabase creates a database with options of CREATE DATABASE and returns its URL.
func emptyDatabase(t *testing.T, options string) string {
	t.Helper()
	base := storetest.URL(t)
	parsed, err := url.Parse(base)
	testkit.NoError(t, err)
	name := strings.TrimPrefix(parsed.Path, "/") + "_other"
	testkit.NoError(t, execute(base, "CREATE DATABASE "+name+" TEMPLATE template0 "+options))
	t.Cleanup(func() {
		if err := execute(base, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	parsed.Path = "/" + name
	return parsed.String()
}
