package store

import "context"

// Inspection is what a server needs to know about its database before it runs.
type Inspection struct {
	Version       string // of PostgreSQL, such as 17.2
	VersionNumber int    // such as 170002
	Role          string
	Superuser     bool
	ReadOnly      bool // a standby, or a role or database that is read-only by default
	Encoding      string
	FoldsLetters  bool // lower() knows letters outside of ASCII; it depends on LC_CTYPE
	// MissingExtensions are those of pg_trgm and btree_gin that are not created.
	MissingExtensions []string
	// MissingRights are tables that the role may not read or change.
	MissingRights []string
}

// Inspect reads what a server needs to know about its database. The schema may be missing.
func (s *Store) Inspect(ctx context.Context) (_ Inspection, err error) {
	defer wrapInto(&err, "inspect the database")
	return single(query[Inspection](ctx, s, `
		SELECT current_setting('server_version') AS version, CAST(current_setting('server_version_num') AS integer) AS version_number,
			CAST(current_user AS text) AS role, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS superuser,
			pg_is_in_recovery() OR CAST(current_setting('transaction_read_only') AS boolean) AS read_only,
			current_setting('server_encoding') AS encoding,
			lower(chr(196)) = chr(228) AS folds_letters,
			ARRAY(SELECT name FROM unnest(ARRAY['pg_trgm', 'btree_gin']) AS name WHERE name NOT IN (SELECT extname FROM pg_extension))
				AS missing_extensions,
			ARRAY(SELECT CAST(relname AS text) FROM pg_class
				WHERE relnamespace = CAST(current_schema() AS regnamespace) AND relkind IN ('r', 'p')
					AND NOT CASE
						WHEN relname IN ('goose_db_version', 'schema_compat') THEN has_table_privilege(oid, 'SELECT')
						WHEN relname = 'audit' THEN has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
						ELSE has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
							AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')
					END
				ORDER BY relname) AS missing_rights`, none))
}
