-- The file of a wallet. Amounts are in atomic units, times in microseconds since 1970.

-- A reservation of money and what became of it. A call can have several payments, one after another.
CREATE TABLE IF NOT EXISTS payments (
	number       INTEGER PRIMARY KEY,
	at           INTEGER NOT NULL,
	call         TEXT NOT NULL,
	operation    TEXT NOT NULL,
	amount       INTEGER NOT NULL,            -- by how much it raises what the payee can take
	deposit      INTEGER NOT NULL,            -- what it locks in the payment channel
	channel      TEXT NOT NULL,               -- the id of the payment channel, or ''
	cumulative   INTEGER NOT NULL,            -- what its voucher allows since the payment channel was opened, or 0
	network      TEXT NOT NULL,
	asset        TEXT NOT NULL,
	exempt       TEXT NOT NULL,               -- why it does not count against the daily limit, or ''
	signed       INTEGER NOT NULL DEFAULT 0,  -- from here on the server may have it
	nonce        TEXT NOT NULL DEFAULT '',    -- of an exact payment
	valid_before INTEGER NOT NULL DEFAULT 0,  -- Unix seconds, of an exact payment or of the deposit
	released     INTEGER NOT NULL DEFAULT 0   -- nothing can be taken any more; not counted
);
CREATE INDEX IF NOT EXISTS payments_call ON payments (call);
CREATE INDEX IF NOT EXISTS payments_channel ON payments (channel) WHERE channel <> '';
CREATE INDEX IF NOT EXISTS payments_at ON payments (at);

-- A call, by its payment identifier.
CREATE TABLE IF NOT EXISTS calls (
	id         TEXT PRIMARY KEY,
	at         INTEGER NOT NULL,             -- of its last reservation, or of the one that was charged
	operation  TEXT NOT NULL,
	peer       TEXT NOT NULL,
	request    TEXT NOT NULL,                -- the hash of the request
	signed     TEXT,                         -- the payment (JSON), from before it is sent until the outcome is known
	credit     TEXT,                         -- the payment (JSON) of a call that was charged and rejected: it pays a corrected call
	status     INTEGER,                      -- of the last outcome; NULL until there is one
	charged    INTEGER NOT NULL DEFAULT 0,   -- at the last outcome, as the server says
	cost       INTEGER NOT NULL DEFAULT 0,   -- the most that the server ever said it charged
	again      INTEGER NOT NULL DEFAULT 0    -- it was refused: the same call made again keeps the identifier
);
CREATE INDEX IF NOT EXISTS calls_request ON calls (request);
CREATE INDEX IF NOT EXISTS calls_open ON calls (at) WHERE signed IS NOT NULL OR credit IS NOT NULL;

-- The successful responses, without API keys and TANs.
CREATE TABLE IF NOT EXISTS responses (
	number    INTEGER PRIMARY KEY,
	at        INTEGER NOT NULL,
	call      TEXT NOT NULL,
	operation TEXT NOT NULL,
	request   TEXT NOT NULL,
	charged   INTEGER NOT NULL,
	body      TEXT NOT NULL,
	seen      INTEGER NOT NULL DEFAULT 0  -- it reached the caller
);
CREATE INDEX IF NOT EXISTS responses_operation ON responses (operation);
CREATE INDEX IF NOT EXISTS responses_request ON responses (request);

-- What the wallet knows of its payment channels. A pending deposit in it can be sent by everybody who reads it.
CREATE TABLE IF NOT EXISTS channels (
	id      TEXT PRIMARY KEY,
	content TEXT NOT NULL  -- JSON
);

-- The idempotency keys that callers gave, and the hashes of the requests that they name.
CREATE TABLE IF NOT EXISTS keys (
	key     TEXT PRIMARY KEY,
	request TEXT NOT NULL
);

-- The daily limit, terms and names (JSON).
CREATE TABLE IF NOT EXISTS settings (
	name  TEXT PRIMARY KEY,
	value TEXT NOT NULL
);
