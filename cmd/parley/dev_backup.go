//go:build !noserver

package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/embedded"
)

// A backup of dev is a compressed tar archive: the files below, and the cluster in the folder postgres.
const (
	devCluster       = "postgres"
	devAuthorizerKey = "authorizer-key"
	devResponseKey   = "response-key"
)

var devFiles = []string{devAuthorizerKey, devResponseKey, devnet.JournalName}

type devBackup struct {
	File string `arg:"" type:"path" help:"The backup, a new file."`
	Data string `default:".parley" help:"Folder of the database and the play-money ledger."`
}

func (d *devBackup) Run(ctx context.Context, to console) (err error) {
	idle, err := embedded.Lock(ctx, filepath.Join(d.Data, devCluster), to.err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, idle.Close()) }()
	switch has, err := idle.HasCluster(); {
	case err != nil:
		return err
	case !has:
		return fmt.Errorf("%s has no database: run `parley dev` before, or give its folder with --data; use pg_dump for a database of --database-url", d.Data)
	}
	size, err := writeArchive(d.File, func(archive *tar.Writer) error {
		for _, name := range devFiles {
			err := addFile(archive, filepath.Join(d.Data, name), name)
			if err != nil && !replaceable(name, err) {
				return err
			}
		}
		return addFolder(archive, idle.Data(), devCluster)
	})
	if err == nil {
		_, err = fmt.Fprintf(to.out, "wrote %s, %d bytes\n", d.File, size)
	}
	return err
}

// replaceable reports whether a missing file does no harm. Earlier versions have no response key, and dev makes a new one.
func replaceable(name string, err error) bool {
	return name == devResponseKey && errors.Is(err, fs.ErrNotExist)
}

// writeArchive writes a new file, complete or not at all, and returns its size.
func writeArchive(path string, fill func(archive *tar.Writer) error) (size int64, err error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return 0, errors.Join(fmt.Errorf("%s exists: give the name of a new file", path), err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // readable for its owner only
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(file.Name()) }() // after success there is no such file
	compressed := gzip.NewWriter(file)
	archive := tar.NewWriter(compressed)
	if err := fill(archive); err != nil {
		return 0, errors.Join(err, file.Close())
	}
	err = errors.Join(archive.Close(), compressed.Close(), file.Sync())
	info, statErr := file.Stat()
	if err = errors.Join(err, statErr, file.Close()); err != nil {
		return 0, err
	}
	return info.Size(), os.Rename(file.Name(), path)
}

func addFolder(archive *tar.Writer, folder, name string) error {
	return filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		switch name := filepath.ToSlash(filepath.Join(name, inside)); {
		case entry.IsDir():
			return archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o700})
		case entry.Name() == "postmaster.pid":
			return nil
		case entry.Type().IsRegular():
			return addFile(archive, path, name)
		default:
			return fmt.Errorf("%s is neither a file nor a folder", path)
		}
	})
}

func addFile(archive *tar.Writer, path, name string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err == nil {
		err = archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime()})
	}
	if err == nil {
		_, err = io.CopyN(archive, file, info.Size()) // the ledger of `parley devnet` may grow meanwhile
	}
	return err
}

type devRestore struct {
	File string `arg:"" type:"existingfile" help:"The backup."`
	Data string `default:".parley" help:"Folder for the database and the play-money ledger; it must have no data."`
}

func (d *devRestore) Run(ctx context.Context, to console) (err error) {
	for _, name := range devFiles {
		if _, err := os.Lstat(filepath.Join(d.Data, name)); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fmt.Errorf("%s has data already (%s): move it away, or choose another folder with --data", d.Data, name), err)
		}
	}
	if err := os.MkdirAll(d.Data, 0o755); err != nil {
		return err
	}
	idle, err := embedded.Lock(ctx, filepath.Join(d.Data, devCluster), to.err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, idle.Close()) }()
	if has, err := idle.HasCluster(); err != nil || has {
		return errors.Join(fmt.Errorf("%s has a database already: move it away, or choose another folder with --data", d.Data), err)
	}
	restored, err := os.MkdirTemp(d.Data, "restore-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(restored) }()
	if err := idle.Restore(func(cluster string) error { return readArchive(d.File, restored, cluster) }); err != nil {
		return fmt.Errorf("restore %s: %w", d.File, err)
	}
	for _, name := range devFiles {
		err := os.Rename(filepath.Join(restored, name), filepath.Join(d.Data, name))
		if err != nil && !replaceable(name, err) {
			return fmt.Errorf("restore %s: %w", d.File, err)
		}
	}
	_, err = fmt.Fprintf(to.out, "restored %s into %s; `parley dev` goes on from there\n", d.File, d.Data)
	return err
}

// readArchive writes the files of a backup into the folder files, and those of the cluster into another one.
func readArchive(path, files, cluster string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("it is no backup of `parley dev`: %w", err)
	}
	folders := map[bool]*os.Root{}
	for inCluster, folder := range map[bool]string{false: files, true: cluster} {
		if folders[inCluster], err = os.OpenRoot(folder); err != nil {
			return err
		}
		defer func() { _ = folders[inCluster].Close() }()
	}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return compressed.Close()
		}
		if err != nil {
			return err
		}
		name, inCluster := strings.CutPrefix(header.Name, devCluster+"/")
		if err := unpack(folders[inCluster], header, name, archive); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

// unpack writes an entry into a folder, which it cannot leave.
func unpack(folder *os.Root, header *tar.Header, name string, content io.Reader) error {
	switch header.Typeflag {
	case tar.TypeDir:
		if name == "" {
			return nil
		}
		return folder.Mkdir(strings.TrimSuffix(name, "/"), 0o700)
	case tar.TypeReg:
		file, err := folder.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content) //nolint:gosec // the operator's own backup
		return errors.Join(err, file.Close())
	}
	return errors.New("it is neither a file nor a folder")
}
