//go:build attack

package attack

import "syscall"

// endWithParent lets the kernel kill a server when the test binary dies, even of a panic or kill -9.
func endWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
