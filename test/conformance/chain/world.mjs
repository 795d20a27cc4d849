// The world of the checks: the chain, PostgreSQL, the facilitator and Parley's server in production mode, and how a check is reported.
import { strict as assert } from "node:assert";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { parseEther } from "viem";
import { generatePrivateKey, privateKeyToAccount, privateKeyToAddress } from "viem/accounts";
import { command, freePort, newSecret, newServer, Program, startPostgres } from "../processes.mjs";
import { Books } from "./channel-agents.mjs";
import { startChain, usdc } from "./evm.mjs";

// The server claims by itself only when a payer withdraws.
const calm = ["--channel-claim-sum", "10.00"];

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
  const endpoint = await newEndpoint(chain.url);
  const authorizer = newSecret();
  // The deposit pays for registration and 200 messages.
  const settings = [
    ...["--network", "eip155:84532", "--payee", payee, "--server-secret", newSecret(), "--authorizer-key", authorizer],
    ...["--facilitator-url", facilitator.url, "--rpc-url", endpoint.url, "--database-url", postgres.url],
    ...["--channel-withdraw-delay", "15m", "--channel-min-deposit", "3.00"],
  ];
  const server = await newServer(settings);
  const books = new Books();
  const sums = async () => chain.channels.read("receivers", payee, usdc);

  async function audit() {
    let claimed, settled, balance;
    do {
      [claimed, settled] = await sums();
      balance = await chain.balance(payee);
    } while ((await sums())[1] !== settled); // a payout came in between
    assert.equal(balance, books.exact + settled, "the payee has the exact payments and what was paid out");
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

  const start = () => server.start(...calm);
  await start();
  const contract = await (await fetch(`${server.url}/openapi.json`)).json();
  const world = {
    ...{ chain, query, endpoint, facilitator, payee, server, books, check },
    start,
    another: () => newServer([...settings, ...calm]),
    price: (path) => {
      const { post, get } = contract.paths[path];
      return BigInt((post ?? get)["x-payment-info"].protocols[0].x402.amount);
    },
    calm: (...more) => server.restart(...calm, ...more),
    // claimAll claims and pays out everything that is charged, as an operator does, and checks the sums.
    claimAll: async () => {
      console.log(
        command([
          ...["payments", "claim", "--all", "--database-url", postgres.url, "--facilitator-url", facilitator.url],
          ...["--rpc-url", chain.url, "--authorizer-key", authorizer],
        ]).trim(),
      );
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

// newEndpoint returns the blockchain endpoint of the servers, in front of the node. It can be away, hold its responses, and refuse to look
// for events in more than a range of blocks.
async function newEndpoint(url) {
  let held = Promise.resolve();
  const endpoint = { away: false, range: Infinity, hold: () => (held = new Promise((resolve) => (endpoint.release = resolve))) };
  const front = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    await held;
    if (endpoint.away) return request.socket.destroy();
    const { id, method, params } = JSON.parse(body);
    const blocks = method === "eth_getLogs" ? params[0].toBlock - params[0].fromBlock + 1 : 0;
    const refused = { jsonrpc: "2.0", id, error: { code: -32602, message: `at most ${endpoint.range} blocks` } };
    const headers = { "Content-Type": "application/json" };
    const node = async () => (await fetch(url, { method: "POST", headers, body })).text();
    response.writeHead(200, headers).end(blocks > endpoint.range ? JSON.stringify(refused) : await node());
  });
  await new Promise((resolve) => front.listen(0, "127.0.0.1", resolve));
  return Object.assign(endpoint, { url: `http://127.0.0.1:${front.address().port}` });
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
