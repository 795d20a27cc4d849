package server

import "time"

// A busy machine may take longer to read the figures than a person wants to wait for the page.
func init() { figuresWait, figureTime, checkTime = 30*time.Second, 30*time.Second, 30*time.Second }
