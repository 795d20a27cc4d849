package testkit

import (
	"bytes"
	"sync"
)

// Buffer collects output while it is read.
type Buffer struct {
	// Watch, if set before the first write, sees all output; then only the newest part of it, about 1 MiB, is kept.
	Watch func(p []byte)

	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Watch != nil {
		b.Watch(p)
		if b.buffer.Len() > 1<<20 {
			b.buffer.Next(b.buffer.Len() / 2)
		}
	}
	return b.buffer.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
