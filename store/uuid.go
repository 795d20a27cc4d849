package store

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// newID returns the id of a new record, which sorts after earlier ones.
func newID() uuid.UUID { return uuid.Must(uuid.NewV7()) } // crypto/rand does not fail

// uuidCodec reads and writes uuid.UUID as sixteen bytes. For pgx alone it is a sql.Scanner and a driver.Valuer, and goes through its text.
type uuidCodec struct{ pgtype.UUIDCodec }

// registerUUID makes a connection use uuidCodec.
func registerUUID(_ context.Context, connection *pgx.Conn) error {
	connection.TypeMap().RegisterType(&pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: uuidCodec{}})
	return nil
}

// PlanScan implements [pgtype.Codec].
func (c uuidCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if _, ok := target.(*uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanScan(m, oid, format, target)
}

// PlanEncode implements [pgtype.Codec].
func (c uuidCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.(uuid.UUID); ok && format == pgtype.BinaryFormatCode {
		return uuidPlan{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

type uuidPlan struct{}

func (uuidPlan) Scan(source []byte, target any) error {
	into := target.(*uuid.UUID) //nolint:forcetypeassert // see PlanScan
	if source == nil {          // NULL, such as the columns of an outer join
		*into = uuid.Nil
		return nil
	}
	return into.UnmarshalBinary(source)
}

func (uuidPlan) Encode(value any, buffer []byte) ([]byte, error) {
	id := value.(uuid.UUID) //nolint:forcetypeassert // see PlanEncode
	return append(buffer, id[:]...), nil
}
