//go:build unix

package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// source is where PostgreSQL's binaries come from: folders of the machine, or a download in the cache.
type source struct {
	folders    []string
	cache      string // empty if this user has none
	repository string // the download URL; empty for the downloader's default
	version    string // the major version of a new cluster; empty for the newest on the machine
}

// versionVariable is the environment variable that selects the major version of new clusters. CI uses it to test the
// oldest and the newest supported version.
const versionVariable = "PARLEY_POSTGRES_VERSION"

// downloads are the versions that can be downloaded, by major version.
var downloads = map[int]embeddedpostgres.PostgresVersion{
	15: embeddedpostgres.V15, 16: embeddedpostgres.V16, 17: embeddedpostgres.V17, 18: embeddedpostgres.V18,
}

const (
	minimumVersion  = 15
	downloadVersion = 18 // unless versionVariable or the data needs another one
)

// machine returns the source for everything except some tests.
func machine(ctx context.Context) source {
	s := source{version: os.Getenv(versionVariable)}
	s.folders = slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(folder string) bool { return !filepath.IsAbs(folder) })
	if folder, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		s.folders = append(s.folders, strings.TrimSpace(string(folder)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/pgsql-*/bin",          // PostgreSQL's own packages for Red Hat
		"/opt/homebrew/opt/postgresql@*/bin",
	} {
		folders, _ := filepath.Glob(pattern) // fails only for a malformed pattern
		s.folders = append(s.folders, folders...)
	}
	if os.Geteuid() == 0 {
		s.cache = "/var/cache/parley" // the user who runs PostgreSQL has no access to root's own cache
	} else if cache, err := os.UserCacheDir(); err == nil {
		s.cache = filepath.Join(cache, "parley")
	}
	return s
}

// find returns the folder of the newest binaries, or of the version that versionVariable selects. An existing cluster
// (version is not 0) needs binaries of its own version. If the machine has none, find downloads them.
func (s source) find(ctx context.Context, version int, user *account, progress io.Writer) (string, error) {
	wanted, need := version, fmt.Sprintf("%d or later", minimumVersion)
	if version == 0 && s.version != "" {
		if wanted, _ = strconv.Atoi(s.version); downloads[wanted] == "" {
			return "", fmt.Errorf("%s is %q: set it to a major version from %d to 18, or leave it empty", versionVariable, s.version, minimumVersion)
		}
	}
	if wanted != 0 {
		need = strconv.Itoa(wanted)
	}
	downloaded, _ := filepath.Glob(filepath.Join(s.cache, "postgresql-*", "bin"))
	for _, folders := range [][]string{s.folders, downloaded} {
		if binaries := newest(ctx, folders, wanted, user); binaries != "" {
			return binaries, nil
		}
	}
	if ctx.Err() != nil { // the search was interrupted
		return "", context.Cause(ctx)
	}
	download := downloads[cmp.Or(wanted, downloadVersion)]
	folder := filepath.Join(s.cache, "postgresql-"+string(download))
	done := make(chan error, 1)
	go func() { done <- s.download(folder, download, progress) }() // it takes no context, and continues if the caller stops waiting
	var err error
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case err = <-done:
	}
	folder = filepath.Join(folder, "bin")
	if err == nil && newest(ctx, []string{folder}, 0, user) == "" {
		err = fmt.Errorf("the program in %s does not run here", folder)
	}
	if err != nil {
		return "", fmt.Errorf("PostgreSQL %s is not installed, and the download failed: %w; "+
			"install PostgreSQL (apt-get install postgresql, brew install postgresql@17) or give --database-url", need, err)
	}
	return folder, nil
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// newest returns the folder with the newest supported PostgreSQL, or with the wanted version, that the user can run; ""
// if there is none.
func newest(ctx context.Context, folders []string, wanted int, user *account) (binaries string) {
	best := minimumVersion - 1
	for _, folder := range folders {
		// A folder of the PATH may contain links to the binaries. The targets of the links are together in one folder.
		postgres, err := filepath.EvalSymlinks(filepath.Join(folder, "postgres"))
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(postgres), "initdb")); err != nil {
			continue
		}
		output, err := command(ctx, user, "/", postgres, "--version").Output()
		match := versionPattern.FindSubmatch(output)
		if err != nil || match == nil {
			continue
		}
		version, _ := strconv.Atoi(string(match[1]))
		if version > best && (wanted == 0 || wanted == version) {
			best, binaries = version, filepath.Dir(postgres)
		}
	}
	return binaries
}

// download unpacks into a folder next to the final one and renames it, so that a killed process never leaves an incomplete distribution.
func (s source) download(folder string, version embeddedpostgres.PostgresVersion, progress io.Writer) (err error) {
	switch {
	case version == "":
		return errors.New("there is no download of this version")
	case s.cache == "":
		return errors.New("this user has no cache folder for it")
	}
	if err := os.MkdirAll(s.cache, 0o755); err != nil {
		return err
	}
	lock, err := lockFile(filepath.Join(s.cache, "lock"), syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlockFile(lock)) }()
	if _, err := os.Stat(folder); err == nil { // downloaded by another process during the wait for the lock
		return nil
	}
	fmt.Fprintf(progress, "downloading PostgreSQL %s (about 15 MB, once) to %s\n", version, s.cache)
	workshop := filepath.Join(s.cache, "download")
	defer func() { _ = os.RemoveAll(workshop) }()
	if err := errors.Join(os.RemoveAll(workshop), os.Mkdir(workshop, 0o755)); err != nil {
		return err
	}
	unpacked := filepath.Join(workshop, "postgresql")
	config := embeddedpostgres.DefaultConfig().Version(version).CachePath(filepath.Join(workshop, "archive")).BinariesPath(unpacked).
		RuntimePath(filepath.Join(workshop, "run")).DataPath(filepath.Join(workshop, "data")).
		Port(0).              // always free
		Username("pg_parley") // initdb refuses names with pg_, see below
	if s.repository != "" {
		config = config.BinaryRepositoryURL(s.repository)
	}
	// Start downloads, verifies the checksum and unpacks. Then it creates and runs a cluster that is not needed here,
	// in a way that does not work as root. With this user name initdb fails. That error is the only one that means that
	// the earlier steps succeeded.
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

// clusterVersion returns the major version that created the cluster, or 0 if there is none.
func clusterVersion(data string) (int, error) {
	content, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	version, parseErr := strconv.Atoi(strings.TrimSpace(string(content)))
	if err = cmp.Or(err, parseErr); err != nil {
		return 0, fmt.Errorf("version of the cluster in %s: %w", data, err)
	}
	return version, nil
}
