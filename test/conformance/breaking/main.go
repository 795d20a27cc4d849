// Command breaking compares the contract with the one of the last release, and fails if a program that was written against
// the released contract could stop working. `make breaking` takes the released contract from the last tag.
//
//	go run . RELEASED ../../../openapi.yaml ../../../CHANGELOG.md
//
// oasdiff checks operations, fields, types, limits and responses. This program adds prices, and which operations need a key. A
// deliberate break passes if the major version is higher than that of the last release and the changelog names each operation that it
// breaks, under "### Breaking" of the section Unreleased or of that version.
//
// It is a module of its own so that oasdiff's dependencies stay out of the service's.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/oasdiff/oasdiff/checker"
	"github.com/oasdiff/oasdiff/diff"
	"github.com/oasdiff/oasdiff/load"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: breaking RELEASED CONTRACT CHANGELOG")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "breaking:", err)
		os.Exit(1)
	}
}

func run(releasedPath, contractPath, changelogPath string) error {
	var texts [3][]byte
	for i, path := range []string{releasedPath, contractPath, changelogPath} {
		var err error
		if texts[i], err = os.ReadFile(path); err != nil {
			return err
		}
	}
	released, contract, changelog := texts[0], texts[1], string(texts[2])
	result, err := compare(released, contract)
	if err != nil {
		return err
	}
	forbidden := result.forbidden(changelog)
	for _, b := range result.breaks {
		verdict := "deliberate"
		if slices.Contains(forbidden, b) {
			verdict = "BREAKS"
		}
		fmt.Printf("%s  %s: %s (%s)\n", verdict, b.operation, b.text, b.kind)
	}
	if len(forbidden) > 0 {
		return fmt.Errorf("%d changes break the released contract %s: take them back, or raise the major version and name "+
			"each operation in the changelog under ### Breaking", len(forbidden), result.releasedVersion)
	}
	fmt.Printf("TABLE|oasdiff|%s|openapi.yaml against the released %s, with prices and keys: %d deliberate breaks|0\n",
		oasdiffVersion(), result.releasedVersion, len(result.breaks))
	return nil
}

// comparison is what changed between two contracts that somebody could notice.
type comparison struct {
	releasedVersion, version string
	breaks                   []breakage
}

// breakage is one change that breaks one operation: its operationId in the released contract, a word for the kind of
// change (oasdiff's, or price-changed, security-changed), and a sentence.
type breakage struct{ operation, kind, text string }

// severities overrides those of oasdiff.
var severities = map[string]checker.Level{
	// Clients that were written or generated against the contract use these, although it calls them optional.
	"response-optional-property-removed":   checker.ERR,
	"optional-response-header-removed":     checker.ERR,
	"response-non-success-status-removed":  checker.ERR,
	"response-property-enum-value-removed": checker.ERR, // instead of this error code another one is returned
	"api-operation-id-removed":             checker.ERR, // it is the method's name in every SDK
	// Clients that leave the field out would get something else.
	"request-property-default-value-changed":  checker.ERR,
	"request-property-default-value-removed":  checker.ERR,
	"request-parameter-default-value-changed": checker.ERR,
	"request-parameter-default-value-removed": checker.ERR,
	// The texts of responses are what other agents were allowed to send; no client may rely on their length.
	"response-property-max-length-increased": checker.INFO,
	"response-property-min-length-decreased": checker.INFO,
}

// compare finds what a contract breaks of the released one. Schemas are compared without allOf, which only gives a referenced
// schema a description of its own.
func compare(released, contract []byte) (*comparison, error) {
	before, err := load.NewSpecInfoFromData(openapi3.NewLoader(), released, "released", load.WithFlattenAllOf())
	if err != nil {
		return nil, fmt.Errorf("read the released contract: %w", err)
	}
	after, err := load.NewSpecInfoFromData(openapi3.NewLoader(), contract, "contract", load.WithFlattenAllOf())
	if err != nil {
		return nil, fmt.Errorf("read the contract: %w", err)
	}
	result := &comparison{releasedVersion: before.Spec.Info.Version, version: after.Spec.Info.Version}
	closeOpenEnums(before.Spec, after.Spec)
	forgetDeprecation(before.Spec)
	forgetDeprecation(after.Spec)
	difference, sources, err := diff.GetWithOperationsSourcesMap(diff.NewConfig(), before, after)
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	judged := checker.CheckBackwardCompatibilityUntilLevel(
		checker.NewConfig(checker.GetAllChecks(), checker.WithSeverityLevels(severities)), difference, sources, checker.WARN)
	localizer := checker.NewDefaultLocalizer()
	for _, change := range judged {
		name := change.GetOperationId()
		if old := find(before.Spec, change.GetPath(), change.GetOperation()); old != nil {
			name = old.OperationID
		}
		result.add(name, change.GetId(), change.GetUncolorizedText(localizer))
	}
	for path, item := range before.Spec.Paths.Map() {
		for method, old := range item.Operations() {
			if now := find(after.Spec, path, method); now != nil {
				result.comparePrice(old, now)
				result.compareSecurity(before.Spec, after.Spec, old, now)
			}
		}
	}
	slices.SortFunc(result.breaks, func(a, b breakage) int {
		return cmp.Or(cmp.Compare(a.operation, b.operation), cmp.Compare(a.kind, b.kind), cmp.Compare(a.text, b.text))
	})
	return result, nil
}

