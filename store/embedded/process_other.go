//go:build unix && !linux

package embedded

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// endWithParent cannot be had here: a PostgreSQL whose process was killed is stopped at the next start, see stopLeftover.
func endWithParent(*syscall.SysProcAttr) {}

// commandLine is how the process was called, empty if it has ended.
func commandLine(pid int) string {
	line, err := exec.Command("ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output() //nolint:noctx // ps ends at once
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(line))
}
