//go:build race

package testkit

// raceDetector is whether the race detector is on. It makes tests several times slower, and finds a race in the first repetitions or not
// at all.
const raceDetector = true
