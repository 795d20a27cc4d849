// Claims of many payment channels in one transaction, and the gas that all transactions of the run used.
import { strict as assert } from "node:assert";
import { decodeFunctionData, size } from "viem";
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
    const gas = grouped(await transactions(chain));
    const needed = ["deposit", "claim 1", "claim 11", "claim 25", "settle", "refund with claim", "refund", "exact"];
    for (const kind of needed) assert.ok(gas.has(kind), kind);
    for (const [kind, all] of gas) {
      const used = all.map((each) => each.gas);
      const bytes = Math.max(...all.map((each) => each.bytes));
      console.log(`    ${kind.padEnd(18)} ${used.length} times, gas ${Math.min(...used)} to ${Math.max(...used)}, at most ${bytes} bytes of calldata`);
    }
  });
}

function grouped(all) {
  const groups = new Map();
  for (const each of all) groups.set(each.kind, [...(groups.get(each.kind) ?? []), each]);
  return groups;
}

// transactions returns kind, gas, bytes of calldata and block of all transactions that use the payment channels or pay by exact.
async function transactions(chain) {
  const found = [];
  for (let number = 1n, last = await chain.client.getBlockNumber(); number <= last; number++) {
    const block = await chain.client.getBlock({ blockNumber: number, includeTransactions: true });
    for (const { hash, to, input } of block.transactions) {
      const kind = kindOf(chain, to, input);
      if (!kind) continue;
      const receipt = await chain.client.getTransactionReceipt({ hash });
      if (receipt.status === "success") found.push({ kind, gas: Number(receipt.gasUsed), bytes: size(input), block: number });
    }
  }
  return found;
}

const kinds = {
  deposit: () => "deposit",
  claimWithSignature: ([claims]) => `claim ${claims.length}`,
  settle: () => "settle",
  refundWithSignature: () => "refund",
  multicall: () => "refund with claim",
  initiateWithdraw: () => "initiateWithdraw",
  finalizeWithdraw: () => "finalizeWithdraw",
  transferWithAuthorization: () => "exact",
};

function kindOf({ channels, token }, to, data) {
  const contract = [channels, token].find(({ address }) => address.toLowerCase() === to?.toLowerCase());
  if (!contract) return undefined;
  const { functionName, args } = decodeFunctionData({ abi: contract.abi, data });
  return kinds[functionName]?.(args);
}
