package server

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/google/uuid"
)

func TestTypeIDs(t *testing.T) {
	t.Parallel()
	// The pairs of the TypeID specification's valid.yml.
	for text, id := range map[string]string{
		"prefix_00000000000000000000000000": "00000000-0000-0000-0000-000000000000",
		"prefix_00000000000000000000000001": "00000000-0000-0000-0000-000000000001",
		"prefix_0000000000000000000000000a": "00000000-0000-0000-0000-00000000000a",
		"prefix_0000000000000000000000000g": "00000000-0000-0000-0000-000000000010",
		"prefix_00000000000000000000000010": "00000000-0000-0000-0000-000000000020",
		"prefix_7zzzzzzzzzzzzzzzzzzzzzzzzz": "ffffffff-ffff-ffff-ffff-ffffffffffff",
		"prefix_0123456789abcdefghjkmnpqrs": "0110c853-1d09-52d8-d73e-1194e95b5f19",
		"prefix_01h455vb4pex5vsknk084sn02q": "01890a5d-ac96-774b-bcce-b302099a8057",
	} {
		if got := formatID("prefix_", uuid.MustParse(id)); got != text {
			t.Errorf("the id of %s is %s, want %s", id, got, text)
		}
		if got, err := parseID("prefix_", text); err != nil || got.String() != id {
			t.Errorf("%s names %s (%v), want %s", text, got, err, id)
		}
	}
	for _, text := range []string{"", "prefix_", "other_01h455vb4pex5vsknk084sn02q", "prefix_81h455vb4pex5vsknk084sn02q",
		"prefix_01h455vb4pex5vsknk084sn02u", "prefix_01H455VB4PEX5VSKNK084SN02Q", "prefix_01h455vb4pex5vsknk084sn02"} {
		if id, err := parseID("prefix_", text); err == nil {
			t.Errorf("%q is taken for the id %s", text, id)
		}
	}
	for range 1000 {
		id := uuid.New()
		if got, err := parseID(chatPrefix, formatID(chatPrefix, id)); err != nil || got != id {
			t.Fatalf("%s comes back as %s (%v)", id, got, err)
		}
	}
}

// TestIDsAreRandom: 62 bits of an id are random, so nobody finds one by trying.
func TestIDsAreRandom(t *testing.T) {
	t.Parallel()
	var ones, zeros uint64
	seen := map[uint64]bool{}
	for range 1000 {
		id := newID()
		random := binary.BigEndian.Uint64(id[8:]) << 2 // without the variant
		ones, zeros, seen[random] = ones|random, zeros|^random, true
	}
	const want = math.MaxUint64 &^ 3
	if ones != want || zeros&want != want || len(seen) != 1000 {
		t.Errorf("the bits that were 1 are %x, those that were 0 %x, and %d of 1000 ids differ in them", ones, zeros, len(seen))
	}
}
