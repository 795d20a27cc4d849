// Command licenses checks the licences of the packages that cmd/parley links. It fails if a package is under the GPL, the LGPL or the
// AGPL, or if it does not recognize the licence. It writes the licence texts into the file that is its argument: they must be distributed
// with the program (make licenses).
//
// google/go-licenses does the same by text similarity, but its newest version on the module proxy is from 2021.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// platforms are the environments in which packages are listed: files, and so imports, depend on the system. On Windows
// only the agent's side can be built.
var platforms = [][]string{{}, {"GOOS=darwin", "GOARCH=arm64"}, {"GOOS=windows", "GOARCH=amd64", "GOFLAGS=-tags=noserver"}}

// licenses identifies licences by sentences of their texts, in lower case and with single spaces. Rejected licences come
// first, because other licence files can quote the texts of allowed licences.
var licenses = []struct {
	name      string
	sentences []string
	rejected  bool
}{
	{"AGPL", []string{"gnu affero general public license version"}, true},
	{"LGPL", []string{"gnu lesser general public license version"}, true},
	{"LGPL", []string{"gnu library general public license version"}, true},
	{"GPL", []string{"gnu general public license version"}, true},
	{"Apache-2.0", []string{"apache license version 2.0", "terms and conditions for use, reproduction, and distribution"}, false},
	{"MPL-2.0", []string{"mozilla public license, version 2.0 1. definitions"}, false},
	{"BSD", []string{
		"redistribution and use in source and binary forms, with or without modification, are permitted", "this software is provided",
	}, false},
	{"MIT", []string{
		"permission is hereby granted, free of charge, to any person obtaining a copy", "the software is provided \"as is\"",
	}, false},
	{"public domain", []string{"all these files have been put into the public domain. you can do whatever you want with these files"}, false},
	{"public domain", []string{"all of the code and documentation in sqlite has been dedicated to the public domain by the authors"}, false},
	{"ISC", []string{
		"permission to use, copy, modify, and", "distribute this software for any purpose with or without fee is hereby granted",
	}, false},
}

// identify returns the name of a licence from its text, or "" if it is not recognized.
func identify(text []byte) (name string, rejected bool) {
	words := strings.Join(strings.Fields(strings.ToLower(string(text))), " ")
	for _, one := range licenses {
		if !slices.ContainsFunc(one.sentences, func(sentence string) bool { return !strings.Contains(words, sentence) }) {
			return one.name, one.rejected
		}
	}
	return "", false
}

// listed is the part of the output of `go list -json` that is needed.
type listed struct {
	ImportPath string
	Dir        string
	Standard   bool
	Module     *struct {
		Path, Version, Dir string
	}
}

// list adds the packages of cmd/parley in an environment, by folder.
func list(ctx context.Context, environment []string, packages map[string]listed) error {
	command := exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Dir,Standard,Module", "./cmd/parley")
	command.Env = append(os.Environ(), environment...)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("go list with %v: %w", environment, err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var one listed
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read what go list says: %w", err)
		}
		if !one.Standard && one.Dir != "" && one.Module != nil {
			packages[one.Dir] = one
		}
	}
}

// licenseFiles returns the licence files in a folder: LICENSE, COPYING and similar names. LICENSE-LOGO is of a picture, which no program
// links.
func licenseFiles(dir string) []string {
	found := files(dir, "LICENSE", "LICENCE", "COPYING")
	return slices.DeleteFunc(found, func(file string) bool { return filepath.Base(file) == "LICENSE-LOGO" })
}

// files returns the files in a folder, except Go files, whose names start with one of beginnings in any case.
func files(dir string, beginnings ...string) []string {
	var found []string
	entries, _ := os.ReadDir(dir) // check reports an unreadable folder as one without a licence
	for _, entry := range entries {
		name := strings.ToUpper(entry.Name())
		named := func(beginning string) bool { return strings.HasPrefix(name, beginning) }
		if entry.Type().IsRegular() && filepath.Ext(name) != ".GO" && slices.ContainsFunc(beginnings, named) {
			found = append(found, filepath.Join(dir, entry.Name()))
		}
	}
	return found
}

// licensesOf returns the licence files that apply to a package: those in the nearest folder that has any, from the
// package's folder up to its module's folder.
func licensesOf(p listed) (found []string) {
	for dir := p.Dir; len(found) == 0 && strings.HasPrefix(dir, p.Module.Dir); dir = filepath.Dir(dir) {
		found = licenseFiles(dir)
	}
	return found
}

// check returns the licence of each licence file of the packages, and the problems found.
func check(packages map[string]listed) (texts map[string]string, problems []string) {
	texts = map[string]string{}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		p := packages[dir]
		found := licensesOf(p)
		if len(found) == 0 {
			problems = append(problems, fmt.Sprintf("%s has no licence file", p.ImportPath))
		}
		for _, file := range found {
			text, err := os.ReadFile(file)
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s: %v", p.ImportPath, err))
				continue
			}
			name, rejected := identify(text)
			switch {
			case name == "":
				problems = append(problems, fmt.Sprintf("%s is under a licence that internal/licenses does not know: %s", p.ImportPath, file))
			case rejected:
				problems = append(problems, fmt.Sprintf("%s is under the %s: %s", p.ImportPath, name, file))
			}
			texts[file] = name
		}
	}
	return texts, problems
}

// write writes into one file the licences of the packages, the notices of their modules (Apache-2.0, section 4d), and
// the licence of Go.
func write(ctx context.Context, path string, packages map[string]listed) error {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	titles := map[string]string{filepath.Join(strings.TrimSpace(string(root)), "LICENSE"): "The Go standard library"}
	for _, p := range packages {
		for _, file := range append(licensesOf(p), files(p.Module.Dir, "NOTICE")...) {
			inside, err := filepath.Rel(p.Module.Dir, file)
			if err != nil {
				return err
			}
			titles[file] = strings.TrimSpace(p.Module.Path+" "+p.Module.Version) + ", " + filepath.ToSlash(inside)
		}
	}
	var all strings.Builder
	fmt.Fprintf(&all, "Parley links the works below. Their licences follow.\n")
	for _, file := range slices.SortedFunc(maps.Keys(titles), func(a, b string) int { return strings.Compare(titles[a], titles[b]) }) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), titles[file], strings.TrimSpace(string(text)))
	}
	return os.WriteFile(path, []byte(all.String()), 0o644)
}

func run(ctx context.Context, output string) error {
	packages := map[string]listed{}
	for _, platform := range platforms {
		if err := list(ctx, platform, packages); err != nil {
			return err
		}
	}
	texts, problems := check(packages)
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	count := map[string]int{}
	for _, name := range texts {
		count[name]++
	}
	fmt.Printf("licences of %d packages: %v\n", len(packages), count)
	return write(ctx, output, packages)
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: licenses FILE")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
