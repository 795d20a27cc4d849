// Claims of many payment channels in one transaction, and the gas that all transactions of the run used.
import { strict as assert } from "node:assert";
import { decodeFunctionData } from "viem";
import { Agent } from "./channel-agents.mjs";

const payers = 36; // the server claims 25 at a time

export async function checkBatches(world) {
  const { chain, check, agents } = world;
  const { TypeScript, Python } = agents;
  const open = async (i) => {
    const agent = new Agent(world, await chain.wallet(5_000_000n), "TypeScript");
    await agent.restart();
    agent.key = TypeScript.key;
    await agent.send(Python, `from wallet ${i}`);
    return agent;
  };

  await check("everything that is charged so far is claimed and paid out", () => world.claimAll());

  await check(`the channels of ${payers} wallets are claimed in batches of 25 and 11, then a single one`, async () => {
    const from = await chain.client.getBlockNumber();
    const all = [];
    while (all.length < payers) all.push(...(await Promise.all(Array.from({ length: 6 }, (_, i) => open(all.length + i)))));
    await world.claimAll();
    await all[0].send(Python, "again from wallet 0");
    await world.claimAll();
    const claims = (await transactions(chain)).filter(({ kind, block }) => kind.startsWith("claim") && block > from);
    assert.deepEqual(claims.map(({ kind }) => kind), ["claim 25", "claim 11", "claim 1"]);
  });

  await check("the gas of each kind of transaction is measured", async () => {
    const gas = {};
    for (const { kind, used } of await transactions(chain)) (gas[kind] ??= []).push(used);
    const needed = ["deposit", "claim 1", "claim 11", "claim 25", "settle", "refundWithSignature", "multicall", "transferWithAuthorization"];
    for (const kind of needed) assert.ok(gas[kind], kind);
    for (const [kind, all] of Object.entries(gas)) {
      console.log(`    ${kind.padEnd(25)} ${all.length} times, gas ${Math.min(...all)} to ${Math.max(...all)}`);
    }
  });
}

// transactions returns kind, gas and block of all transactions that use the payment channels or the token. A claim's kind has its size.
async function transactions({ client, channels, token }) {
  const found = [];
  for (let block = 1n, last = await client.getBlockNumber(); block <= last; block++) {
    const { transactions } = await client.getBlock({ blockNumber: block, includeTransactions: true });
    for (const { hash, to, input } of transactions) {
      const contract = [channels, token].find(({ address }) => address.toLowerCase() === to?.toLowerCase());
      const { status, gasUsed } = await client.getTransactionReceipt({ hash });
      if (!contract || status !== "success") continue;
      const { functionName, args } = decodeFunctionData({ abi: contract.abi, data: input });
      const kind = functionName === "claimWithSignature" ? `claim ${args[0].length}` : functionName;
      found.push({ kind, used: Number(gasUsed), block });
    }
  }
  return found;
}
