//go:build linux

package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func text(s string) *string { return &s }

func TestReadLog(t *testing.T) {
	t.Parallel()
	const log = `2026-11-21 17:42:51.131 UTC [4638] LOG:  execute stmtcache_1:
		SELECT 1
		WHERE $1 = 'a:b' AND $2 IS NULL AND $3 > 0
2026-11-21 17:42:51.131 UTC [4638] DETAIL:  parameters: $1 = 'it''s
	two lines', $2 = NULL, $3 = '7'
2026-11-21 17:42:51.132 UTC [4639] LOG:  checkpoint starting: time
2026-11-21 17:42:51.133 UTC [4638] LOG:  statement: commit
`
	got, err := readLog(strings.ReplaceAll(log, "LOG:  execute stmtcache_1:\n\t", "LOG:  execute stmtcache_1: \n\t"))
	want := []statement{
		{"SELECT 1\n\tWHERE $1 = 'a:b' AND $2 IS NULL AND $3 > 0", []*string{text("it's\ntwo lines"), nil, text("7")}},
		{"commit", nil},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(statement{})); err != nil || diff != "" {
		t.Errorf("the log says %v (-want +got):\n%s", err, diff)
	}
	for name, line := range map[string]string{
		"a statement that failed":   "ERROR:  duplicate key",
		"durability turned off":     "LOG:  statement: SET synchronous_commit = off",
		"durability, another way":   "LOG:  execute a: SELECT set_config('synchronous_commit', 'off', true)",
		"durability, in upper case": "LOG:  statement: SET SYNCHRONOUS_COMMIT TO OFF",
	} {
		if _, err := readLog("2026-11-21 17:42:51.131 UTC [1] " + line + "\n"); err == nil {
			t.Errorf("%s goes unnoticed", name)
		}
	}
}

func TestValue(t *testing.T) {
	t.Parallel()
	one, two := text("one"), text("two:2")
	for _, row := range []struct {
		name, kind string
		column     []*string
		repeated   *string
		want       string
	}{
		{"the same for all", "text", []*string{one, text("one")}, one, `CAST(E'one' AS text)`},
		{"NULL for all", "text", []*string{nil, nil}, nil, `CAST(NULL AS text)`},
		{"one for each", "text", []*string{one, two, nil}, one, `(CAST(E'{one,two\x3a2,NULL}' AS _text))[:i]`},
		{"an array for each", "_int8", []*string{text("{1}"), text("{2,3}")}, text("{1}"),
			`CAST((CAST(E'{"{1}","{2,3}"}' AS _text))[:i] AS _int8)`},
		{"a new time", "timestamptz", []*string{one}, two, `clock_timestamp()`},
		{"new, and opaque", "bytea", []*string{text(`\x01`)}, text(`\x02`), `CAST(E'\\x01' AS bytea)`},
		{"an array of one for each", "_text", []*string{text(`{one}`), text(`{"a \"b\", \\c"}`)}, text(`{one}`),
			`CAST(ARRAY[(CAST(E'{one,"a \\"b\\", \\\\c"}' AS _text))[:i]] AS _text)`},
		{"an array of one new time", "_timestamptz", []*string{text(`{2026-01-01}`)}, text(`{"2026-01-02"}`),
			`CAST(ARRAY[clock_timestamp()] AS _timestamptz)`},
	} {
		if got := value(row.kind, row.column, row.repeated, map[string]string{}); got != row.want {
			t.Errorf("%s: %s, want %s", row.name, got, row.want)
		}
	}
	made := map[string]string{}
	first, second, again := value("uuid", []*string{one}, two, made), value("uuid", []*string{two}, one, made),
		value("uuid", []*string{one}, two, made)
	if !strings.Contains(first, ":new0 ") || !strings.Contains(second, ":new1 ") || again != first {
		t.Errorf("new ids are %s, %s, and the first again %s", first, second, again)
	}
}

func TestReadResponse(t *testing.T) {
	t.Parallel()
	r := bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello" +
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n" +
		"HTTP/1.1 402 Payment Required\r\nContent-Length: 4\r\n\r\npay!"))
	for range 2 {
		if err := readResponse(r); err != nil {
			t.Errorf("read a response of 200: %v", err)
		}
	}
	if err := readResponse(r); err == nil || err.Error() != "status 402: pay!" {
		t.Errorf("another status says %v, want status and body", err)
	}
	if err := readResponse(r); err == nil {
		t.Error("a response is read where none is")
	}
}

func TestReadTransactions(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, lines := range map[string]string{
		"log.1":   "0 1 900000 0 100 0\n0 2 1000 0 101 0\n0 3 3000 0 102 0\n",
		"log.1.1": "1 1 900000 0 100 500000\n1 2 2000 0 101 500000\n1 3 4000 0 10",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(lines), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := readTransactions(folder, time.Second)
	want := result{perSecond: 3, p50: 2, p99: 3}
	if err != nil || got.all != 5 {
		t.Fatalf("%+v, %v, want 5 transactions", got, err)
	}
	if diff := cmp.Diff(want, got.result()); diff != "" {
		t.Errorf("the logs say (-want +got):\n%s", diff)
	}
}

func TestTypeID(t *testing.T) {
	t.Parallel()
	// The example of the TypeID specification.
	id := uuid.MustParse("01890a5d-ac96-774b-bcce-b302099a8057")
	if got, want := typeID("prefix_", id), "prefix_01h455vb4pex5vsknk084sn02q"; got != want {
		t.Errorf("the id is %s, want %s", got, want)
	}
}
