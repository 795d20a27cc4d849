package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
