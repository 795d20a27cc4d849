//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/parley-chat/parley/internal/devnet"
)

// process is a server in a process of its own, so that its processor time and memory can be measured.
type process struct {
	url   string
	stop  func() // returns when it has ended
	stats procfs.Proc
}

// serve starts `parley serve` on the dataset, with settings in environment variables.
func (d *dataset) serve(ctx context.Context, settings ...string) (*process, error) {
	return d.start(ctx, settings, d.program, d.serving()...)
}

// serveOn is serve on one processor only.
func (d *dataset) serveOn(ctx context.Context, processor int, settings ...string) (*process, error) {
	return d.start(ctx, settings, "taskset", append([]string{"--cpu-list", strconv.Itoa(processor), d.program}, d.serving()...)...)
}

// serving are the arguments of `parley serve`, except the address, which is the last.
func (d *dataset) serving() []string {
	return []string{"serve", "--database-url", d.url(), "--payee", devnet.Payee, "--network", devnet.NetworkID,
		"--facilitator-url", d.facilitator.url, "--rpc-url", d.facilitator.url + "/rpc",
		"--server-secret", "file:" + filepath.Join(d.folder, authorizerFile), "--listen"}
}

// withChannels lets a server offer payment channels, before single payments.
func (b *bench) withChannels() string {
	return "PARLEY_AUTHORIZER_KEY=file:" + filepath.Join(b.folder, authorizerFile)
}

// start starts a server that runs until stopServers.
func (b *bench) start(ctx context.Context, settings []string, program string, arguments ...string) (*process, error) {
	server, err := b.launch(ctx, settings, program, arguments...)
	if err == nil {
		b.running = append(b.running, server)
	}
	return server, err
}

// launch starts a server whose last argument is its address, and waits until it accepts connections.
func (b *bench) launch(ctx context.Context, settings []string, program string, arguments ...string) (*process, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	listen := listener.Addr().String()
	if err := listener.Close(); err != nil {
		return nil, err
	}
	log, err := os.CreateTemp(b.folder, "server-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has its own handle
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, append(arguments, listen)...)
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, 10*time.Second
	cmd.Env, cmd.Stderr = append(environment(), settings...), log
	// The Go runtime keeps the thread that starts the server, so the server ends with this process and not before.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	stop := func() { cancel(); _ = cmd.Wait() } // its log says how it ended
	for range 300 {
		if connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", listen); err == nil {
			stats, failed := procfs.NewProc(cmd.Process.Pid)
			return &process{url: "http://" + listen, stop: stop, stats: stats}, errors.Join(failed, connection.Close())
		}
		time.Sleep(100 * time.Millisecond)
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
	return append(variables, "PARLEY_LIMIT_ADDRESS_RATE=1000000")
}

// cpu is the processor time that the process has used.
func (p *process) cpu() time.Duration {
	stat, _ := p.stats.Stat() // a process that has ended fails its requests
	return cpuTime(stat)
}
