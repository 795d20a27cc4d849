package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"path"
	"time"
)

// entry is a file in an archive.
type entry struct {
	Name    string
	content []byte
	program bool // can be executed
}

func (e entry) mode() fs.FileMode {
	if e.program {
		return 0o755
	}
	return 0o644
}

// writeTar writes a tar archive with the files in a folder; "" is the top.
func writeTar(to io.Writer, modified time.Time, folder string, entries []entry) error {
	archive := tar.NewWriter(to)
	for _, e := range entries {
		header := &tar.Header{
			Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: path.Join(folder, e.Name), Mode: int64(e.mode()), Size: int64(len(e.content)),
			ModTime: modified,
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(e.content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// tgz returns a compressed tar archive with the files in a folder. npm takes packages with the folder package.
func tgz(modified time.Time, folder string, entries []entry) ([]byte, error) {
	var packed bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	err = errors.Join(writeTar(compressed, modified, folder, entries), compressed.Close())
	return packed.Bytes(), err
}

// zipped returns a zip archive, which an MCP bundle is.
func zipped(modified time.Time, entries []entry) ([]byte, error) {
	var packed bytes.Buffer
	archive := zip.NewWriter(&packed)
	archive.RegisterCompressor(zip.Deflate, func(to io.Writer) (io.WriteCloser, error) { return flate.NewWriter(to, flate.BestCompression) })
	for _, e := range entries {
		header := &zip.FileHeader{Name: e.Name, Method: zip.Deflate, Modified: modified}
		header.SetMode(e.mode())
		file, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := file.Write(e.content); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return packed.Bytes(), err
}
