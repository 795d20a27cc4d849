//go:build unix

package embedded

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// command prepares a program of PostgreSQL. It runs as the user (nil: the user of this process), in a folder that every
// user can enter.
func command(ctx context.Context, user *syscall.Credential, program string, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, arguments...)
	cmd.Dir = "/"
	// The environment must not affect PostgreSQL: PGPORT, PGDATA and others change what it does, and a locale may not
	// be installed.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "PG") })
	cmd.Env = append(cmd.Env, "LC_ALL=C", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	return cmd
}

// guarded is a shell script that becomes the program of its arguments. A process in the background reads handle 3, a
// pipe from this process, and sends the program a SIGINT if the pipe ends without a line: this process died, even by
// kill -9. The guard is no child of the program, and holds none of its other handles.
const guarded = `( (read -r line || kill -INT $$) <&3 >/dev/null 2>&1 & ); exec "$@" 3<&-`

// launch starts a program in its own process group: Ctrl-C in the terminal does not reach it, so this process decides when
// it stops. That is at the end of ctx or with Stop, by SIGINT: initdb cleans up, and PostgreSQL disconnects the clients and
// writes everything to the data files. If that takes too long it is killed. The channel receives the result and is closed.
func (s *Server) launch(ctx context.Context, program string, arguments ...string) (<-chan error, error) {
	guard, line, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = guard.Close() }()
	ctx, stop := context.WithCancel(ctx)
	cmd := command(ctx, s.user, "sh", slices.Concat([]string{"-c", guarded, "sh", program}, arguments)...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = s.log, s.log, []*os.File{guard}
	cmd.SysProcAttr.Setpgid = true
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = patience
	if err := cmd.Start(); err != nil {
		stop()
		return nil, errors.Join(err, line.Close())
	}
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_, _ = line.WriteString("\n") // fails if the guard was killed
		_ = line.Close()
		ended <- err
		close(ended)
	}()
	s.undo = append(s.undo, func() error {
		stop()
		<-ended
		return nil
	})
	return ended, nil
}
