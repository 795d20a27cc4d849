-- Two database roles. parley_migrate owns the schema and runs `parley migrate`. parley_serve runs `parley serve` and `parley payments`;
-- it reads and writes rows and cannot change the schema. Run this once as a superuser, connected to Parley's database (here named
-- parley), before the first `parley migrate`. If another role has created the tables, first run
-- REASSIGN OWNED BY that_role TO parley_migrate.

CREATE ROLE parley_migrate LOGIN PASSWORD 'choose-a-password';
CREATE ROLE parley_serve LOGIN PASSWORD 'choose-another-password';

-- The owner of the database may create tables in the schema public, and the extensions that Parley needs.
ALTER DATABASE parley OWNER TO parley_migrate;

-- Tables that exist, and those of later migrations.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO parley_serve;
ALTER DEFAULT PRIVILEGES FOR ROLE parley_migrate IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO parley_serve;
