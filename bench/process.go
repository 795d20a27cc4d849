//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/parley-chat/parley/devnet"
	"github.com/parley-chat/parley/server"
	"github.com/parley-chat/parley/x402"
)

// process is a server under measurement: a program of its own, so that its time and memory are its own.
type process struct {
	url   string
	cmd   *exec.Cmd
	log   string
	ended chan struct{}
}

// raised are the settings of the servers under measurement that are not at their defaults, such as limits that a load
// generator without payments would reach. configFor has the same for the servers of this program. With -before both builds
// get only what both know.
var raised = map[string]string{}

// raisedFor returns the flags of raised that all these programs know.
func raisedFor(ctx context.Context, programs ...string) (flags []string, err error) {
	known := maps.Clone(raised)
	for _, program := range programs {
		if program == "" {
			continue
		}
		help, err := exec.CommandContext(ctx, program, "serve", "--help").Output()
		if err != nil {
			return nil, fmt.Errorf("%s serve --help: %w", program, err)
		}
		maps.DeleteFunc(known, func(name, _ string) bool { return !strings.Contains(string(help), name+"=") })
	}
	for name, value := range known {
		flags = append(flags, name+"="+value)
	}
	return flags, nil
}

// configFor is the configuration of Parley in this program: of the recorder, and of the stand-in whose calls are free.
func configFor(base, facilitator string) server.Config {
	network, _ := x402.LookupNetwork(devnet.NetworkID)
	return server.Config{BaseURL: base, Network: network, PayTo: devnet.Payee, FacilitatorURL: facilitator}
}

// serve starts `parley serve` on the database.
func (h *house) serve(ctx context.Context) (*process, error) {
	listen, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	return h.start(ctx, "http://"+listen, h.program, append([]string{
		"serve", "--database-url", h.url(), "--payee", devnet.Payee, "--network", devnet.NetworkID, "--listen", listen,
		"--facilitator-url", h.facilitator.URL, "--rpc-url", h.facilitator.URL + "/rpc",
	}, h.raised...)...)
}

// serveHere starts this program as a server that only the benchmark has (standin.go).
func (m *machine) serveHere(ctx context.Context, standIn string, arguments ...string) (*process, error) {
	listen, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return m.start(ctx, "http://"+listen, program, append([]string{"-stand-in", standIn, "-listen", listen}, arguments...)...)
}

func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// start starts a program that prints a line beginning with "ready" when it serves.
func (m *machine) start(ctx context.Context, url, program string, arguments ...string) (*process, error) {
	log, err := os.CreateTemp(m.folder, "server-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has its own handle
	p := &process{url: url, log: log.Name(), ended: make(chan struct{})}
	p.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, arguments...)
	for _, variable := range os.Environ() { // the environment must not choose
		if !strings.HasPrefix(variable, "PARLEY_") && !strings.HasPrefix(variable, "PG") {
			p.cmd.Env = append(p.cmd.Env, variable)
		}
	}
	// All load comes from one address, and some of it only asks for prices. A build that knows no limits reads none.
	p.cmd.Env = append(p.cmd.Env, "PARLEY_LIMIT_ADDRESS_RATE=1000000", "PARLEY_LIMIT_ADDRESS_BURST=1000000")
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// For Linux the parent is the thread, not the process: this one must last as long as the child.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			<-p.ended
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "ready") {
				ready <- true
			}
		}
		_ = p.cmd.Wait() // how it ended is in its log
		close(p.ended)
	}()
	select {
	case <-ready:
		return p, nil
	case <-p.ended:
	case <-time.After(30 * time.Second):
	case <-ctx.Done():
	}
	p.kill()
	text, _ := os.ReadFile(p.log)
	return nil, fmt.Errorf("%s does not serve: %s", filepath.Base(program), text)
}

func (p *process) host() string { return strings.TrimPrefix(p.url, "http://") }

// stop asks the process to end, and makes it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has ended
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// memory returns the resident memory of a process, now and at most, in bytes.
func (p *process) memory() (now, most int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		kilobytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			now = kilobytes << 10
		case "VmHWM":
			most = kilobytes << 10
		}
	}
	return now, most, nil
}

// tick is the unit of /proc's times: USER_HZ, 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// stat reads a process's parent and times, its own and those of its children that have ended.
func stat(pid string) (parent string, own, children time.Duration, err error) {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return "", 0, 0, err
	}
	// The second field is a name in parentheses, with anything in it.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 15 {
		return "", 0, 0, errors.New("/proc/PID/stat is not as proc(5) says")
	}
	var times [4]int64
	for i := range times {
		if times[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return "", 0, 0, err
		}
	}
	return fields[1], time.Duration(times[0]+times[1]) * tick, time.Duration(times[2]+times[3]) * tick, nil
}

// used is the processor time that a process has used.
func (p *process) used() time.Duration {
	_, own, _, _ := stat(strconv.Itoa(p.cmd.Process.Pid)) // a process that has ended shows in its answers
	return own
}

// databaseUsed is the processor time that PostgreSQL has used, in all its processes.
func (m *machine) databaseUsed() (time.Duration, error) {
	file, err := os.ReadFile(filepath.Join(m.postgres.Folder(), "data", "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	postmaster, _, _ := strings.Cut(string(file), "\n")
	_, own, children, err := stat(postmaster)
	if err != nil {
		return 0, err
	}
	sum := own + children
	all, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	for _, entry := range all {
		if entry.Name()[0] < '0' || entry.Name()[0] > '9' {
			continue
		}
		if parent, own, _, err := stat(entry.Name()); err == nil && parent == postmaster { // it may have ended meanwhile
			sum += own
		}
	}
	return sum, nil
}
