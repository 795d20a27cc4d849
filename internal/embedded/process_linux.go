package embedded

import "syscall"

// endWithParent makes the kernel send the fast shutdown signal to the child when this process dies, even by kill -9.
func endWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGINT }
