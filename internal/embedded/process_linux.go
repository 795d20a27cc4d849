package embedded

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// endWithParent makes the kernel send the fast shutdown signal to the child when this process dies, even by kill -9.
func endWithParent(attributes *syscall.SysProcAttr) {
	attributes.Pdeathsig = syscall.SIGINT
}

// commandLine returns the command line of the process, or "" if it has ended.
func commandLine(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
}
