//go:build unix

package embedded

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestDownload starts two servers at once on a machine without PostgreSQL. The archive comes from a local server; what it unpacks to
// calls the PostgreSQL that every other test here uses, whether it was installed or downloaded.
func TestDownload(t *testing.T) {
	t.Parallel()
	binaries, err := machine().find(t.Context(), "", nil, t.Output())
	testkit.NoError(t, err)
	archive := distribution(t, binaries)
	var requests atomic.Int32
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.Contains(r.URL.Path, "/"+string(downloads[downloadVersion])+"/"):
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, ".jar"):
			requests.Add(1)
			_, _ = w.Write(archive)
		case strings.HasSuffix(r.URL.Path, ".jar.sha256"):
			fmt.Fprintf(w, "%x", sha256.Sum256(archive))
		}
	}))
	t.Cleanup(repository.Close)
	source := source{cache: filepath.Join(openFolder(t), "cache"), repository: repository.URL}
	unfinished := filepath.Join(source.cache, "download")
	testkit.NoError(t, os.MkdirAll(unfinished, 0o755))

	var together sync.WaitGroup
	var progress [2]bytes.Buffer
	folders := [2]string{newFolder(t), newFolder(t)}
	for i := range folders {
		together.Go(func() {
			server, err := start(t.Context(), Options{Folder: folders[i], Volatile: true, Progress: &progress[i]}, source)
			if err != nil {
				t.Errorf("start with a download: %v", err)
				return
			}
			mustStop(t, server)
		})
	}
	together.Wait()
	if got := requests.Load(); got != 1 {
		t.Errorf("two starts at once download %d times, want once", got)
	}
	said := progress[0].String() + progress[1].String()
	for _, part := range []string{"downloading PostgreSQL " + string(downloads[downloadVersion]), source.cache} {
		if strings.Count(said, part) != 1 {
			t.Errorf("the progress is %q, want it to say %q once", said, part)
		}
	}
	if left := filepath.Join(source.cache, "download"); exists(left) {
		t.Errorf("the download left %s", left)
	}

	// The cluster finds its binaries again where there are no others and no network.
	repository.Close()
	server, err := start(t.Context(), Options{Folder: folders[0], Volatile: true}, source)
	testkit.NoError(t, err)
	mustStop(t, server)
}

// TestFailedDownload: a download that fails leaves nothing, and the error says which version is missing and how to get one.
func TestFailedDownload(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		selected, data string
		requested      string // "": no request
		want           []string
	}{
		{"", "", "18", []string{"PostgreSQL 15 or later is not installed", "apt-get install", "brew install postgresql@17", "--database-url"}},
		{"15", "", "15", []string{"PostgreSQL 15 is not installed", "the download failed"}},
		{"14", "", "", []string{versionVariable, "PostgreSQL 14 is", "15 to 18"}},
		{"newest", "", "", []string{versionVariable, "PostgreSQL newest is", "15 to 18"}},
		{"", "16", "16", []string{"PostgreSQL 16 is not installed"}},
		{"15", "99", "", []string{"PostgreSQL 99 is not installed", "only 15 to 18"}},
	} {
		var requested atomic.Value
		requested.Store("")
		repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requested.Store(r.URL.Path)
			http.NotFound(w, r)
		}))
		t.Cleanup(repository.Close)
		source := source{cache: filepath.Join(newFolder(t), "cache"), repository: repository.URL, version: c.selected}
		folder := newFolder(t)
		if c.data != "" {
			data := filepath.Join(folder, "data")
			err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(c.data+"\n"), 0o600))
			testkit.NoError(t, err)
		}
		what := fmt.Sprintf("a start of version %q on data of version %q", c.selected, c.data)
		_, err := start(t.Context(), Options{Folder: folder}, source)
		wantError(t, what, err, c.want...)
		if got := requested.Load().(string); !strings.Contains(got, string(downloads[c.requested])) || c.requested == "" && got != "" {
			t.Errorf("%s requests %q, want version %s", what, got, downloads[c.requested])
		}
		if left := filepath.Join(source.cache, "download"); exists(left) {
			t.Errorf("%s left %s", what, left)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestInstallation: programs that are too old, do not run, or are only clients are passed over.
func TestInstallation(t *testing.T) {
	t.Parallel()
	base := newFolder(t)
	script := func(folder, program, text string) {
		path := filepath.Join(base, folder, program)
		testkit.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755)))
	}
	for folder, version := range map[string]string{"old": "14.9", "middle": "15.14 (Debian 15.14-0+deb12u1)", "beta": "19beta1"} {
		script(folder, "initdb", "echo 'initdb (PostgreSQL) "+version+"'")
	}
	script("client", "psql", "echo 'psql (PostgreSQL) 20.1'")
	script("broken", "initdb", "echo 'initdb (PostgreSQL) 21.1'; exit 1")
	links := filepath.Join(base, "links")
	target := filepath.Join(base, "middle", "initdb")
	testkit.NoError(t, errors.Join(os.Mkdir(links, 0o755), os.Symlink(target, filepath.Join(links, "initdb"))))
	for _, c := range []struct{ folders, version, want string }{
		{"missing client broken old beta middle", "", "beta"},
		{"middle beta", "", "middle"},
		{"beta middle", "15", "middle"},
		{"links", "", "middle"},
		{"middle beta", "16", "."},
		{"old client broken", "", "."},
	} {
		var folders []string
		for _, name := range strings.Fields(c.folders) {
			folders = append(folders, filepath.Join(base, name))
		}
		if got := filepath.Base(first(t.Context(), folders, c.version, nil)); got != c.want {
			t.Errorf("the first of %s, version %q: %s, want %s", c.folders, c.version, got, c.want)
		}
	}
}

