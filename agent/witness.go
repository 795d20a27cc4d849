package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/parley-chat/parley/internal/lockfile"
)

// witnessFile has the last step of each wallet. One is in the agent's folder, another one may be elsewhere.
const witnessFile = "witness.json"

// StateError means that wallet.db is not what this wallet wrote last: it was deleted, emptied, shortened, changed, exchanged, or restored
// from an older copy. It may lack payments and lower limits, so nothing is paid until a person decides.
type StateError struct {
	Path, Problem string
	// Unreadable is true if nothing can be accepted of the file.
	Unreadable bool
}

func (e *StateError) Error() string {
	accept := "accepts what is there"
	if e.Unreadable {
		accept = "moves it away and accepts that its payments and limits are lost,"
	}
	return fmt.Sprintf("%s %s. Nothing is paid until a person puts the newest copy back, or %s with: parley wallet check --accept",
		e.Path, e.Problem, accept)
}

// step is the last change of a wallet that matters for what it may spend: a payment, limits, freezing or terms. The hash is over that, the
// number and the wallet's address.
type step struct {
	Number uint64 `json:"number"`
	Hash   string `json:"hash"`
}

// witness keeps the last step of a wallet apart from wallet.db, and beside the wallet's key that there was one. A step is in wallet.db
// first, then in the witness, and only then is the payment signed. So wallet.db is ahead after a crash, and never behind.
type witness struct {
	address string
	folder  string // of the agent
	here    *secretFile
	away    *secretFile // outside of the folder, so that it stays if all of that is restored; nil if there is none
	secrets Secrets
}

func newWitness(settings Settings, address string) (*witness, error) {
	folder, err := filepath.Abs(settings.Folder)
	w := &witness{address: address, folder: folder, here: &secretFile{path: filepath.Join(folder, witnessFile)}, secrets: settings.Secrets}
	if settings.Witness != "" && os.MkdirAll(settings.Witness, 0o700) == nil {
		w.away = &secretFile{path: filepath.Join(settings.Witness, witnessFile)}
	}
	return w, err
}

// mark names what is kept beside the wallet's key: that the wallet has a state.
func (w *witness) mark() string { return "state " + w.address }

// awayName names the wallet in the file that all folders share.
func (w *witness) awayName() string { return w.address + " " + w.folder }

// steps returns the last step as each file has it. The file elsewhere may be missing: its folder may be emptied at any time.
func (w *witness) steps() (all []step, err error) {
	var last step
	switch text, err := w.here.Load(w.address); {
	case errors.Is(err, ErrNoSecret):
	case err != nil:
		return nil, &StateError{Path: w.here.path, Problem: "cannot be read (" + err.Error() + ")"}
	case json.Unmarshal([]byte(text), &last) != nil:
		return nil, &StateError{Path: w.here.path, Problem: "is damaged"}
	default:
		all = append(all, last)
	}
	if w.away != nil {
		if text, err := w.away.Load(w.awayName()); err == nil && json.Unmarshal([]byte(text), &last) == nil {
			all = append(all, last)
		}
	}
	return all, nil
}

// save notes a step. The first time it also notes beside the key that there is a state.
func (w *witness) save(last step, first bool) error {
	text, err := json.Marshal(last)
	if err == nil && first {
		err = w.secrets.Save(w.mark(), "the wallet has a file "+stateFile)
	}
	if err != nil {
		return err
	}
	if w.away != nil {
		_ = w.away.Save(w.awayName(), string(text)) // the file here is enough
	}
	return w.here.Save(w.address, string(text))
}

