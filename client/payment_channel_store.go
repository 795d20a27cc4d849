package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/parley-chat/parley/internal/lockfile"
	"github.com/parley-chat/parley/x402"
)

// PaymentChannel is what a payer knows of its payment channel. Amounts are in atomic units. The zero value is a channel
// that was never used.
type PaymentChannel struct {
	// Network and Config are the channel, so that its payer can withdraw the balance without the server.
	Network string             `json:"network"`
	Config  x402.ChannelConfig `json:"config"`
	// Charged is what the server charged since the channel exists.
	Charged uint64 `json:"charged,string"`
	// Signed is the largest amount that a voucher allows the server to claim. It is Charged, plus the price of calls
	// that were refused or whose outcome is not known.
	Signed uint64 `json:"signed,string"`
	// Balance is what was deposited and not refunded, including what is charged.
	Balance uint64 `json:"balance,string"`
	// Pending is a deposit that was sent and whose outcome is not known. It counts as neither.
	Pending *PendingDeposit `json:"pending,omitempty"`
	// LostDeposits counts deposits in a row that the server claims not to have received.
	LostDeposits int `json:"lost_deposits,omitempty"`
}

// unspent is what the channel has that is not charged.
func (c PaymentChannel) unspent() uint64 { return c.Balance - min(c.Charged, c.Balance) }

// PendingDeposit is a signed deposit. It is sent again, unchanged, until it is known to have arrived or can no longer
// arrive, so that at most one deposit is under way.
type PendingDeposit struct {
	Amount      uint64              `json:"amount,string"`
	ValidBefore int64               `json:"valid_before"` // Unix seconds
	Signed      x402.ChannelDeposit `json:"signed"`
	// Lost is true if no response to it arrived. It is false if the server refused it.
	Lost bool `json:"lost,omitempty"`
}

// PaymentChannelStore keeps the channels of a payer. If a store loses a channel, its payer continues with the voucher
// that the server proves, or with what [PaymentChannels.Chain] reports.
type PaymentChannelStore interface {
	// Lock gives the channel to the caller until it calls unlock. It waits while somebody else has it: vouchers of one
	// channel must be signed one after another. It returns an error if ctx ends first.
	Lock(ctx context.Context, id string) (unlock func(), err error)
	// Load returns the channel, or the zero value if it is not in the store. The caller holds the lock.
	Load(id string) (PaymentChannel, error)
	// Save replaces the channel. When it returns, the channel survives a crash. The caller holds the lock.
	Save(id string, channel PaymentChannel) error
	// All returns the channels as they were stored last.
	All() ([]PaymentChannel, error)
}

// locks is a set of locks by name that give up when a context ends. The zero value is ready for use.
type locks struct{ slots sync.Map }

func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	found, _ := l.slots.LoadOrStore(name, make(chan struct{}, 1))
	slot, _ := found.(chan struct{})
	select {
	case slot <- struct{}{}:
		return func() { <-slot }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// MemoryChannels is a store that ends with the process. The zero value is ready for use.
type MemoryChannels struct {
	locks    locks
	channels sync.Map // PaymentChannel by id
}

// Lock implements [PaymentChannelStore].
func (m *MemoryChannels) Lock(ctx context.Context, id string) (func(), error) {
	return m.locks.lock(ctx, id)
}

// Load implements [PaymentChannelStore].
func (m *MemoryChannels) Load(id string) (PaymentChannel, error) {
	found, _ := m.channels.Load(id)
	channel, _ := found.(PaymentChannel)
	return channel, nil
}

// Save implements [PaymentChannelStore].
func (m *MemoryChannels) Save(id string, channel PaymentChannel) error {
	m.channels.Store(id, channel)
	return nil
}

// All implements [PaymentChannelStore].
func (m *MemoryChannels) All() (all []PaymentChannel, err error) {
	m.channels.Range(func(_, found any) bool {
		channel, _ := found.(PaymentChannel)
		all = append(all, channel)
		return true
	})
	return all, nil
}

// FileChannels is a store in a folder: one JSON file per channel, named by its id. Several processes may share the
// folder; a file lock gives a channel to one of them at a time. Files are readable for their owner only, because a
// pending deposit can be spent.
type FileChannels struct {
	folder string
	locks  locks
	held   sync.Map // *lockfile.Lock by channel
}

// channelFile matches ids of channels, which are names of files.
var channelFile = regexp.MustCompile(`^0x[0-9a-f]{64}$`)

// NewFileChannels returns a store in a folder. It creates the folder if it does not exist.
func NewFileChannels(folder string) (*FileChannels, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("open payment channels: %w", err)
	}
	return &FileChannels{folder: folder}, nil
}

// path returns the name of a channel's file.
func (f *FileChannels) path(id, suffix string) (string, error) {
	if !channelFile.MatchString(id) {
		return "", errors.New("the id of a payment channel is not 0x and 64 hex digits")
	}
	return filepath.Join(f.folder, id+suffix), nil
}

// Lock implements [PaymentChannelStore].
func (f *FileChannels) Lock(ctx context.Context, id string) (func(), error) {
	path, err := f.path(id, ".lock")
	if err != nil {
		return nil, err
	}
	// Calls of this process queue without polling the file.
	unlock, err := f.locks.lock(ctx, id)
	if err != nil {
		return nil, err
	}
	lock, err := lockfile.Wait(ctx, path)
	if err != nil {
		unlock()
		return nil, fmt.Errorf("lock payment channel: %w", err)
	}
	f.held.Store(id, lock)
	return func() {
		f.held.Delete(id)
		lock.Release()
		unlock()
	}, nil
}

// Load implements [PaymentChannelStore].
func (f *FileChannels) Load(id string) (channel PaymentChannel, err error) {
	path, err := f.path(id, ".json")
	if err != nil {
		return channel, err
	}
	content, err := os.ReadFile(path) //nolint:gosec // the name is hex digits
	if errors.Is(err, fs.ErrNotExist) {
		return channel, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &channel)
	}
	if err != nil {
		return PaymentChannel{}, fmt.Errorf("load payment channel %s: %w", path, err)
	}
	return channel, nil
}

// All implements [PaymentChannelStore].
func (f *FileChannels) All() (all []PaymentChannel, err error) {
	files, err := filepath.Glob(filepath.Join(f.folder, "0x*.json"))
	for _, file := range files {
		channel, err := f.Load(strings.TrimSuffix(filepath.Base(file), ".json"))
		if err != nil {
			return nil, err
		}
		all = append(all, channel)
	}
	return all, err
}

// Save implements [PaymentChannelStore]. A crash leaves the old or the new content, never a part.
func (f *FileChannels) Save(id string, channel PaymentChannel) error {
	path, err := f.path(id, ".json")
	if err != nil {
		return err
	}
	held, _ := f.held.Load(id)
	if lock, ok := held.(*lockfile.Lock); ok && !lock.Held() { // so another process can have one too
		return errors.New("save payment channel: somebody removed its lock while it was in use; nothing was saved. Make the call again")
	}
	content, err := json.MarshalIndent(channel, "", "  ")
	if err == nil {
		err = lockfile.Replace(path, append(content, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save payment channel: %w", err)
	}
	return nil
}
