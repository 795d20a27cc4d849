//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/parley-chat/parley/devnet"
)

// process is a server in a process of its own, so that its processor time and memory can be measured.
type process struct {
	url   string
	stop  func() // returns when it has ended
	stats procfs.Proc
}

// serve starts `parley serve` on the dataset.
func (d *dataset) serve(ctx context.Context) (*process, error) {
	return d.start(ctx, d.program, "serve", "--database-url", d.url(), "--payee", devnet.Payee, "--network", devnet.NetworkID,
		"--facilitator-url", d.facilitator.URL, "--rpc-url", d.facilitator.URL+"/rpc", "--listen")
}

// serveReference starts this program as a reference server (reference.go).
func (d *dataset) serveReference(ctx context.Context, kind string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return d.start(ctx, program, "-reference", kind, "-database", d.url(), "-listen")
}

// start starts a server whose last flag takes its address, and which prints a line beginning with "ready" when it serves.
func (m *machine) start(ctx context.Context, program string, arguments ...string) (*process, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	listen := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	log, err := os.CreateTemp(m.folder, "server-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has its own handle
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, append(arguments, listen)...)
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, 10*time.Second
	cmd.Env, cmd.Stderr = environment(), log
	// The Go runtime keeps the thread that starts the server, so the server ends with this process and not before.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		cancel()
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	ready, ended := make(chan bool, 1), make(chan bool)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "ready") {
				ready <- true
			}
		}
		_ = cmd.Wait() // its log says how it ended
		close(ended)
	}()
	stop := func() { cancel(); <-ended }
	select {
	case <-ready:
		stats, err := procfs.NewProc(cmd.Process.Pid)
		return &process{url: "http://" + listen, stop: stop, stats: stats}, err
	case <-ended:
	case <-time.After(30 * time.Second):
	}
	stop()
	text, _ := os.ReadFile(log.Name())
	return nil, fmt.Errorf("%s does not serve: %s", filepath.Base(program), text)
}

// environment is that of every server: without settings of this shell, and with limits that calls without payment, all
// from one address, do not reach. A build without limits ignores them.
func environment() (variables []string) {
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "PARLEY_") && !strings.HasPrefix(variable, "PG") {
			variables = append(variables, variable)
		}
	}
	for _, limit := range []string{"ADDRESS", "ACCOUNT", "WALLET"} {
		variables = append(variables, "PARLEY_LIMIT_"+limit+"_RATE=1000000", "PARLEY_LIMIT_"+limit+"_BURST=1000000")
	}
	return variables
}

// cpu is the processor time that the process has used.
func (p *process) cpu() time.Duration {
	stat, _ := p.stats.Stat() // a process that has ended fails its requests
	return cpuTime(stat)
}

// peakMemory is the largest resident memory of the process, in bytes.
func (p *process) peakMemory() (uint64, error) {
	status, err := p.stats.NewStatus()
	return status.VmHWM, err
}
