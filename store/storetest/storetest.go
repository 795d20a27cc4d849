// Package storetest gives each test its own migrated PostgreSQL database. It is a clone of one template per process, in
// a private PostgreSQL that ends with the process, or in the server that PARLEY_TEST_DATABASE_URL names.
package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/parley-chat/parley/internal/embedded"
	"github.com/parley-chat/parley/store"
)

// cluster is the PostgreSQL of this process. The first test that needs a database starts it.
var cluster struct {
	once     sync.Once
	err      error
	server   *embedded.Server
	folder   string
	template string
	created  atomic.Int64
	urlOf    func(database string) string
}

// Main runs the tests of a package, and then stops PostgreSQL and removes its files or the template. Call it from
// TestMain.
func Main(m *testing.M) {
	raiseParallel()
	code := m.Run()
	if cluster.server != nil {
		if err := cluster.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop PostgreSQL:", err)
			code = 1
		}
	} else if cluster.template != "" && cluster.err == nil {
		_ = admin(context.Background(), "DROP DATABASE IF EXISTS "+cluster.template)
	}
	if cluster.folder != "" {
		if err := os.RemoveAll(cluster.folder); err != nil {
			fmt.Fprintln(os.Stderr, "remove PostgreSQL's folder:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// WrongChannelSums counts the payees and authorizers whose sums of payment channels are not those that a recount finds.
const WrongChannelSums = `SELECT count(*) FROM (
	SELECT pay_to, receiver_authorizer, sum(channels) AS channels, sum(withdrawing) AS withdrawing, sum(unclaimed) AS unclaimed,
		sum(lost) AS lost FROM payment_channel_sums GROUP BY 1, 2) s
	FULL JOIN (SELECT pay_to, receiver_authorizer, count(*) AS channels, count(*) FILTER (WHERE withdraw_requested_at <> 0) AS withdrawing,
		sum(least(charged, balance) - claimed) AS unclaimed, sum(charged - least(charged, balance)) AS lost
	FROM payment_channels GROUP BY 1, 2) c USING (pay_to, receiver_authorizer)
	WHERE (s.channels, s.withdrawing, s.unclaimed, s.lost) IS DISTINCT FROM (c.channels, c.withdrawing, c.unclaimed, c.lost)`

// Patient are the limits of a server whose tests share a busy machine, where none of them is about time.
var Patient = store.Limits{Queue: 5 * store.Serving.Queue, Acquire: 5 * store.Serving.Acquire, Statement: 5 * store.Serving.Statement,
	Transaction: 5 * store.Serving.Transaction, Call: 5 * store.Serving.Call}

// New returns a store on a migrated database for this test.
func New(t testing.TB) *store.Store {
	t.Helper()
	database, err := store.Open(t.Context(), URL(t), store.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(database.Close)
	return database
}

// URL returns the address of a migrated database for this test. The database is dropped after the test. If the server
// outlives the process, the database of a failed test is kept and its address printed.
func URL(t testing.TB) string {
	t.Helper()
	cluster.once.Do(func() { cluster.err = start(context.Background()) })
	if cluster.err != nil {
		t.Fatalf("no PostgreSQL for the tests: %v", cluster.err)
	}
	name := fmt.Sprintf("%s_%d", cluster.template, cluster.created.Add(1))
	// Copying the files of a small template is faster than logging it block by block.
	if err := admin(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+cluster.template+" STRATEGY FILE_COPY"); err != nil {
		t.Fatalf("clone the template database: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() && cluster.server == nil {
			t.Logf("the database of this failed test is kept: %s", cluster.urlOf(name))
			return
		}
		if err := admin(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop the test's database: %v", err)
		}
	})
	return cluster.urlOf(name)
}

func start(ctx context.Context) error {
	if given := os.Getenv("PARLEY_TEST_DATABASE_URL"); given != "" {
		base, err := url.Parse(given)
		if err != nil || !strings.HasPrefix(base.Scheme, "postgres") {
			return fmt.Errorf("PARLEY_TEST_DATABASE_URL is not a postgres:// URL")
		}
		cluster.urlOf = func(database string) string {
			other := *base
			other.Path = "/" + database
			return other.String()
		}
	} else {
		sweep()
		var err error
		if cluster.folder, err = Folder(fmt.Sprintf("%s%d-", folderPrefix, os.Getpid())); err != nil {
			return err
		}
		if cluster.server, err = embedded.Start(ctx, embedded.Options{Folder: cluster.folder, Volatile: true, Progress: os.Stderr}); err != nil {
			return err
		}
		cluster.urlOf = cluster.server.URL
	}
	cluster.template = fmt.Sprintf("parley_test_%d", os.Getpid())
	if err := admin(ctx, "CREATE DATABASE "+cluster.template); err != nil {
		return err
	}
	database, err := store.Open(ctx, cluster.urlOf(cluster.template), store.Limits{})
	if err != nil {
		return err
	}
	defer database.Close()
	_, err = database.Migrate(ctx, nil)
	return err
}

// raiseParallel lets more tests run at the same time than there are processors, unless the command line says how many: most of the time
// they wait, for PostgreSQL, for a time-out, or for each other.
func raiseParallel() {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(4*runtime.GOMAXPROCS(0))) // it is a number
	}
}

// Folder makes a folder for the data of a PostgreSQL that only tests use: in memory if the machine has plenty, because each test copies a
// database. Any user may enter it, since PostgreSQL runs as another one if the tests run as root.
func Folder(pattern string) (string, error) {
	parent := ""
	if memory := (syscall.Statfs_t{}); syscall.Statfs(inMemory, &memory) == nil && memory.Bavail*uint64(memory.Bsize) >= 4<<30 {
		parent = inMemory
	}
	folder, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", err
	}
	return folder, os.Chmod(folder, 0o755)
}

const (
	folderPrefix = "parley-test-"
	inMemory     = "/dev/shm" // of Linux; other systems have no such folder
)

// sweep removes the folders of test processes that were killed before they could clean up (go test kills its fuzz
// workers). Their PostgreSQL has already ended.
func sweep() {
	for _, parent := range []string{os.TempDir(), inMemory} {
		folders, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*-*")) // fails only for a malformed pattern
		for _, folder := range folders {
			owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(folder), folderPrefix), "-")
			if pid, err := strconv.Atoi(owner); err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				_ = os.RemoveAll(folder) // fails for folders of other users
			}
		}
	}
}

// admin runs one statement outside the tests' databases.
func admin(ctx context.Context, statement string) error {
	connection, err := pgx.Connect(ctx, cluster.urlOf("postgres"))
	if err != nil {
		return err
	}
	defer connection.Close(ctx)
	_, err = connection.Exec(ctx, statement)
	return err
}