// find returns an operation, or nil.
func find(document *openapi3.T, path, method string) *openapi3.Operation {
	item := document.Paths.Value(path)
	if item == nil {
		return nil
	}
	return item.Operations()[method]
}

func (c *comparison) add(operation, kind, text string) {
	c.breaks = append(c.breaks, breakage{operation, kind, text})
}

// closeOpenEnums takes out of the new contract the values that were added to an enum marked x-open-enum: its
// description has told clients all along that more may come.
func closeOpenEnums(before, after *openapi3.T) {
	for name, schema := range before.Components.Schemas {
		now := after.Components.Schemas[name]
		if schema.Value.Extensions["x-open-enum"] != true || now == nil {
			continue
		}
		added := func(value any) bool { return !slices.Contains(schema.Value.Enum, value) }
		now.Value.Enum = slices.DeleteFunc(now.Value.Enum, added)
	}
}

// forgetDeprecation removes marks of deprecation, which oasdiff accepts as a reason for a removal. Clients that still use what was
// deprecated break all the same.
func forgetDeprecation(document *openapi3.T) {
	for _, item := range document.Paths.Map() {
		for _, operation := range item.Operations() {
			operation.Deprecated = false
			delete(operation.Extensions, "x-stability-level")
			for _, parameter := range operation.Parameters {
				parameter.Value.Deprecated = false
			}
		}
	}
}

// comparePrice compares prices and protocols. A payment must have the price exactly, so a lower price breaks clients too. A new protocol
// does not.
func (c *comparison) comparePrice(old, now *openapi3.Operation) {
	was, is := paymentInfo(old), paymentInfo(now)
	if difference := gocmp.Diff(was["price"], is["price"]); difference != "" {
		c.add(old.OperationID, "price-changed", fmt.Sprintf("the price was %v and is %v", was["price"], is["price"]))
	}
	for name := range protocols(was) {
		if !protocols(is)[name] {
			c.add(old.OperationID, "protocol-removed", "it can no longer be paid with "+name)
		}
	}
}

func paymentInfo(operation *openapi3.Operation) map[string]any {
	info, _ := operation.Extensions["x-payment-info"].(map[string]any)
	return info
}

func protocols(info map[string]any) map[string]bool {
	names := map[string]bool{}
	list, _ := info["protocols"].([]any)
	for _, protocol := range list {
		named, _ := protocol.(map[string]any)
		for name := range named {
			names[name] = true
		}
	}
	return names
}

// compareSecurity compares the security requirements of an operation: its own, or else those of the document.
func (c *comparison) compareSecurity(before, after *openapi3.T, old, now *openapi3.Operation) {
	was, is := security(before, old), security(after, now)
	if difference := gocmp.Diff(was, is); difference != "" {
		c.add(old.OperationID, "security-changed", fmt.Sprintf("it asked for %v and asks for %v", was, is))
	}
}

func security(document *openapi3.T, operation *openapi3.Operation) []string {
	requirements := document.Security
	if operation.Security != nil {
		requirements = *operation.Security
	}
	var ways []string
	for _, requirement := range requirements {
		var schemes []string
		for name, scopes := range requirement {
			scheme := document.Components.SecuritySchemes[name].Value
			schemes = append(schemes, fmt.Sprint(scheme.Type, scheme.In, scheme.Name, scheme.Scheme, scopes))
		}
		slices.Sort(schemes)
		ways = append(ways, strings.Join(schemes, "+"))
	}
	slices.Sort(ways)
	return ways
}

// forbidden returns the breaks that the changelog does not announce.
func (c *comparison) forbidden(changelog string) []breakage {
	was, errWas := major(c.releasedVersion)
	is, errIs := major(c.version)
	announced := ""
	if errors.Join(errWas, errIs) == nil && is > was {
		announced = announcements(changelog, c.version)
	}
	var list []breakage
	for _, b := range c.breaks {
		if b.operation == "" || !regexp.MustCompile(`\b`+regexp.QuoteMeta(b.operation)+`\b`).MatchString(announced) {
			list = append(list, b)
		}
	}
	return list
}

func major(version string) (int, error) {
	number, _, _ := strings.Cut(version, ".")
	return strconv.Atoi(number)
}

// announcements returns what the changelog says under ### Breaking of the section Unreleased, or of the version.
func announcements(changelog, version string) string {
	var text strings.Builder
	section, heading := "", ""
	for line := range strings.Lines(changelog) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section, heading = strings.Trim(strings.Fields(title + " -")[0], "[]"), ""
		} else if title, ok := strings.CutPrefix(line, "### "); ok {
			heading = strings.TrimSpace(title)
		} else if (section == "Unreleased" || section == version) && heading == "Breaking" {
			text.WriteString(line)
		}
	}
	return text.String()
}

func oasdiffVersion() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/oasdiff/oasdiff" {
			return module.Version
		}
	}
	return "unknown"
}
