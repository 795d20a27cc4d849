// The world of the checks: the chain, PostgreSQL, the facilitator and Parley's server in production mode, and how a check is reported.
import { strict as assert } from "node:assert";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { parseEther } from "viem";
import { generatePrivateKey, privateKeyToAccount, privateKeyToAddress } from "viem/accounts";
import { command, freePort, newSecret, newServer, Program, startPostgres, until } from "../processes.mjs";
import { Books } from "./channel-agents.mjs";
import { startChain, usdc } from "./evm.mjs";

// The server claims by itself only while it runs with `claiming`.
const calm = ["--channel-claim-sum", "10.00"];
const claiming = ["--channel-claim-sum", "0.000001"];

// startWorld starts everything except the facilitator. After every check the sums on the chain and in the database must equal the books.
export async function startWorld(seconds) {
  const began = Date.now();
  const chain = await startChain();
  const postgres = await startPostgres();
  const database = new pg.Client({ connectionString: postgres.url });
  await database.connect();
  const query = async (statement) => (await database.query(statement)).rows;
  const facilitator = await newFacilitator(chain);
  const payee = privateKeyToAddress(generatePrivateKey());
  console.log(command(["migrate", "--database-url", postgres.url]).trim());
  // The deposit pays for registration and 200 messages.
  const server = await newServer([
    ...["--network", "eip155:84532", "--payee", payee, "--server-secret", newSecret(), "--authorizer-key", newSecret()],
    ...["--facilitator-url", facilitator.url, "--rpc-url", chain.url, "--database-url", postgres.url],
    ...["--channel-min-deposit", "3.00"],
  ]);
  const books = new Books();
  const sums = async () => chain.channels.read("receivers", payee, usdc);

  async function audit() {
    const [claimed, settled] = await sums();
    assert.equal(await chain.balance(payee), books.exact + settled, "the payee has the exact payments and what was paid out");
    assert.ok(claimed <= books.charged, `${claimed} is claimed of ${books.charged} that were charged`);
    const rows = await query("SELECT payer, sum(charged)::text AS charged FROM payment_channels GROUP BY payer");
    const charged = new Map(rows.map((row) => [row.payer, BigInt(row.charged)]));
    for (const [wallet, sum] of books.vouchers) assert.equal(charged.get(wallet), sum, `what the channel of ${wallet} was charged`);
    assert.equal(charged.size, books.vouchers.size, "payment channels that the books do not have");
  }

  // check prints one line. The first failure ends the run and prints the logs.
  async function check(what, holds) {
    try {
      await holds();
      await audit();
      console.log(`ok  ${what}`);
    } catch (error) {
      console.error(`--- the facilitator:\n${facilitator.log()}--- the server:\n${server.log()}`);
      console.error(`not ok  ${what}\n`, error);
      process.exit(1); // ends the processes too
    }
  }
  const fail = () => assert.fail("it took longer");
  const late = setTimeout(() => check(`the whole takes less than ${seconds} seconds`, fail), seconds * 1000);

  await server.start(...calm);
  const contract = await (await fetch(`${server.url}/openapi.json`)).json();
  const world = {
    ...{ chain, query, facilitator, payee, server, books, check },
    price: (path) => {
      const { post, get } = contract.paths[path];
      return BigInt((post ?? get)["x-payment-info"].protocols[0].x402.amount);
    },
    calm: (...more) => server.restart(...calm, ...more),
    // claimAll lets the server claim and pay out everything that is charged, and checks the sums.
    claimAll: async () => {
      await new Promise((resolve) => setTimeout(resolve, 1100)); // the newest voucher has the age
      await server.restart(...claiming);
      const paidOut = async () => (await sums()).every((sum) => sum === books.charged);
      await until("everything is claimed and paid out", paidOut, 40_000).catch(() => {});
      assert.deepEqual(await sums(), [books.charged, books.charged], "claimed and paid out");
      await world.calm();
    },
    end: async () => {
      clearTimeout(late);
      await server.stop();
      await facilitator.kill();
      await database.end();
      await postgres.stop();
      await chain.stop();
      return Math.round((Date.now() - began) / 1000);
    },
  };
  return world;
}

// newFacilitator returns a facilitator that is not started. A restarted one keeps its address and wallet.
async function newFacilitator(chain) {
  const port = await freePort();
  const key = generatePrivateKey();
  await chain.client.setBalance({ address: privateKeyToAccount(key).address, value: parseEther("100") });
  let program;
  let log = "";
  return {
    url: `http://127.0.0.1:${port}`,
    log: () => log + (program?.log ?? ""),
    start: async (environment) => {
      log += program?.log ?? "";
      program = new Program(process.execPath, [fileURLToPath(new URL("facilitator.mjs", import.meta.url))], {
        ...{ RPC_URL: chain.url, PRIVATE_KEY: key, PORT: String(port) },
        ...environment,
      });
      await program.said();
    },
    kill: () => program.stop("SIGKILL"),
  };
}
