package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/internal/testkit"
)

// The faults of a migration (CONTRIBUTING.md, "Change the schema"). They are found in the text, in which comments are removed.
const (
	faultAnnotation = `does not begin with -- +goose Up, or has a -- +goose Down: the way back is the older program`
	faultBlocking   = "builds or drops an index of an existing table without CONCURRENTLY"
	faultMixed      = "is NO TRANSACTION and does more than to build one index"
	faultNoDrop     = "does not drop the index that an interrupted build leaves"
	faultLockLimit  = "builds an index without SET lock_timeout = 0 before and RESET lock_timeout after it"
	faultTakesAway  = "takes something away from older programs without raising schema_compat"
	faultNoDefault  = "adds a column that is NOT NULL without a constant default, which older programs do not fill"
	faultScan       = "checks all rows of an existing table while it locks the table"
	faultRows       = "changes rows of an existing table in the transaction of the migration"
	faultManyTables = "alters several existing tables, and holds the lock of one while it waits for another"
	faultCompat     = "raises schema_compat to a version that did not exist before it"
)

var (
	comment       = regexp.MustCompile(`(?m)--.*$`)
	created       = regexp.MustCompile(`\bcreate table (?:if not exists )?(\w+)`)
	altered       = regexp.MustCompile(`^alter table (?:if exists )?(?:only )?(\w+) (.*)`)
	anyIndex      = regexp.MustCompile(`^(?:create (?:unique )?index|drop index|reindex)\b`)
	createdIndex  = regexp.MustCompile(`^create (?:unique )?index (?:concurrently )?(?:if not exists )?(\w+) on (?:only )?(\w+)`)
	addedColumn   = regexp.MustCompile(`^add column (?:if not exists )?\w+ (.*)`)
	columnCheck   = regexp.MustCompile(`\b(?:check|references|unique|primary)\b`)
	constant      = regexp.MustCompile(`\bdefault (?:'[^']*'|-?\d+|true|false)`)
	takenAway     = regexp.MustCompile(`\b(?:rename|set not null|alter column \w+ (?:(?:set data )?type|drop default)|drop column|detach)\b`)
	dropped       = regexp.MustCompile(`^drop (?:table|view|function|type|extension|sequence|schema)\b|^truncate\b`)
	changedRows   = regexp.MustCompile(`^(?:with .*)?(?:update|delete from|insert into|merge into) (?:only )?(\w+)`)
	raisedCompat  = regexp.MustCompile(`^update schema_compat set oldest = (\d+)$`)
	otherAddition = regexp.MustCompile(`^add (?:constraint|check|foreign|unique|primary|exclude)\b`)
)

// migrationFaults returns what is wrong with a migration after the first one. The first one creates every table.
func migrationFaults(version int, text string) (faults []string) {
	fault := func(text string) {
		if !slices.Contains(faults, text) {
			faults = append(faults, text)
		}
	}
	if strings.Count(text, "-- +goose Up") != 1 || strings.Contains(text, "+goose Down") {
		fault(faultAnnotation)
	}
	statements := statementsOf(text)
	own := map[string]bool{}
	for _, match := range created.FindAllStringSubmatch(strings.Join(statements, ";"), -1) {
		own[match[1]] = true
	}
	if strings.Contains(text, "+goose NO TRANSACTION") {
		indexFaults(statements, fault)
		return faults
	}
	raised := slices.ContainsFunc(statements, raisedCompat.MatchString)
	others := map[string]bool{}
	for _, statement := range statements {
		if change := altered.FindStringSubmatch(statement); change != nil && !own[change[1]] {
			others[change[1]] = true
			alterationFaults(change[2], raised, fault)
		}
		if index := createdIndex.FindStringSubmatch(statement); anyIndex.MatchString(statement) && (index == nil || !own[index[2]]) {
			fault(faultBlocking)
		}
		if dropped.MatchString(statement) && !raised {
			fault(faultTakesAway)
		}
		if compat := raisedCompat.FindStringSubmatch(statement); compat != nil {
			if oldest, _ := strconv.Atoi(compat[1]); oldest >= version {
				fault(faultCompat)
			}
		} else if rows := changedRows.FindStringSubmatch(statement); rows != nil && !own[rows[1]] {
			fault(faultRows)
		}
	}
	if len(others) > 1 {
		fault(faultManyTables)
	}
	return faults
}

// statementsOf returns the statements of a migration without comments, in lower case and on one line each. A body of a function
// is cut at its semicolons, which does no harm: its parts begin with none of the words that are looked for, or are looked at too.
func statementsOf(text string) (statements []string) {
	for statement := range strings.SplitSeq(strings.ToLower(comment.ReplaceAllString(text, "")), ";") {
		if statement = strings.Join(strings.Fields(statement), " "); statement != "" {
			statements = append(statements, statement)
		}
	}
	return statements
}

// alterationFaults looks at the actions of an ALTER TABLE of an existing table.
func alterationFaults(actions string, raised bool, fault func(string)) {
	if takenAway.MatchString(actions) && !raised {
		fault(faultTakesAway)
	}
	for action := range strings.SplitSeq(actions, ", ") {
		column := addedColumn.FindStringSubmatch(action)
		switch {
		case column != nil && strings.Contains(column[1], "not null") && !constant.MatchString(column[1]),
			column != nil && strings.Contains(column[1], "default") && !constant.MatchString(column[1]):
			fault(faultNoDefault)
		case column != nil && columnCheck.MatchString(column[1]),
			otherAddition.MatchString(action) && !strings.Contains(action, "not valid"):
			fault(faultScan)
		}
	}
}

