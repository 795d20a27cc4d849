//go:build !unix

package lockfile

// syncFolder does nothing: these systems cannot sync a folder.
func syncFolder(string) error { return nil }
