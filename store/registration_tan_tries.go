package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"
)

// TANTries counts the tries of TANs by a wallet or a client address, on all servers of the database.
type TANTries struct {
	KeyHash         []byte `gorm:"primaryKey"`
	Wrong, Checking int
	ExpiresAt       time.Time
}

func (TANTries) TableName() string { return "tan_tries" }

// TooManyTANs means that a key has used its tries up, until the time After. Others are only being checked if After is 0.
type TooManyTANs struct{ After time.Duration }

func (e *TooManyTANs) Error() string { return "too many wrong TANs" }

// tanHashes returns the hashes of keys.
func tanHashes(keys []string) [][]byte {
	hashes := make([][]byte, len(keys))
	for i, key := range keys {
		hash := sha256.Sum256([]byte(key))
		hashes[i] = hash[:]
	}
	return hashes
}

// TryTAN takes a try for each key before a TAN is checked. Call EndTANTry after it. The window begins with the first try. If a key has
// no try left, it takes none and returns a *TooManyTANs.
func (s *Store) TryTAN(ctx context.Context, keys []string, most int, window time.Duration) error {
	return s.Transaction(ctx, func(tx *Tx) error {
		// The rows are locked in one order.
		taken, err := query[struct {
			Wrong, Checking int
			Left            time.Duration
		}](ctx, tx, `
			INSERT INTO tan_tries AS t (key_hash, wrong, checking, expires_at)
			SELECT k, 0, 1, now() + CAST(@window AS interval) FROM (SELECT k FROM unnest(CAST(@keys AS bytea[])) AS k ORDER BY 1) o
			ON CONFLICT (key_hash) DO UPDATE SET
				wrong = CASE WHEN t.expires_at > now() THEN t.wrong ELSE 0 END,
				checking = CASE WHEN t.expires_at > now() THEN t.checking + 1 ELSE 1 END,
				expires_at = CASE WHEN t.expires_at > now() AND t.wrong + t.checking > 0 THEN t.expires_at ELSE excluded.expires_at END
			RETURNING wrong, checking, expires_at - now() AS left`,
			named{"keys": tanHashes(keys), "window": window})
		if err != nil {
			return fmt.Errorf("try a TAN: %w", err)
		}
		for _, key := range taken {
			switch {
			case key.Wrong >= most:
				return &TooManyTANs{key.Left}
			case key.Wrong+key.Checking > most:
				err = &TooManyTANs{}
			}
		}
		return err
	})
}

// EndTANTry records the outcome of a try that TryTAN has taken. A right TAN gives it back.
func (s *Store) EndTANTry(ctx context.Context, keys []string, wrong bool) error {
	_, err := exec(ctx, s, `
		WITH locked AS MATERIALIZED (SELECT key_hash FROM tan_tries WHERE key_hash = ANY (CAST(@keys AS bytea[]))
			ORDER BY key_hash FOR NO KEY UPDATE)
		UPDATE tan_tries t SET checking = greatest(t.checking - 1, 0), wrong = t.wrong + CAST(CAST(@wrong AS boolean) AS integer)
		FROM locked l WHERE t.key_hash = l.key_hash`,
		named{"keys": tanHashes(keys), "wrong": wrong})
	return wrap("end the try of a TAN", err)
}
