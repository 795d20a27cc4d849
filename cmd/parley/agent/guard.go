package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/parley-chat/parley/agent"
)

// walletPassphrase sets the passphrase that guards raising limits, approving, unfreezing and accepting.
type walletPassphrase struct {
	Remove bool `help:"Remove it."`
}

func (c *walletPassphrase) Run(ctx context.Context, s *session) error {
	if err := s.personOnly("change the wallet's passphrase", "parley wallet passphrase"); err != nil {
		return err
	}
	if err := s.askPassphrase(); err != nil {
		return err
	}
	text, done := "", "the wallet has no passphrase any more"
	if !c.Remove {
		var err error
		if text, err = s.newPassphrase("New passphrase of the wallet: "); err != nil {
			return err
		}
		done = "raising limits, approving, unfreezing, accepting and export need the passphrase now"
	}
	if err := s.agent.Passphrase().Set(text); err != nil {
		return err
	}
	return s.print(ctx, object{"passphrase": !c.Remove}, func(w io.Writer) { fmt.Fprintln(w, done) })
}

// minPassphrase is for new passphrases.
const minPassphrase = 8

// newPassphrase asks for a passphrase twice.
func (s *session) newPassphrase(question string) (string, error) {
	text, err := s.AskSecret(question)
	if err != nil {
		return "", err
	}
	again, err := s.AskSecret("The same passphrase again: ")
	if err != nil {
		return "", err
	}
	if again != text {
		return "", errors.New("the two passphrases differ")
	}
	if len(text) < minPassphrase {
		return "", fmt.Errorf("a passphrase has at least %d characters", minPassphrase)
	}
	return text, nil
}

// walletCheck compares the wallet's file with its witness.
type walletCheck struct {
	Accept bool `help:"Go on with the file as it is, although it lacks payments or limits. For a person."`
}

func (c *walletCheck) Run(ctx context.Context, s *session) error {
	problem := s.agent.CheckState(ctx)
	if _, changed := errors.AsType[*agent.StateError](problem); problem != nil && (!changed || !c.Accept) {
		return problem
	}
	limits, left, _, err := s.agent.Ledger().Limits(ctx)
	if err != nil {
		return err
	}
	if problem != nil {
		fmt.Fprintln(s.Err, problem)
		question := fmt.Sprintf("Go on with limits of %s USD per call and %s per day, of which %s are left today?",
			agent.USD(limits.PerCall), agent.USD(limits.PerDay), agent.USD(left.PerDay))
		if err := s.decide(question, "accept the state of the wallet", "parley wallet check --accept"); err != nil {
			return err
		}
		if err := s.agent.AcceptState(ctx); err != nil {
			return err
		}
	}
	return s.print(ctx, object{"state": "ok", "accepted": problem != nil}, func(w io.Writer) { fmt.Fprintln(w, "the wallet's file is good") })
}

// personOnly returns an error that names the command for a person, unless a person runs it.
func (s *session) personOnly(what, command string) error {
	if s.Person() {
		return nil
	}
	return &personError{what, command}
}

// decide asks a person at the terminal, and for the wallet's passphrase if there is one. Without a person the error names what was to be
// done and the command for it.
func (s *session) decide(question, what, command string) error {
	if err := s.personOnly(what, command); err != nil {
		return err
	}
	yes, err := s.confirm(question)
	if err == nil && !yes {
		err = errors.New("not agreed; nothing was changed")
	}
	if err != nil {
		return err
	}
	return s.askPassphrase()
}

// confirm asks a person for a yes, and names the wallet: a person may have several.
func (s *session) confirm(question string) (bool, error) {
	return s.Confirm(fmt.Sprintf("%s in %s: %s", agent.PlainWord(cmp.Or(s.config.Username, s.config.Address)), s.home, question))
}

// askPassphrase returns an error unless a person enters the wallet's passphrase, or there is none.
func (s *session) askPassphrase() error {
	guard := agent.Passphrase{Secrets: s.secrets, Address: s.config.Address}
	if s.agent != nil {
		guard = s.agent.Passphrase()
	}
	set, err := guard.IsSet()
	if err != nil || !set {
		return err
	}
	text, err := s.AskSecret("The wallet's passphrase: ")
	if err != nil {
		return err
	}
	return guard.Check(text)
}

// agreeToChange asks a person whether to do something.
func (s *session) agreeToChange(what, command string) error {
	return s.decide("This will "+what+". Agree?", what, command)
}

// personError means that only a person may do something.
type personError struct{ what, command string }

func (e *personError) Error() string {
	return fmt.Sprintf("only a person at a terminal can %s: run %s in a terminal of your own", e.what, e.command)
}
