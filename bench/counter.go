//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// counter stands between a server and PostgreSQL and counts what PostgreSQL answers: one CommandComplete for each
// statement, one ReadyForQuery for each round trip, however many statements went in one.
type counter struct {
	statements, roundTrips atomic.Int64
	listener               net.Listener
	folder                 string
}

// count starts a counter before the PostgreSQL of the machine.
func (m *machine) count(ctx context.Context) (*counter, error) {
	folder, err := os.MkdirTemp(m.folder, "count-")
	if err != nil {
		return nil, err
	}
	host, port := m.address()
	socket := ".s.PGSQL." + port
	c := &counter{folder: folder}
	if c.listener, err = (&net.ListenConfig{}).Listen(ctx, "unix", filepath.Join(folder, socket)); err != nil {
		return nil, err
	}
	go func() {
		for {
			client, err := c.listener.Accept()
			if err != nil {
				return // closed
			}
			server, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(host, socket))
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client) // either end may hang up
				_ = server.Close()
			}()
			go func() {
				_ = c.pass(client, server)
				_ = client.Close()
			}()
		}
	}()
	return c, nil
}

// through is the address of a database by way of the counter.
func (c *counter) through(m *machine, database string) string {
	host, _ := m.address()
	return strings.ReplaceAll(m.postgres.URL(database), escape(host), escape(c.folder))
}

// pass hands PostgreSQL's messages on: a type, a length that counts itself, and content.
func (c *counter) pass(client io.Writer, server io.Reader) error {
	from, to := bufio.NewReaderSize(server, 64<<10), bufio.NewWriterSize(client, 64<<10)
	for {
		head, err := from.Peek(5)
		if err != nil {
			return err
		}
		switch head[0] {
		case 'C':
			c.statements.Add(1)
		case 'Z':
			c.roundTrips.Add(1)
		}
		if _, err := io.CopyN(to, from, 1+int64(binary.BigEndian.Uint32(head[1:]))); err != nil {
			return err
		}
		if from.Buffered() == 0 {
			if err := to.Flush(); err != nil {
				return err
			}
		}
	}
}

// soFar is what was counted.
func (c *counter) soFar() (statements, roundTrips float64) {
	return float64(c.statements.Load()), float64(c.roundTrips.Load())
}
