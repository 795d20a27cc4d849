// Runs Parley in production mode with payment channels (scheme batch-settlement) and third-party components: the official TypeScript
// and Python clients, the official facilitator, and a real EVM node with payment channels at their canonical address. After every check
// the sums on the chain and in the server's database equal what the agents bought, to the unit. Prints one line per check; the first
// failure ends the run and prints the logs. Ends with the gas that the transactions used.
//
//   make chain
import { strict as assert } from "node:assert";
import { webcrypto } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { generatePrivateKey } from "viem/accounts";
import { Books } from "./channel-agents.mjs";
import { checkBatches } from "./channel-batches.mjs";
import { checkJourneys } from "./channel-journeys.mjs";
import { checkLosses } from "./channel-losses.mjs";
import { checkRefunds } from "./channel-refunds.mjs";
import { checkRestarts } from "./channel-restarts.mjs";
import { checkWithdrawals } from "./channel-withdrawals.mjs";
import { newFolder } from "./clients.mjs";
import { usdc } from "./evm.mjs";
import { here, until } from "./processes.mjs";
import { startWorld } from "./world.mjs";

globalThis.crypto ??= webcrypto; // Node 18 does not export it

const keyFile = join(newFolder(), "authorizer-key");
writeFileSync(keyFile, generatePrivateKey(), { mode: 0o600 });

const world = await startWorld({
  seconds: 280,
  // The shortest withdraw delay: the server then looks for withdrawals every 38 seconds. The deposit pays for registration and 200
  // messages.
  settings: ["--authorizer-key", `file:${keyFile}`, "--channel-withdraw-delay", "15m", "--channel-min-deposit", "3.00"],
  audit: async ({ chain, database, payee, books }) => {
    const [claimed, settled] = await chain.channels.read("receivers", payee, usdc);
    assert.equal(await chain.balance(payee), books.exact + settled, "the payee has the exact payments and what was paid out");
    assert.ok(claimed <= books.charged, `${claimed} is claimed of ${books.charged} that were charged`);
    const rows = await database.query("SELECT payer, sum(charged)::text AS charged FROM payment_channels GROUP BY payer");
    const charged = new Map(rows.map((row) => [row.payer, BigInt(row.charged)]));
    for (const [wallet, sum] of books.vouchers) assert.equal(charged.get(wallet), sum, `what the channel of ${wallet} was charged`);
    assert.equal(charged.size, books.vouchers.size, "payment channels that the books do not have");
  },
});
const { chain, check, facilitator, payee, server } = world;
world.books = new Books();

// The server claims by itself only while it runs with `claiming`.
const calm = ["--channel-claim-age", "225s", "--channel-claim-sum", "10.00"];
const claiming = ["--channel-claim-age", "1s"];
world.calm = (...more) => server.restart(...calm, ...more);

// claimAll lets the server claim and pay out everything that is charged, and checks the sums.
world.claimAll = async () => {
  const { books } = world;
  await new Promise((resolve) => setTimeout(resolve, 1100)); // the newest voucher has the age
  await server.restart(...claiming);
  const sums = async () => chain.channels.read("receivers", payee, usdc);
  await until("everything is claimed and paid out", async () => (await sums()).every((sum) => sum === books.charged), 40_000).catch(() => {});
  assert.deepEqual(await sums(), [books.charged, books.charged], "claimed and paid out");
  await world.calm();
};

await check("the contract on the chain has the channel ids and digests of the official packages", async () => {
  const { "eip155:84532": vectors } = JSON.parse(readFileSync(here("../../../x402/testdata/batch-vectors.json"), "utf8"));
  const { channelConfig, channelId, vouchers } = vectors;
  assert.equal(await chain.channels.read("getChannelId", channelConfig), channelId);
  for (const { maxClaimableAmount, digest } of vouchers) {
    assert.equal(await chain.channels.read("getVoucherDigest", channelId, BigInt(maxClaimableAmount)), digest);
  }
});

await facilitator.start();
await server.start(...calm);
await world.readPrices();
await checkJourneys(world);
const withdrawals = await checkWithdrawals(world);
await checkLosses(world);
await checkRestarts(world);
await checkRefunds(world);
const finish = await withdrawals();
await checkBatches(world);
await finish();
const seconds = await world.end();
const { exact, charged } = world.books;
console.log(`ok  everything ended after ${seconds} s; the payee has ${exact} atomic units by single payments, ${charged} by vouchers`);
process.exit(0);
