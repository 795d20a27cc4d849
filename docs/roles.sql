-- Two database roles. parley_migrate owns the schema and runs `parley migrate`. parley_serve runs `parley serve` and `parley payments`;
-- it reads and writes rows and cannot change the schema or what is in the audit. Run this once as a superuser, connected to Parley's database (here named
-- parley), before the first `parley migrate` or after it.

CREATE ROLE parley_migrate LOGIN PASSWORD 'choose-a-password';
CREATE ROLE parley_serve LOGIN PASSWORD 'choose-another-password';

-- The owner of the database may create tables in the schema public, and the extensions that Parley needs.
ALTER DATABASE parley OWNER TO parley_migrate;

-- Tables and functions that another role has created. Those of extensions stay as they are.
DO $$
DECLARE
    existing text;
BEGIN
    FOR existing IN
        SELECT 'TABLE ' || CAST(oid AS regclass) FROM pg_class WHERE relnamespace = CAST('public' AS regnamespace) AND relkind = 'r'
        UNION ALL
        SELECT 'FUNCTION ' || CAST(oid AS regprocedure) FROM pg_proc p WHERE pronamespace = CAST('public' AS regnamespace)
            AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = CAST('pg_proc' AS regclass) AND d.objid = p.oid AND d.deptype = 'e')
    LOOP
        EXECUTE 'ALTER ' || existing || ' OWNER TO parley_migrate';
    END LOOP;
END $$;

-- Tables that exist, and those of later migrations.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO parley_serve;
ALTER DEFAULT PRIVILEGES FOR ROLE parley_migrate IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO parley_serve;

-- The audit is only added to. A migration that creates it later revokes these rights itself.
DO $$
BEGIN
    IF to_regclass('public.audit') IS NOT NULL THEN
        REVOKE UPDATE, DELETE ON public.audit FROM parley_serve;
    END IF;
END $$;