// verify returns the last step. The error is a [*StateError] if the file is not what was written last.
func (s *state) verify(ctx context.Context, tx *sql.Tx) (last step, first bool, err error) {
	seen, err := s.witness.steps()
	if err != nil {
		return last, false, err
	}
	if last, err = loadSetting(ctx, tx, stepSetting, step{}); err != nil {
		return last, false, &StateError{s.path, "is damaged", true}
	}
	hash, payments, err := s.hash(ctx, tx, last.Number)
	if err != nil {
		return last, false, err
	}
	wrong := func(problem string, values ...any) error {
		return &StateError{Path: s.path, Problem: fmt.Sprintf(problem, values...)}
	}
	for _, known := range seen {
		switch {
		case last.Number == 0:
			return last, false, wrong("was deleted or emptied: it has no payments and limits, step %d was written", known.Number)
		case last.Number < known.Number:
			return last, false, wrong("is an older copy: it ends at step %d, step %d was written", last.Number, known.Number)
		case last.Number == known.Number && last.Hash != known.Hash:
			return last, false, wrong("is another copy than the one that was written last")
		}
	}
	switch {
	case last.Number > 0 && hash != last.Hash:
		return last, false, wrong("was changed by another program, or is of another wallet")
	case last.Number > 0 && seen == nil:
		return last, false, wrong("has no witness: %s was deleted, or is without this wallet", s.witness.here.path)
	case last.Number > 0:
		return last, false, nil
	case payments > 0:
		return last, false, wrong("has payments of another program")
	}
	_, err = s.witness.secrets.Load(s.witness.mark())
	if err == nil {
		return last, false, wrong("was deleted or emptied, and so was %s", s.witness.here.path)
	}
	if errors.Is(err, ErrNoSecret) {
		err = nil
	}
	return last, true, err
}

// hash returns the hash of the state that matters at a step, and the number of payments.
func (s *state) hash(ctx context.Context, tx *sql.Tx, number uint64) (hash string, payments int, err error) {
	var last, settings string
	err = tx.QueryRowContext(ctx, `SELECT
		(SELECT count(*) FROM payments),
		coalesce((SELECT json_array(number, at, call, operation, amount, deposit, approval) FROM payments ORDER BY number DESC LIMIT 1), ''),
		(SELECT json_group_array(json_array(name, value)) FROM
			(SELECT name, value FROM settings WHERE name IN (?, ?, ?) ORDER BY name))`,
		limitsSetting, frozenSetting, termsSetting).Scan(&payments, &last, &settings)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %d %q %q", s.witness.address, number, payments, last, settings))
	return hex.EncodeToString(sum[:]), payments, err
}

// step is transact for what matters for what the wallet may spend. When it returns, the witness has it.
func (s *state) step(ctx context.Context, run func(tx *sql.Tx) error) error {
	if s.witness == nil {
		return s.transact(ctx, run)
	}
	return s.witnessed(ctx, func(tx *sql.Tx) (uint64, bool, error) {
		last, first, err := s.verify(ctx, tx)
		if err == nil {
			err = run(tx)
		}
		return last.Number, first, err
	})
}

// witnessed runs a function in a transaction and notes it as the step after the one that the function returns. Steps take turns, so that
// the witness never goes back.
func (s *state) witnessed(ctx context.Context, run func(tx *sql.Tx) (last uint64, first bool, err error)) error {
	lock, err := lockfile.Wait(ctx, s.path+".step")
	if err != nil {
		return err
	}
	defer lock.Release()
	var next step
	var first bool
	if err := s.transact(ctx, func(tx *sql.Tx) (err error) {
		if next.Number, first, err = run(tx); err != nil {
			return err
		}
		next.Number++
		if next.Hash, _, err = s.hash(ctx, tx, next.Number); err != nil {
			return err
		}
		return saveSetting(ctx, tx, stepSetting, next)
	}); err != nil {
		return err
	}
	if err := s.witness.save(next, first); err != nil {
		return fmt.Errorf("write %s: %w", s.witness.here.path, err)
	}
	return nil
}

// CheckState returns a [*StateError] if wallet.db is not what the wallet wrote last.
func (a *Agent) CheckState(ctx context.Context) error {
	s := a.ledger.state
	return s.transact(ctx, func(tx *sql.Tx) error {
		if damage, err := value[string](ctx, tx, "PRAGMA quick_check(1)"); err != nil || damage != "ok" {
			return &StateError{s.path, fmt.Sprintf("is damaged (%s)", cmp.Or(damage, fmt.Sprint(err))), true}
		}
		_, _, err := s.verify(ctx, tx)
		return err
	})
}

// AcceptState takes wallet.db as it is from now on. Only a person may call it.
func (a *Agent) AcceptState(ctx context.Context) error {
	s := a.ledger.state
	return s.witnessed(ctx, func(tx *sql.Tx) (uint64, bool, error) {
		last, err := loadSetting(ctx, tx, stepSetting, step{})
		seen, damaged := s.witness.steps()
		if damaged != nil {
			err = errors.Join(err, os.Remove(s.witness.here.path))
		}
		for _, known := range seen {
			last.Number = max(last.Number, known.Number)
		}
		return last.Number, true, err
	})
}
