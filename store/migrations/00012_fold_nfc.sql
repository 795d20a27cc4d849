-- Search compares text under NFC: a letter with its accent as one character equals the letter followed by the combining accent.

-- +goose Up

-- fold_nfc returns what fold (00001_initial_schema.sql) returns for the text under NFC. Most texts are ASCII or NFC already, which is
-- quicker to check than to normalize. fold does not change, because indexes and older programs use it.
-- +goose StatementBegin
CREATE FUNCTION fold_nfc(content text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE COST 500 AS $$
BEGIN
    IF octet_length(content) > char_length(content) AND content IS NOT NFC NORMALIZED THEN
        content := normalize(content, NFC);
    END IF;
    RETURN lower(upper(content));
END
$$;
-- +goose StatementEnd
