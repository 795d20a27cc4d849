package testkit

import (
	"bytes"
	"sync"
)

// Buffer collects output while it is read.
type Buffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
