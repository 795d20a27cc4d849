// The server of the check as an operator starts it, with PostgreSQL and the play-money network, and what happens on it.
import { strict as assert } from "node:assert";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { command, freePort, newFolder, newSecret, newServer, Program, startPostgres } from "../processes.mjs";

const payee = "0xBcd4042DE499D14e55001CcbB24a551F3b954096"; // of the play-money network

export async function startWorld() {
  const folder = newFolder();
  const database = await startPostgres();
  const network = new Program(process.env.PARLEY, ["devnet", "--listen", "127.0.0.1:0", "--data", join(folder, "devnet")]);
  const facilitator = await network.said();
  command(["migrate", "--database-url", database.url]);
  const admin = `127.0.0.1:${await freePort()}`;
  const server = await newServer([
    ...["--database-url", database.url, "--admin-listen", admin, "--drain-time", "0s"],
    ...["--network", "eip155:84532", "--payee", payee, "--facilitator-url", facilitator, "--rpc-url", `${facilitator}/rpc`],
    ...["--authorizer-key", newSecret(), "--server-secret", newSecret()],
  ]);
  await server.start();

  // agent runs a command of an agent, whose files are in a folder of its own.
  const agent = (name, ...args) => {
    const home = join(folder, name);
    mkdirSync(home, { recursive: true });
    return command(args, { PARLEY_HOME: home, PARLEY_SECRETS: "file", PARLEY_SERVER: server.url });
  };
  const sql = async (...statements) => {
    const client = new pg.Client({ connectionString: database.url });
    await client.connect();
    for (const statement of statements) await client.query(statement);
    await client.end();
  };
  return {
    url: server.url,
    page: `http://${admin}/`,
    log: server.log,
    use: async () => {
      await server.stop();
      await writeHistory(sql);
      await server.start(); // the page keeps its figures for a while
      await makeCalls(server.url, agent);
    },
    loseDatabase: database.stop,
  };
}

// makeCalls makes real calls of agents, with good and bad ends.
async function makeCalls(url, agent) {
  const names = ["weather_oracle", "the_longest_name_that_there_is_1", "museum_guide", "x"];
  for (const name of names) agent(name, "init", "--username", name, "--yes");
  agent("x", "send", "weather_oracle", "What is the weather in Lisbon?");
  for (const name of names.slice(0, 3)) agent(name, "send", "x", "<script>alert(1)</script>");
  assert.throws(() => agent("museum_guide", "send", "nobody_has_this_name", "hello"));
  await fetch(`${url}/nothing`);
  await fetch(`${url}/agent/profile`, { method: "POST", body: "{" });
}

// writeHistory writes two weeks of payments and some open ones, with hostile text where others write text.
async function writeHistory(sql) {
  const hostile = String.raw`E'<script>alert(1)</script>\u202e gnp.exe \u200b${"W".repeat(300)}'`;
  await sql(
    paymentsOf("delivered", "operation, 'x', '', day, day", `
      FROM generate_series(1, 13) AS ago, LATERAL (SELECT now() - ago * interval '1 day' AS day) AS days,
        LATERAL (VALUES ('sendPrivateMessage', 5000, 400), ('getUnread', 1000, 900), ('searchAgents', 2000, 120), ('createAccount', 990000, 3)) AS o (operation, amount, most),
        LATERAL generate_series(1, most * (20 - ago + (ago * 7) % 5) / 20) AS n`),
    paymentsOf("settling", "'sendGroupMessage', '', '', now() - interval '4 seconds', now() + interval '1 day'", "FROM (VALUES (5000)) AS o (amount)"),
    paymentsOf("unknown", "'sendPrivateMessage', '', hostile, now() - n * interval '7 minutes', now() + interval '1 day'",
      `FROM (VALUES (5000, 1, 'the facilitator did not respond'), (150000, 3, ${hostile})) AS o (amount, n, hostile)`),
    paymentsOf("undeliverable", "'createAccount', '0xf', 'username_taken', now() - interval '26 hours', now()", "FROM (VALUES (990000)) AS o (amount)"),
    "ANALYZE",
  );
}

// paymentsOf returns a statement that inserts payments. columns are operation, transaction, reason, time of creation, and end of the lease.
function paymentsOf(state, columns, from) {
  const open = state === "settling" || state === "unknown" ? "'x'::bytea" : "NULL";
  return `INSERT INTO payments (id, x402_version, scheme, network, asset, payer, nonce, pay_to, amount, valid_before, fingerprint, signature_hash,
      request, payload, state, attempts, updated_at, operation, transaction, failure_reason, created_at, lease_until)
    SELECT gen_random_uuid(), 2, 'exact', 'eip155:84532', '0xa', '0x71c7656ec7ab88b098defb751b7401b5f6d8976f', gen_random_uuid()::text, '0xd', amount, now(),
      sha256('x'), sha256('x'), ${open}, ${open}, '${state}', 1, now(), ${columns} ${from}`;
}
