package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// writeManuals writes the manual pages of the program with and without the server. The program of this machine writes them: those of
// other platforms cannot run.
func (r *release) writeManuals(ctx context.Context) (err error) {
	if r.Manual, err = manual(ctx, "noserver", filepath.Join(r.temporary, "agent")); err != nil {
		return err
	}
	r.manuals = filepath.Join(r.temporary, "server")
	r.serverManual, err = manual(ctx, "", r.manuals)
	return err
}

func manual(ctx context.Context, tags, folder string) (pages []entry, err error) {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return nil, err
	}
	program := exec.CommandContext(ctx, "go", "run", "-tags="+tags, "github.com/parley-chat/parley/cmd/parley", "man", folder)
	program.Env, program.Stderr = goEnvironment(), os.Stderr
	if err := program.Run(); err != nil {
		return nil, fmt.Errorf("write the manual pages: %w", err)
	}
	return read(folder, "man")
}
