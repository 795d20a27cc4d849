package mcpserver

import (
	"context"
	"time"
)

// resume finishes open payments in the background, until none is open. One goroutine of a process does so.
func (s *parleyServer) resume(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resuming {
		return
	}
	s.resuming = true
	go func() {
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.resuming = false
		}()
		for pause := time.Second; ; pause = min(2*pause, time.Minute) {
			open, err := s.agent.Resume(ctx)
			if err != nil {
				s.Log.Error("finish open payments", "error", err)
				return
			}
			if open == 0 {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}()
}
