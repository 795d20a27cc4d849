//go:build unix

// Postgres starts the PostgreSQL of internal/embedded for a program that is not written in Go. It prints the URL of an empty database.
// When its standard input ends, it stops and leaves nothing behind, so it never outlives its parent.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/parley-chat/parley/internal/embedded"
)

func main() {
	// An interrupt on the terminal, or nobody left to read, is no reason to leave the folder behind.
	signal.Ignore(os.Interrupt, syscall.SIGPIPE)
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	folder, err := os.MkdirTemp("", "parley-chain-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := os.Chmod(folder, 0o755); err != nil { // as root PostgreSQL runs as another user, who must be able to pass
		return err
	}
	server, err := embedded.Start(ctx, embedded.Options{Folder: filepath.Join(folder, "postgres"), Volatile: true, Progress: os.Stderr})
	if err != nil {
		return err
	}
	fmt.Println("ready", server.URL("postgres"))
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, server.Stop(), os.RemoveAll(server.Folder())) // which may be elsewhere
}
