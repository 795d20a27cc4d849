// Package supplychain checks what Parley is built from (make supply-chain): no known vulnerability without a statement in the OpenVEX
// document of the release, and workflows that zizmor accepts, with actions pinned by hash. Each check also has to find a planted fault.
//
// It is a module of its own so that the dependencies of govulncheck and go-vex stay out of the service's.
package supplychain

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openvex/go-vex/pkg/vex"
	"golang.org/x/vuln/scan"
)

const (
	root       = "../../.."
	statements = root + "/deploy/openvex.json"
	product    = "pkg:golang/github.com/parley-chat/parley" // any version
)

// TestKnownVulnerabilities scans what is published: the program on SYSTEMS and the Go client.
func TestKnownVulnerabilities(t *testing.T) {
	stated := open(t, statements)
	for system := range strings.FieldsSeq(setting(t, "SYSTEMS")) {
		tags := map[string]string{"windows": "noserver"}[system]
		found := vulnerabilities(t, system, "-scan", setting(t, "SCAN"), "-C", root, "-tags", tags, "./cmd/parley", "./client")
		for _, problem := range unexplained(found, stated) {
			t.Errorf("Parley on %s: %s\nUpdate it, or say in %s why it does not apply.", system, problem, statements)
		}
	}
}

// TestPlantedVulnerability: a call of a vulnerable function is found, and only a statement about it changes that.
func TestPlantedVulnerability(t *testing.T) {
	const id, module = "GO-2021-0113", "pkg:golang/golang.org/x/text@v0.3.5"
	found := vulnerabilities(t, "linux", "-C", "testdata/planted", ".")
	called := func(s vex.Statement) bool {
		return string(s.Vulnerability.Name) == id && s.Status == vex.StatusAffected
	}
	if !slices.ContainsFunc(found.Statements, called) {
		t.Errorf("govulncheck does not say that the planted call is affected: %+v", found.Statements)
	}
	for _, one := range []struct {
		name string
		vex.Statement
		explained bool
	}{
		{"no statement", vex.Statement{}, false},
		{"not affected", about(id, module, vex.StatusNotAffected), true},
		{"affected", about(id, module, vex.StatusAffected), false},
		{"another vulnerability", about("GO-2022-1059", module, vex.StatusNotAffected), false},
		{"another version", about(id, "pkg:golang/golang.org/x/text@v0.3.4", vex.StatusNotAffected), false},
	} {
		problems := strings.Join(unexplained(found, &vex.VEX{Statements: []vex.Statement{one.Statement}}), "\n")
		if strings.Contains(problems, id) == one.explained {
			t.Errorf("%s: problems are %q", one.name, problems)
		}
	}
}

// TestWorkflows checks the workflows, and that zizmor rejects an action with a tag instead of a hash.
func TestWorkflows(t *testing.T) {
	if report, err := zizmor(t, root+"/.github"); err != nil {
		t.Errorf("%v\n%s", err, report)
	}
	text, err := os.ReadFile(root + "/.github/workflows/ci.yml")
	if err != nil {
		t.Fatal(err)
	}
	planted := filepath.Join(t.TempDir(), "planted.yml")
	text = append(text, "  planted:\n    runs-on: ubuntu-latest\n    steps: [{uses: actions/setup-go@v7}]\n"...)
	if err := os.WriteFile(planted, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if report, err := zizmor(t, planted); err == nil || !strings.Contains(report, "unpinned-uses") {
		t.Errorf("an unpinned action gives %v\n%s", err, report)
	}
}

// vulnerabilities returns what govulncheck knows about the modules, called or not, as statements.
func vulnerabilities(t *testing.T, system string, arguments ...string) *vex.VEX {
	t.Helper()
	var output, problems bytes.Buffer
	command := scan.Command(t.Context(), append([]string{"-db", setting(t, "VULNDB"), "-format", "openvex"}, arguments...)...)
	command.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
	command.Stdout, command.Stderr = &output, &problems
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Fatalf("govulncheck %v: %v\n%s", arguments, err, &problems)
	}
	found, err := vex.Parse(output.Bytes())
	if err != nil {
		t.Fatalf("govulncheck %v: %v\n%s", arguments, err, &output)
	}
	return found
}

// unexplained returns the found vulnerabilities of which the newest statement does not say that they do not apply.
func unexplained(found, stated *vex.VEX) (problems []string) {
	for _, s := range found.Statements {
		for _, one := range s.Products[0].Subcomponents {
			component := strings.ReplaceAll(one.ID, "%2F", "/") // as scanners of an SBOM write it
			about := stated.Matches(string(s.Vulnerability.Name), product, []string{component})
			if len(about) == 0 || about[len(about)-1].Status != vex.StatusNotAffected {
				problems = append(problems, string(s.Vulnerability.Name)+" in "+component+", "+string(s.Status)+": "+s.Vulnerability.Description)
			}
		}
	}
	return problems
}

func open(t *testing.T, file string) *vex.VEX {
	t.Helper()
	document, err := vex.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range document.Statements {
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %s: %v", file, s.Vulnerability.Name, err)
		}
	}
	return document
}

func about(id, component string, status vex.Status) vex.Statement {
	return vex.Statement{
		Vulnerability: vex.Vulnerability{Name: vex.VulnerabilityID(id)}, Status: status,
		Products: []vex.Product{{
			Component:     vex.Component{ID: product},
			Subcomponents: []vex.Subcomponent{{Component: vex.Component{ID: component}}},
		}},
	}
}

// zizmor has no access to the network: what it finds does not depend on the day.
func zizmor(t *testing.T, path string) (string, error) {
	t.Helper()
	arguments := []string{"--offline", "--no-progress", "--color=never", "--min-severity=medium", path}
	report, err := exec.CommandContext(t.Context(), setting(t, "ZIZMOR"), arguments...).CombinedOutput()
	return string(report), err
}

func setting(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set; run: make supply-chain", name)
	}
	return value
}
