//go:build !noserver

package main

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/parley-chat/parley/cmd/parley/settings"
	"github.com/parley-chat/parley/internal/devnet"
	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/store/storetest"
)

// goodSettings are enough for serve.
var goodSettings = []string{
	"--database-url=postgres://parley:hunter2@127.0.0.1:1/parley", "--payee=" + devnet.Payee, "--facilitator-url=https://facilitator.example",
	"--rpc-url=https://rpc.example/hunter2", "--server-secret=" + testServerSecret}

// testServerSecret is the key of stored responses of all tests.
const testServerSecret = "file:testdata/server-secret"

func writeFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "settings.yaml")
	testkit.NoError(t, os.WriteFile(name, []byte(content), 0o600))
	return name
}

// effective returns the settings of serve as the program shows them, by name.
func effective(t *testing.T, args ...string) map[string]string {
	t.Helper()
	parser, err := newParser(&serverSettings{}, kong.Vars{"version": ""})
	testkit.NoError(t, err)
	command, err := parser.Parse(append([]string{"serve"}, args...))
	testkit.NoError(t, err)
	values := map[string]string{}
	for _, flag := range command.Selected().Flags {
		values[flag.Name] = settings.Shown(flag.Target.Interface())
	}
	return values
}

// TestSettingsPrecedence: a flag overrides the environment, which overrides the file, which overrides the default.
func TestSettingsPrecedence(t *testing.T) {
	file := writeFile(
		t,
		"drain-time: 3s\nlimit-address-rate: 3\nchannel-claim-sum: 3\nlimit-connections: 3\ntrusted-proxies: [10.0.0.0/8, 'fd00::1']\n"+
			"payee: 0xBcd4042DE499D14e55001CcbB24a551F3b954096\ntls-http-listen: |\n  two\n  lines\nadmin-listen:\n",
	)
	t.Setenv("PARLEY_CONFIG", file)
	t.Setenv("PARLEY_LIMIT_ADDRESS_RATE", "2")
	t.Setenv("PARLEY_CHANNEL_CLAIM_SUM", "2")
	t.Setenv("PARLEY_LIMIT_CONNECTIONS", "") // as compose.yaml sets it for a variable that is not set
	t.Setenv("PARLEY_LISTEN", "")
	got := effective(t, append(slices.Clone(goodSettings[2:]), "--channel-claim-sum=1", goodSettings[0])...)
	want := map[string]string{
		"channel-claim-sum": "1", "limit-address-rate": "2", "limit-connections": "3", "drain-time": "3s", "log-level": "info",
		"listen": "127.0.0.1:8402", "trusted-proxies": "10.0.0.0/8,fd00::1", "payee": "0xBcd4042DE499D14e55001CcbB24a551F3b954096",
		"tls-http-listen": `"two\nlines\n"`, "admin-listen": "", "database-url": "(hidden)", "channel-withdraw-delay": "24h",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %s, want %s", name, got[name], value)
		}
	}
}

// TestSecretFiles: a secret can be in a file of its own. Only the path of the file is shown.
func TestSecretFiles(t *testing.T) {
	secret, config := writeFile(t, storetest.URL(t)+"\n"), writeFile(t, "database-url: postgres://127.0.0.1:1/hunter2\n")
	for _, args := range [][]string{{"--database-url=file:" + secret, "--config", config},
		{"--config", writeFile(t, "database-url: file:"+secret)}} {
		if err := invoke(t, append([]string{"migrate", "--status"}, args...)...).err; err != nil {
			t.Errorf("migrate %v: %v", args, err)
		}
	}
	t.Setenv("PARLEY_DATABASE_URL", "file:"+secret)
	if shown := effective(t, goodSettings[1:]...)["database-url"]; shown != "file:"+secret {
		t.Errorf("the setting is shown as %s, which does not name the file", shown)
	}
}

// TestSettingNames: the variable of a setting follows from its flag, also for settings that are added later.
func TestSettingNames(t *testing.T) {
	t.Parallel()
	parser, err := kong.New(&commands{}, append((&settings.Settings{}).Options(), kong.Vars{"version": ""})...)
	testkit.NoError(t, err)
	for _, leaf := range parser.Model.Leaves(false) {
		if !slices.ContainsFunc(leaf.Flags, settings.IsSettingsFile) {
			continue
		}
		for _, flag := range leaf.Flags {
			if len(flag.Envs) > 0 && (len(flag.Envs) > 1 || flag.Envs[0] != settings.Variable(flag.Name)) {
				t.Errorf("%s: the setting --%s has the variables %v, want %s", leaf.FullPath(), flag.Name, flag.Envs, settings.Variable(flag.Name))
			}
		}
	}
}

// TestKnownVariables: servers accept all variables that a part of this repository reads.
func TestKnownVariables(t *testing.T) {
	t.Parallel()
	read := regexp.MustCompile(`(?:Getenv\("|LookupEnv\("|process\.env\.|environ\.get\("|environ\[")(PARLEY_[A-Z0-9_]+)`)
	found := map[string]bool{}
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if entry.IsDir() && slices.Contains([]string{".git", "bin", "node_modules"}, entry.Name()) {
			return fs.SkipDir
		}
		if err != nil || !slices.Contains([]string{".go", ".mjs", ".py"}, filepath.Ext(path)) {
			return err
		}
		content, err := os.ReadFile(path) //nolint:gosec // a file of the repository
		for _, match := range read.FindAllSubmatch(content, -1) {
			found[string(match[1])+"=x"] = true
		}
		return err
	})
	if err != nil || len(found) < 8 {
		t.Fatalf("%v, found %v", err, found)
	}
	parsed := &settings.Settings{}
	_, err = kong.New(&commands{}, append(parsed.Options(), kong.Vars{"version": ""})...)
	testkit.NoError(t, err)
	// Kubernetes sets the last ones in each container of the namespace.
	further := []string{"PARLEY_SERVICE_PORT_HTTP=1", "PARLEY_ADMIN_SERVICE_HOST=10.0.0.1", "PARLEY_PORT=tcp://10.0.0.1:80",
		"PARLEY_PORT_80_TCP_ADDR=::1"}
	if wrong := parsed.UnknownVariables(append(slices.Collect(maps.Keys(found)), further...)); wrong != nil {
		t.Error(wrong)
	}
	wrong := parsed.UnknownVariables([]string{"PARLEY_ZZZZZZZZZZ=hunter2"})
	want := "PARLEY_ZZZZZZZZZZ in the environment is not a setting; remove it: parley serve --help lists the settings"
	if len(wrong) != 1 || wrong[0] != want {
		t.Errorf("a variable without a similar one: %v, want %s", wrong, want)
	}
}

// TestCompletion: a shell gets the settings, and the names of files for those that take one.
func TestCompletion(t *testing.T) {
	t.Parallel()
	folder := filepath.Dir(writeFile(t, ""))
	for line, want := range map[string]string{
		"parley serve --database-": "--database-url", "parley migrate --conf": "--config",
		"parley serve --config " + folder + "/": "settings.yaml", "parley --home " + filepath.Dir(folder) + "/": filepath.Base(folder),
		"parley help wal": "wallet", "parley init --secrets ": "keyring", "parley call getG": "getGroupChat"} {
		cmd := itself(t.Context(), t)
		cmd.Env = append(cmd.Env, "COMP_LINE="+line)
		if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%q is completed with %q, %v, want %s", line, out, err, want)
		}
	}
}
