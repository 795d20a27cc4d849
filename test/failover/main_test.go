//go:build failover

package failover

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The environment of the inner process.
const (
	prefixVariable = "FAILOVER_PREFIX"
	folderVariable = "FAILOVER_FOLDER"
)

var (
	prefix = os.Getenv(prefixVariable) // of the names of the namespaces
	folder = os.Getenv(folderVariable) // for all files
)

// TestMain makes the namespaces, runs the tests again inside the one of the clients, and removes everything, also after a crash.
func TestMain(m *testing.M) {
	if prefix != "" {
		os.Exit(m.Run())
	}
	if os.Getuid() != 0 {
		fmt.Println("the failover tests make network namespaces: run them as root")
		os.Exit(1)
	}
	status, err := runInside("pf" + strconv.Itoa(os.Getpid()))
	if err != nil {
		fmt.Println("failover:", err)
	}
	os.Exit(max(status, btoi(err != nil)))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// runInside runs this program in the hub namespace and returns its exit status.
func runInside(prefix string) (status int, err error) {
	// The inner process gets Ctrl-C too. This one stays to remove what is left.
	signal.Ignore(os.Interrupt)
	folder := filepath.Join("/var/tmp", "parley-failover-"+prefix)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return 1, err
	}
	defer func() { err = cmp.Or(err, removeNetwork(prefix), removeFolder(folder, status != 0)) }()
	if err := makeNetwork(prefix); err != nil {
		return 1, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	inner := exec.Command("ip", append([]string{"netns", "exec", prefix + "hub", self}, os.Args[1:]...)...)
	inner.Env = append(os.Environ(), prefixVariable+"="+prefix, folderVariable+"="+folder)
	inner.Stdout, inner.Stderr = os.Stdout, os.Stderr
	inner.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = inner.Run()
	if ended := inner.ProcessState; ended != nil {
		return ended.ExitCode(), nil
	}
	return 1, err
}

// removeFolder removes all files, unless the logs are to be kept. Volumes are mounted in the inner process's mount namespace only.
func removeFolder(folder string, keep bool) error {
	if keep {
		fmt.Println("the logs of etcd, Patroni and PostgreSQL are in", folder)
		return nil
	}
	return os.RemoveAll(folder)
}

// execute runs a command to its end. The error has its output.
func execute(name string, arguments ...string) error {
	output, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(arguments, " "), err, output)
	}
	return nil
}
