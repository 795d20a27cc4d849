package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	parley "github.com/parley-chat/parley"
	"github.com/parley-chat/parley/internal/testkit"
)

// TestTopics: the help lists each variable that the program reads, and each code of errors that the skill lists.
func TestTopics(t *testing.T) {
	t.Parallel()
	said := map[string]string{}
	for _, topic := range Topics {
		said[topic.Name] = fmt.Sprint(topic.Entries)
	}
	files, err := filepath.Glob("*.go")
	testkit.NoError(t, err)
	read := regexp.MustCompile(`(?:Getenv\("|env:")(PARLEY_[A-Z_]+)`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		testkit.NoError(t, err)
		for _, found := range read.FindAllStringSubmatch(string(source), -1) {
			if !strings.Contains(said["environment"], found[1]+" ") {
				t.Errorf("parley help environment lacks %s", found[1])
			}
		}
	}
	document, err := parley.Document()
	testkit.NoError(t, err)
	var codes []string
	for _, code := range document.Components.Schemas["ErrorCode"].Value.Enum {
		codes = append(codes, code.(string))
	}
	files, err = filepath.Glob("../../../agent/*.go")
	testkit.NoError(t, err)
	own := regexp.MustCompile(`failf\(Exit\w+, "([a-z_]+)"|\bcode\w* += "([a-z_]+)"`)
	for _, file := range files {
		source, err := os.ReadFile(file)
		testkit.NoError(t, err)
		for _, found := range own.FindAllStringSubmatch(string(source), -1) {
			codes = append(codes, found[1]+found[2])
		}
	}
	for _, code := range codes {
		if !regexp.MustCompile(`\b` + code + `\b`).MatchString(said["exit-codes"]) {
			t.Errorf("parley help exit-codes lacks %s", code)
		}
	}
	skill, err := os.ReadFile("../../../skills/parley/SKILL.md")
	testkit.NoError(t, err)
	_, table, _ := strings.Cut(string(skill), "### Exit codes")
	table, _, _ = strings.Cut(table, "\n\n**")
	for _, code := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(table, -1) {
		if !strings.Contains(said["exit-codes"]+" error charged next retryable code", code[1]) {
			t.Errorf("parley help exit-codes lacks %s", code[1])
		}
	}
}
