package parley

import (
	_ "embed"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

//go:embed test/testdata/checklist.txt
var checklist string

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// TestChecklistNamesTests checks that every rule names existing tests. .ci/run checks that they ran and passed.
func TestChecklistNamesTests(t *testing.T) {
	t.Parallel()
	exists := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range testFunction.FindAllStringSubmatch(string(source), -1) {
			exists[match[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(checklist) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rule, names, ok := strings.Cut(line, "|")
		if !ok {
			t.Errorf("no test checks: %s", rule)
		}
		for name := range strings.SplitSeq(names, ",") {
			if name = strings.TrimSpace(name); !exists[name] {
				t.Errorf("%s: there is no test %q", strings.TrimSpace(rule), name)
			}
		}
	}
}
