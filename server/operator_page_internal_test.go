package server

import "time"

// A busy machine may take longer to read the figures than a person wants to wait for the page.
func init() { figuresWait, figureTime, checkTime = time.Minute, 20*time.Second, 5*time.Second }
