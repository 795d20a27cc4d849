package devnet

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"github.com/parley-chat/parley/x402"
)

// journalName is the name of the journal file in the ledger's folder.
const journalName = "dev-ledger.jsonl"

// The kinds of records.
const (
	kindMint     = "mint"
	kindTransfer = "transfer"
	kindCancel   = "cancel"
	// Of the contract for payment channels: see channels.go.
	kindDeposit   = "deposit"
	kindClaim     = "claim"
	kindSettle    = "settle"
	kindRefund    = "refund"
	kindWithdraw  = "withdraw"  // initiated
	kindWithdrawn = "withdrawn" // finalized

	kindEmpty = "empty" // a block without a record of the ledger; never in the journal
)

// record is one line of the journal. Addresses and nonce are in lower case. Time is in Unix seconds.
type record struct {
	Kind        string `json:"kind"`
	From        string `json:"from,omitzero"`
	To          string `json:"to,omitzero"`
	Amount      uint64 `json:"amount,string"`
	Nonce       string `json:"nonce,omitzero"`
	Transaction string `json:"transaction,omitzero"`
	Time        int64  `json:"time,omitzero"`

	// Of the contract for payment channels.
	Channel string         `json:"channel,omitzero"`
	Claims  []claim        `json:"claims,omitzero"`
	Config  *channelConfig `json:"config,omitzero"` // of a deposit or a withdrawal
}

type channelConfig x402.ChannelConfig

// kinds are those of the journal.
var kinds = []string{kindMint, kindTransfer, kindCancel, kindDeposit, kindClaim, kindSettle, kindRefund, kindWithdraw, kindWithdrawn}

// openJournal replays the journal in dir and keeps it open for writing.
func (l *Ledger) openJournal(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, journalName)
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if err := l.replay(file); err != nil {
		_ = file.Close()
		return fmt.Errorf("%s: %w", path, err)
	}
	l.journal = file
	return nil
}

// replay applies every complete line of the journal and removes an incomplete last line.
func (l *Ledger) replay(file *os.File) error {
	content, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	whole := bytes.LastIndexByte(content, '\n') + 1
	number := 0
	for line := range bytes.Lines(content[:whole]) {
		number++
		var r record
		if err := json.Unmarshal(line, &r, json.RejectUnknownMembers(true)); err != nil {
			return fmt.Errorf("line %d is damaged: %w", number, err)
		}
		if err := l.check(r); err != nil {
			return fmt.Errorf("line %d cannot follow the lines before it: %w", number, err)
		}
		l.move(r)
	}
	// An incomplete line means that the process was killed while writing it, so no caller has received its response.
	// The line must be removed, because the next line would be appended to it.
	return file.Truncate(int64(whole))
}

// write appends a record in one system call. If the process is killed, only the last line can be incomplete.
func (l *Ledger) write(r record) error {
	if l.journal == nil {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = l.journal.Write(append(line, '\n'))
	return err
}
