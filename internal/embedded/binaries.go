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
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// source is where PostgreSQL's binaries come from: folders of the machine, or a download in the cache.
type source struct {
	folders    []string
	cache      string // empty if this user has none
	repository string // the download URL; empty for the downloader's default
	version    string // the major version of a new cluster; empty for the newest on the machine
}

// installation is a folder that contains initdb and postgres.
type installation struct {
	binaries string
	version  int
}

// versionVariable is the environment variable that selects the major version of new clusters. CI uses it to test the
// oldest and the newest supported version.
const versionVariable = "PARLEY_POSTGRES_VERSION"

// downloads are the versions that can be downloaded, by major version.
var downloads = map[int]embeddedpostgres.PostgresVersion{
	15: embeddedpostgres.V15, 16: embeddedpostgres.V16, 17: embeddedpostgres.V17, 18: embeddedpostgres.V18,
}

const (
	downloadVersion  = embeddedpostgres.V18 // unless versionVariable selects another
	downloadedPrefix = "postgresql-"
	howToInstall     = "install PostgreSQL (apt-get install postgresql, brew install postgresql@17) or give --database-url"
)

// machine returns the source for everything except some tests.
func machine(ctx context.Context) source {
	s := source{version: os.Getenv(versionVariable)}
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(folder) {
			s.folders = append(s.folders, folder)
		}
	}
	if folder, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		s.folders = append(s.folders, strings.TrimSpace(string(folder)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/lib/postgresql*/bin",  // Arch, openSUSE
		"/usr/pgsql-*/bin",          // PostgreSQL's own packages for Red Hat
		"/usr/libexec/postgresql*",  // Alpine
		"/usr/local/pgsql/bin",      // built from source
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
		"/Library/PostgreSQL/*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
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

// find returns the folder of the newest binaries, or of the version that versionVariable selects. For an existing
// cluster (version is not 0) it returns the binaries of that version, because no others can read the data.
func (s source) find(ctx context.Context, version int, user *account, progress io.Writer) (string, error) {
	download, wanted := downloadVersion, version
	if version == 0 && s.version != "" {
		wanted, _ = strconv.Atoi(s.version)
		if download = downloads[wanted]; download == "" {
			return "", fmt.Errorf("%s is %q: set it to a major version from %d to 18, or leave it empty", versionVariable, s.version, minimumVersion)
		}
	}
	var downloaded []string
	for _, folder := range entries(s.cache, downloadedPrefix) {
		downloaded = append(downloaded, filepath.Join(folder, "bin"))
	}
	for _, folders := range [][]string{s.folders, downloaded} {
		for _, found := range installations(ctx, folders, user) {
			if wanted == 0 || wanted == found.version {
				return found.binaries, nil
			}
		}
	}
	if ctx.Err() != nil { // the search was interrupted
		return "", context.Cause(ctx)
	}

	major, _, _ := strings.Cut(string(downloadVersion), ".")
	if version != 0 && strconv.Itoa(version) != major {
		return "", fmt.Errorf("the data was created by PostgreSQL %d, which is not installed: install that version "+
			"(apt-get install postgresql-%[1]d, brew install postgresql@%[1]d), choose another folder or give --database-url", version)
	}
	folder, err := s.download(ctx, download, progress)
	if err != nil {
		return "", fmt.Errorf("no PostgreSQL %d or later found, and the download did not work: %w; %s", minimumVersion, err, howToInstall)
	}
	if len(installations(ctx, []string{folder}, user)) == 0 {
		return "", fmt.Errorf("no PostgreSQL %d or later found, and the downloaded one in %s does not run here; %s",
			minimumVersion, folder, howToInstall)
	}
	return folder, nil
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// installations returns the usable installations in the folders, newest first. Usable means that the user can run them
// and that their version is supported.
func installations(ctx context.Context, folders []string, user *account) []installation {
	var found []installation
	seen := map[string]bool{}
	for _, folder := range folders {
		// A folder of the PATH may contain links to the binaries. The targets of the links are together in one folder.
		postgres, err := filepath.EvalSymlinks(filepath.Join(folder, "postgres"))
		if err != nil || seen[filepath.Dir(postgres)] {
			continue
		}
		folder = filepath.Dir(postgres)
		seen[folder] = true
		if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
			continue
		}
		output, err := command(ctx, user, "/", postgres, "--version").Output()
		if err != nil {
			continue
		}
		if match := versionPattern.FindSubmatch(output); match != nil {
			if version, err := strconv.Atoi(string(match[1])); err == nil && version >= minimumVersion {
				found = append(found, installation{folder, version})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b installation) int { return cmp.Compare(b.version, a.version) })
	return found
}

// download returns the folder of the downloaded binaries of a version. It downloads them if they are not in the cache.
func (s source) download(ctx context.Context, version embeddedpostgres.PostgresVersion, progress io.Writer) (string, error) {
	if s.cache == "" {
		return "", errors.New("this user has no cache folder to keep it in")
	}
	if err := createFolders(s.cache); err != nil {
		return "", err
	}
	lockPath := filepath.Join(s.cache, "lock")
	lock, err := lockFile(lockPath, nil)
	for ; errors.Is(err, errLocked); lock, err = lockFile(lockPath, nil) {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err != nil {
		return "", err
	}

	folder := filepath.Join(s.cache, downloadedPrefix+string(version))
	binaries := filepath.Join(folder, "bin")
	if _, err := os.Stat(binaries); err == nil { // downloaded by another process during the wait for the lock
		return binaries, unlockFile(lock)
	}
	fmt.Fprintf(progress, "downloading PostgreSQL %s (about 15 MB, once) to %s\n", version, s.cache)
	start := time.Now()
	// The downloader takes no context. If the caller stops waiting, the download continues in the background and keeps
	// the lock until it ends.
	done := make(chan error, 1)
	go func() {
		err := s.unpack(folder, version)
		done <- errors.Join(err, unlockFile(lock))
	}()
	select {
	case err := <-done:
		if err != nil {
			return "", err
		}
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	fmt.Fprintf(progress, "downloaded PostgreSQL %s in %s\n", version, time.Since(start).Round(time.Millisecond))
	return binaries, nil
}

// unpack downloads into a folder next to the final one and renames it, so that a killed process never leaves an
// incomplete distribution. The caller holds the lock of the cache.
func (s source) unpack(folder string, version embeddedpostgres.PostgresVersion) error {
	const prefix = "download-"
	if err := removeAll(entries(s.cache, prefix)); err != nil {
		return err
	}
	workshop, err := os.MkdirTemp(s.cache, prefix)
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(workshop) }() // if the process is killed, the next download removes it

	unpacked := filepath.Join(workshop, "postgresql")
	config := embeddedpostgres.DefaultConfig().
		Version(version).
		CachePath(filepath.Join(workshop, "archive")).
		BinariesPath(unpacked).
		RuntimePath(filepath.Join(workshop, "run")).
		DataPath(filepath.Join(workshop, "data")).
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
	if err := share(unpacked); err != nil {
		return err
	}
	return os.Rename(unpacked, folder)
}

// share lets all users read and execute what the owner can, whatever the umask is, because another user runs a download
// of root.
func share(folder string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm()
		return os.Chmod(path, mode|mode&0o500>>3|mode&0o500>>6)
	})
}
