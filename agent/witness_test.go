package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-chat/parley/internal/testkit"
	"github.com/parley-chat/parley/x402"
)

// walletFiles are the files of a wallet, which a test damages.
type walletFiles struct {
	t        *testing.T
	settings Settings
	path     string // of wallet.db
}

func newWalletFiles(t *testing.T) *walletFiles {
	t.Helper()
	folder, signer := t.TempDir(), x402.NewKeySigner(testkit.NewKey())
	secrets, err := OpenSecrets(PlaceFile, folder, nil)
	testkit.NoError(t, err)
	return &walletFiles{t, Settings{Folder: folder, Signer: signer, Secrets: secrets, Witness: t.TempDir()},
		filepath.Join(folder, "wallets", strings.ToLower(signer.Address()), stateFile)}
}

// open opens the wallet until the test ends.
func (f *walletFiles) open(unchecked bool) (*Agent, error) {
	settings := f.settings
	settings.Unchecked = unchecked
	a, err := Open(settings)
	if err == nil {
		f.t.Cleanup(a.Close)
	}
	return a, err
}

// spend reserves payments.
func (f *walletFiles) spend(times int) {
	f.t.Helper()
	a, err := f.open(false)
	testkit.NoError(f.t, err)
	for range times {
		testkit.NoError(f.t, reserve(f.t, a.ledger, 1000, intent{}))
	}
	a.Close()
}

func (f *walletFiles) remove(names ...string) {
	for _, name := range names {
		testkit.NoError(f.t, os.RemoveAll(filepath.Join(f.settings.Folder, name)))
	}
}

// copyTo copies wallet.db, and copyAll the whole folder.
func (f *walletFiles) copyTo(path string) {
	content, err := os.ReadFile(f.path)
	testkit.NoError(f.t, errors.Join(err, os.WriteFile(path, content, 0o600)))
}

// TestState: a wallet whose files are not those that it wrote last pays nothing until a person accepts them. The error names the file and
// the command.
func TestState(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		damage func(f *walletFiles, older, whole string)
		want   string // "" if nothing is lost
	}{
		"deleted":              {func(f *walletFiles, _, _ string) { f.remove("wallets") }, "was deleted or emptied"},
		"deleted with witness": {func(f *walletFiles, _, _ string) { f.remove("wallets", witnessFile) }, "was deleted or emptied"},
		"deleted with both witnesses": {func(f *walletFiles, _, _ string) {
			f.remove("wallets", witnessFile)
			f.settings.Witness = ""
		}, "was deleted or emptied, and so was"},
		"emptied": {func(f *walletFiles, _, _ string) { testkit.NoError(f.t, os.Truncate(f.path, 0)) }, "was deleted or emptied"},
		"torn":    {func(f *walletFiles, _, _ string) { testkit.NoError(f.t, os.Truncate(f.path, 5000)) }, "is damaged"},
		"shortened": {func(f *walletFiles, _, _ string) {
			a, err := f.open(true)
			testkit.NoError(f.t, err)
			testkit.NoError(f.t, a.ledger.exec(f.t.Context(), "DELETE FROM payments WHERE number > 1"))
		}, "was changed by another program"},
		"other limits": {func(f *walletFiles, _, _ string) {
			a, err := f.open(true)
			testkit.NoError(f.t, err)
			testkit.NoError(f.t, a.ledger.exec(f.t.Context(), `INSERT INTO settings VALUES ('limits', '{"per_call":9000000,"per_day":9000000}')`))
		}, "was changed by another program"},
		"older": {func(f *walletFiles, older, _ string) { testkit.NoError(f.t, os.Rename(older, f.path)) }, "is an older copy"},
		"all older": {func(f *walletFiles, _, whole string) {
			f.remove(".")
			testkit.NoError(f.t, os.CopyFS(f.settings.Folder, os.DirFS(whole)))
		}, "is an older copy"},
		"exchanged": {func(f *walletFiles, _, _ string) {
			other := newWalletFiles(f.t)
			other.spend(9)
			other.copyTo(f.path)
		}, "is of another wallet"},
		"witness emptied": {func(f *walletFiles, _, _ string) {
			testkit.NoError(f.t, os.Truncate(filepath.Join(f.settings.Folder, witnessFile), 0))
		}, "cannot be read"},
		"witnesses deleted": {func(f *walletFiles, _, _ string) {
			f.remove(witnessFile)
			f.settings.Witness = ""
		}, "has no witness"},
		"one witness deleted": {func(f *walletFiles, _, _ string) { f.remove(witnessFile) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newWalletFiles(t)
			f.spend(2)
			older, whole := filepath.Join(t.TempDir(), stateFile), filepath.Join(t.TempDir(), "copy")
			f.copyTo(older)
			testkit.NoError(t, os.CopyFS(whole, os.DirFS(f.settings.Folder)))
			f.spend(2)
			of.damage(f, older, whole)
			f.check(of.want)
		})
	}
}

func (f *walletFiles) check(want string) {
	t := f.t
	t.Helper()
	_, err := f.open(false)
	changed, ok := errors.AsType[*StateError](err)
	if want == "" {
		testkit.NoError(t, err)
		return
	}
	if !ok || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "parley wallet check --accept") ||
		!filepath.IsAbs(changed.Path) {
		t.Fatalf("the error is %v, want %q", err, want)
	}
	if want == "is damaged" {
		testkit.NoError(t, os.Rename(f.path, f.path+".torn")) // as the error says
	}
	person, err := f.open(true)
	testkit.NoError(t, err)
	if err := reserve(t, person.ledger, 1000, intent{}); err == nil {
		t.Error("a payment was reserved before a person accepted the state")
	}
	testkit.NoError(t, person.AcceptState(t.Context()))
	testkit.NoError(t, person.CheckState(t.Context()))
	f.spend(1)
}

// TestStateAfterCrash: wallet.db may be one step ahead of its witness, which is not taken for damage, and not behind.
func TestStateAfterCrash(t *testing.T) {
	t.Parallel()
	f := newWalletFiles(t)
	f.spend(2)
	path := filepath.Join(f.settings.Folder, witnessFile)
	before, err := os.ReadFile(path)
	testkit.NoError(t, err)
	f.settings.Witness = ""
	f.spend(1)
	testkit.NoError(t, os.WriteFile(path, before, 0o600)) // as if the process had died between the two files
	f.spend(1)
	if after, err := os.ReadFile(path); err != nil || !strings.Contains(string(after), `number\":4`) {
		t.Errorf("the witness has %s, %v; want step 4", after, err)
	}
}
