// The world of the checks: the chain, PostgreSQL, the facilitator and Parley's server in production mode, and how a check is reported.
import { strict as assert } from "node:assert";
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts";
import { newFolder } from "./clients.mjs";
import { startChain } from "./evm.mjs";
import { command, newFacilitator, newServer, startDatabase } from "./processes.mjs";

// startWorld starts everything except the facilitator and the server. After every check `audit` compares the chain with the books.
export async function startWorld({ settings = [], seconds, audit }) {
  const began = Date.now();
  const chain = await startChain();
  const database = await startDatabase();
  const facilitator = await newFacilitator(chain);
  const payee = privateKeyToAddress(generatePrivateKey());
  console.log(command("migrate", "--database-url", database.url).trim());
  const responseKey = join(newFolder(), "response-key");
  writeFileSync(responseKey, randomBytes(32).toString("hex"), { mode: 0o600 });
  const server = await newServer([
    ...["--network", "eip155:84532", "--payee", payee, "--response-key", `file:${responseKey}`],
    ...["--facilitator-url", facilitator.url, "--rpc-url", chain.url, "--database-url", database.url],
    ...settings,
  ]);
  const world = { chain, database, facilitator, payee, server };

  // check prints one line. The first failure ends the run and prints the logs.
  world.check = async (what, holds) => {
    try {
      await holds();
      await audit(world);
      console.log(`ok  ${what}`);
    } catch (error) {
      console.error(`--- the facilitator:\n${facilitator.log()}--- the server:\n${server.log()}`);
      console.error(`not ok  ${what}\n`, error);
      process.exit(1); // ends the processes too
    }
  };
  const fail = () => assert.fail("it took longer");
  const late = setTimeout(() => world.check(`the whole takes less than ${seconds} seconds`, fail), seconds * 1000);

  // readPrices reads all prices from the contract that the server publishes.
  world.readPrices = async () => {
    world.contract = await (await fetch(`${server.url}/openapi.json`)).json();
  };
  world.price = (path) => {
    const { post, get } = world.contract.paths[path];
    return BigInt((post ?? get)["x-payment-info"].protocols[0].x402.amount);
  };
  world.end = async () => {
    clearTimeout(late);
    await server.stop();
    await facilitator.kill();
    await database.stop();
    await chain.stop();
    return Math.round((Date.now() - began) / 1000);
  };
  return world;
}