// distribution is an archive like the downloader expects: a zip with a tar.xz, here of scripts that call real binaries. Only the owner
// may read them, as after unpacking with a strict umask.
func distribution(t *testing.T, binaries string) []byte {
	t.Helper()
	var files bytes.Buffer
	archive := tar.NewWriter(&files)
	for _, program := range []string{"initdb", "postgres"} {
		script := "#!/bin/sh\nexec '" + filepath.Join(binaries, program) + "' \"$@\"\n"
		testkit.NoError(t, archive.WriteHeader(&tar.Header{Name: "bin/" + program, Mode: 0o700, Size: int64(len(script))}))
		_, err := archive.Write([]byte(script))
		testkit.NoError(t, err)
	}
	testkit.NoError(t, archive.Close())

	var jar bytes.Buffer
	zipped := zip.NewWriter(&jar)
	file, err := zipped.Create("postgres.txz")
	testkit.NoError(t, err)
	_, err = file.Write(xz(files.Bytes()))
	testkit.NoError(t, err)
	testkit.NoError(t, zipped.Close())
	return jar.Bytes()
}

// xz wraps at most 64 KiB in the xz format, uncompressed: the standard library has no writer for it.
func xz(content []byte) []byte {
	sum := func(part []byte) []byte { return binary.LittleEndian.AppendUint32(nil, crc32.ChecksumIEEE(part)) }
	pad := func(part []byte) []byte { return append(part, make([]byte, (4-len(part)%4)%4)...) }

	flags := []byte{0, 0}                                  // no check of the content
	header := []byte{2, 0, 0x21, 1, 8, 0, 0, 0}            // a block of (2+1)*4 bytes' header, one filter: LZMA2 with 64 KiB
	block := slices.Concat(header, sum(header), []byte{1}) // LZMA2: an uncompressed chunk
	block = binary.BigEndian.AppendUint16(block, uint16(len(content)-1))
	block = append(append(block, content...), 0) // LZMA2: the end
	index := binary.AppendUvarint([]byte{0, 1}, uint64(len(block)))
	index = pad(binary.AppendUvarint(index, uint64(len(content))))
	index = append(index, sum(index)...)
	footer := append(binary.LittleEndian.AppendUint32(nil, uint32(len(index)/4-1)), flags...)

	stream := append([]byte("\xFD7zXZ\x00"), flags...)
	stream = append(append(stream, sum(flags)...), pad(block)...)
	stream = append(append(stream, index...), sum(footer)...)
	return append(append(stream, footer...), "YZ"...)
}
