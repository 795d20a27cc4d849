package embedded

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// endWithParent lets the kernel send the child the fast shutdown when this process dies, even of kill -9.
func endWithParent(attributes *syscall.SysProcAttr) {
	attributes.Pdeathsig = syscall.SIGINT
}

// commandLine is how the process was called, empty if it has ended.
func commandLine(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
}
