package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// writeManuals writes the manual pages of the program with and without the server into a folder. The program of this machine writes them:
// those of other platforms cannot run.
func (r *release) writeManuals(ctx context.Context, folder string) (err error) {
	if r.Manual, err = manual(ctx, "noserver", filepath.Join(folder, "agent")); err != nil {
		return err
	}
	r.manuals = filepath.Join(folder, "server")
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
	found, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, page := range found {
		content, err := os.ReadFile(filepath.Join(folder, page.Name()))
		if err != nil {
			return nil, err
		}
		pages = append(pages, entry{"man/" + page.Name(), content, false})
	}
	return pages, nil
}
