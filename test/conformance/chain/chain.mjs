// Runs Parley in production mode with third-party components: the official clients of TypeScript (both protocol versions) and Python, the
// official facilitator, and a real EVM node with an EIP-3009 token and payment channels at their addresses on Base Sepolia. After every
// check the sums on the chain and in the server's database equal what the agents bought, to the unit. Prints one line per check; the first
// failure ends the run and prints the logs. Ends with the gas that the transactions used.
//
//   make chain
import { strict as assert } from "node:assert";
import { webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";
import { until } from "../processes.mjs";
import { newAgent } from "./channel-agents.mjs";
import { checkBatches } from "./channel-batches.mjs";
import { checkJourneys } from "./channel-journeys.mjs";
import { checkLosses } from "./channel-losses.mjs";
import { checkRefunds } from "./channel-refunds.mjs";
import { checkRestarts } from "./channel-restarts.mjs";
import { prepareScans } from "./channel-scans.mjs";
import { checkWithdrawals } from "./channel-withdrawals.mjs";
import { checkExact } from "./exact.mjs";
import { startWorld } from "./world.mjs";

globalThis.crypto ??= webcrypto; // Node 18 does not export it

const world = await startWorld(1200);
const { chain, check, facilitator } = world;

await check("the contract on the chain has the channel ids and digests of the official packages", async () => {
  const file = new URL("../../../x402/testdata/batch-vectors.json", import.meta.url);
  const { "eip155:84532": vectors } = JSON.parse(readFileSync(file, "utf8"));
  const { channelConfig, channelId, vouchers } = vectors;
  assert.equal(await chain.channels.read("getChannelId", channelConfig), channelId);
  for (const { maxClaimableAmount, digest } of vouchers) {
    assert.equal(await chain.channels.read("getVoucherDigest", channelId, BigInt(maxClaimableAmount)), digest);
  }
});

await check("the server starts without its facilitator; a payment takes nothing until it comes up", async () => {
  const agent = await newAgent(world, "TypeScript", { exactOnly: true });
  const request = () => agent.attempt("/register/request_account", { requested_username: "early" });
  const { status, reply } = await request();
  assert.deepEqual([status, reply.code, reply.charged], [503, "unavailable", false]);
  assert.deepEqual(await world.query("SELECT id FROM payments"), []);
  await facilitator.start();
  await until("the payment is taken", async () => (await request()).status === 200);
});

await checkJourneys(world);
await checkExact(world);
await checkLosses(world);
await checkRestarts(world);
await checkRefunds(world);
const finish = await checkWithdrawals(world);
await checkBatches(world);
const checkScans = await prepareScans(world);
await finish();
await checkScans();
const seconds = await world.end();
const { exact, charged } = world.books;
console.log(`ok  everything ended after ${seconds} s; the payee has ${exact} atomic units by single payments, ${charged} by vouchers`);
process.exit(0);
