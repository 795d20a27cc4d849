//go:build unix && !linux

package embedded

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endWithParent does nothing, because this system has no such signal. If the process is killed, its PostgreSQL is
// stopped at the next start, see stopLeftover.
func endWithParent(*syscall.SysProcAttr) {}

// commandLine returns the command line of the process, or "" if it has ended.
func commandLine(pid int) string {
	line, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output() //nolint:noctx // ps ends at once
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(line))
}