// indexFaults looks at a migration without a transaction: SET lock_timeout, DROP INDEX, CREATE INDEX, RESET.
func indexFaults(statements []string, fault func(string)) {
	builds := 0
	for i, statement := range statements {
		index := createdIndex.FindStringSubmatch(statement)
		switch {
		case index != nil:
			builds++
			if i == 0 || statements[i-1] != "drop index concurrently if exists "+index[1] {
				fault(faultNoDrop)
			}
			fallthrough
		case anyIndex.MatchString(statement):
			if !strings.Contains(statement, " concurrently ") {
				fault(faultBlocking)
			}
		case statement != "set lock_timeout = 0" && statement != "reset lock_timeout":
			fault(faultMixed)
		}
	}
	if builds > 1 {
		fault(faultMixed)
	}
	if statements[0] != "set lock_timeout = 0" || statements[len(statements)-1] != "reset lock_timeout" {
		fault(faultLockLimit)
	}
}

// TestMigrationsFitRunningServers: no migration locks out calls, or breaks a program of the version before.
func TestMigrationsFitRunningServers(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("migrations/*.sql")
	testkit.NoError(t, err)
	for i, file := range files {
		text, err := os.ReadFile(file)
		testkit.NoError(t, err)
		if !strings.HasPrefix(filepath.Base(file), fmt.Sprintf("%05d_", i+1)) {
			t.Errorf("%s is migration %d", file, i+1)
		}
		if i == 0 {
			continue
		}
		for _, fault := range migrationFaults(i+1, string(text)) {
			t.Errorf("%s %s", file, fault)
		}
	}
}

// TestMigrationFaults: the check above finds each fault, and accepts what is allowed.
func TestMigrationFaults(t *testing.T) {
	t.Parallel()
	const (
		up     = "-- +goose Up\n"
		alone  = "-- +goose NO TRANSACTION\n" + up
		wait   = "SET lock_timeout = 0;\n"
		drop   = "DROP INDEX CONCURRENTLY IF EXISTS agents_motto;\n"
		build  = "CREATE UNIQUE INDEX CONCURRENTLY agents_motto ON agents (motto);\n"
		reset  = "RESET lock_timeout;\n"
		column = "ALTER TABLE agents ADD COLUMN motto text;\n"
	)
	for _, example := range []struct {
		text string
		want []string
	}{
		{up + "ALTER TABLE agents ADD COLUMN motto text, ADD COLUMN rank integer NOT NULL DEFAULT 0;", nil},
		{up + "CREATE TABLE mottos (text text NOT NULL);\nCREATE INDEX mottos_text ON mottos (text);\nINSERT INTO mottos VALUES (1);", nil},
		{up + "ALTER TABLE agents ADD CONSTRAINT short CHECK (length(motto) < 9) NOT VALID;", nil},
		{up + "ALTER TABLE agents VALIDATE CONSTRAINT short;", nil},
		{up + "UPDATE schema_compat SET oldest = 8;\nALTER TABLE agents DROP COLUMN motto;", nil},
		{alone + wait + drop + build + reset, nil},
		{alone + wait + drop + reset, nil},

		{column, []string{faultAnnotation}},
		{up + "SELECT 1;\n-- +goose Down\nSELECT 2;", []string{faultAnnotation}},
		{up + "CREATE INDEX agents_motto\n  ON agents (motto);", []string{faultBlocking}},
		{up + "DROP INDEX agents_motto;", []string{faultBlocking}},
		{alone + wait + drop + "CREATE INDEX agents_motto ON agents (motto);" + reset, []string{faultBlocking}},
		{alone + wait + build + reset, []string{faultNoDrop}},
		{alone + wait + "DROP INDEX CONCURRENTLY IF EXISTS agents_rank;" + build + reset, []string{faultNoDrop}},
		{alone + drop + build, []string{faultLockLimit}},
		{alone + wait + column + reset, []string{faultMixed}},
		{up + "ALTER TABLE agents RENAME COLUMN motto TO slogan;", []string{faultTakesAway}},
		{up + "ALTER TABLE agents ALTER COLUMN motto SET NOT NULL;", []string{faultTakesAway}},
		{up + "ALTER TABLE agents ALTER COLUMN rank TYPE bigint;", []string{faultTakesAway}},
		{up + "DROP TABLE mottos;", []string{faultTakesAway}},
		{up + "UPDATE schema_compat SET oldest = 9;\nDROP TABLE mottos;", []string{faultCompat}},
		{up + "ALTER TABLE agents ADD COLUMN motto text NOT NULL;", []string{faultNoDefault}},
		{up + "ALTER TABLE agents ADD COLUMN token uuid DEFAULT gen_random_uuid();", []string{faultNoDefault}},
		{up + "ALTER TABLE agents ADD COLUMN motto text CHECK (motto <> '');", []string{faultScan}},
		{up + "ALTER TABLE agents ADD CONSTRAINT short CHECK (length(motto) < 9);", []string{faultScan}},
		{up + column + "UPDATE agents SET motto = username;", []string{faultRows}},
		{up + column + "ALTER TABLE blocks ADD COLUMN reason text;", []string{faultManyTables}},
	} {
		if diff := cmp.Diff(example.want, migrationFaults(9, example.text)); diff != "" {
			t.Errorf("the faults of\n%s\n(-want +found):\n%s", example.text, diff)
		}
	}
}
