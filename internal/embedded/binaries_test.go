//go:build unix

package embedded

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
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
)

// TestDownload starts two servers at once on a machine without PostgreSQL. The archive comes from a local server; what it unpacks to
// calls the PostgreSQL that every other test here uses, whether it was installed or downloaded.
func TestDownload(t *testing.T) {
	t.Parallel()
	binaries, err := machine(t.Context()).find(t.Context(), 0, nil, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	found := installations(t.Context(), []string{binaries}, nil)
	archive := distribution(t, found[0].binaries)
	var downloads atomic.Int32
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.Contains(r.URL.Path, "/"+string(downloadVersion)+"/"):
			http.NotFound(w, r)
		case strings.HasSuffix(r.URL.Path, ".jar"):
			downloads.Add(1)
			_, _ = w.Write(archive)
		case strings.HasSuffix(r.URL.Path, ".jar.sha256"):
			fmt.Fprintf(w, "%x", sha256.Sum256(archive))
		}
	}))
	t.Cleanup(repository.Close)
	source := source{cache: filepath.Join(openFolder(t), "cache"), repository: repository.URL}
	unfinished := filepath.Join(source.cache, "download-unfinished")
	if err := createFolders(unfinished); err != nil {
		t.Fatal(err)
	}

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
			if version, err := clusterVersion(server.data()); err != nil || version != found[0].version {
				t.Errorf("the cluster's version is %d (%v), want %d", version, err, found[0].version)
			}
			mustStop(t, server)
		})
	}
	together.Wait()
	if got := downloads.Load(); got != 1 {
		t.Errorf("two starts at once download %d times, want once", got)
	}
	said := progress[0].String() + progress[1].String()
	for _, part := range []string{"downloading PostgreSQL " + string(downloadVersion), source.cache, "downloaded PostgreSQL"} {
		if strings.Count(said, part) != 1 {
			t.Errorf("the progress is %q, want it to say %q once", said, part)
		}
	}
	if left := entries(source.cache, "download-"); len(left) > 0 {
		t.Errorf("the download left %v", left)
	}

	// The cluster finds its binaries again where there are no others and no network.
	repository.Close()
	server, err := start(t.Context(), Options{Folder: folders[0], Volatile: true}, source)
	if err != nil {
		t.Fatalf("restart with the downloaded binaries: %v", err)
	}
	mustStop(t, server)
}

func TestNoBinaries(t *testing.T) {
	t.Parallel()
	repository := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(repository.Close)
	source := source{cache: filepath.Join(newFolder(t), "cache"), repository: repository.URL}

	_, err := start(t.Context(), Options{Folder: newFolder(t)}, source)
	wantError(t, "a start without PostgreSQL and download", err,
		"no PostgreSQL 15 or later found", "apt-get install postgresql", "brew install postgresql@17", "--database-url")
	if left := entries(source.cache, "download-"); len(left) > 0 {
		t.Errorf("the failed download left %v", left)
	}

	folder := newFolder(t)
	if err := os.Mkdir(filepath.Join(folder, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "data", "PG_VERSION"), []byte("16\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = start(t.Context(), Options{Folder: folder}, source)
	wantError(t, "a start on data of a version that is not installed", err, "created by PostgreSQL 16", "apt-get install postgresql-16")
}

// TestSelectedVersion: a new cluster has the selected major version, or none if it cannot be had.
func TestSelectedVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"14", "99", "newest"} {
		_, err := start(t.Context(), Options{Folder: newFolder(t)}, source{version: version})
		wantError(t, "a start of version "+version, err, versionVariable, version, "15 to 18")
	}
	var requested atomic.Value
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requested.Store(r.URL.Path)
		http.NotFound(w, r)
	}))
	t.Cleanup(repository.Close)
	selected := source{cache: filepath.Join(newFolder(t), "cache"), repository: repository.URL, version: "15"}
	_, err := start(t.Context(), Options{Folder: newFolder(t)}, selected)
	wantError(t, "a start without the selected version", err, "the download did not work")
	if path, _ := requested.Load().(string); !strings.Contains(path, "/"+string(downloads[15])+"/") {
		t.Errorf("the download requests %q, want version %s", path, downloads[15])
	}
}

func TestInstallations(t *testing.T) {
	t.Parallel()
	base := newFolder(t)
	folder := func(name, version string) string {
		path := filepath.Join(base, name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, program := range []string{"initdb", "postgres"} {
			script := "#!/bin/sh\necho '" + program + " (PostgreSQL) " + version + "'\n"
			if err := os.WriteFile(filepath.Join(path, program), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	old, middle, beta := folder("old", "14.9"), folder("middle", "15.14 (Debian 15.14-0+deb12u1)"), folder("beta", "19beta1")
	clientOnly := folder("client", "17.1")
	if err := os.Remove(filepath.Join(clientOnly, "initdb")); err != nil {
		t.Fatal(err)
	}
	broken := folder("broken", "18.1")
	if err := os.WriteFile(filepath.Join(broken, "postgres"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	links := filepath.Join(base, "links")
	if err := os.Mkdir(links, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(middle, "postgres"), filepath.Join(links, "postgres")); err != nil {
		t.Fatal(err)
	}

	var got []string
	for _, found := range installations(t.Context(), []string{base, links, middle, clientOnly, broken, old, beta}, nil) {
		got = append(got, fmt.Sprint(found.version, " ", filepath.Base(found.binaries)))
	}
	if want := "19 beta, 15 middle"; strings.Join(got, ", ") != want {
		t.Errorf("usable installations: %s, want %s", strings.Join(got, ", "), want)
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
		if err := archive.WriteHeader(&tar.Header{Name: "bin/" + program, Mode: 0o700, Size: int64(len(script))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(script)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}

	var jar bytes.Buffer
	zipped := zip.NewWriter(&jar)
	file, err := zipped.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(xz(files.Bytes())); err != nil {
		t.Fatal(err)
	}
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
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
