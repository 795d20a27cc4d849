// Withdrawals that a server must see and claim before their delay ends, whatever is in the way.
import { strict as assert } from "node:assert";
import { until } from "../processes.mjs";
import { newAccount } from "./channel-agents.mjs";
import { onChain } from "./channel-journeys.mjs";

const delay = 900;
const day = 86_400;

// prepareScans makes the payers, while the chain's clock is right, and returns the checks.
export async function prepareScans(world) {
  const { agents, calm, chain, check, endpoint, query, server } = world;
  const payers = {};
  const payer = async (name) => {
    payers[name] = await newAccount(world, "TypeScript", name);
    await payers[name].send(agents.Python, "before the withdrawal");
  };
  for (const name of ["killed", "moved", "refused", "away"]) await payer(name);
  await calm("--channel-withdraw-delay", "48h");
  await payer("stopped");
  await calm();

  const scan = async () => (await query("SELECT block, taken_at::text FROM payment_channel_scans"))[0];
  const readTo = async (block) => until(`block ${block} is read`, async () => BigInt((await scan()).block) >= block, 60_000);
  const mine = async (blocks, interval = 0) => {
    for (let left = blocks; left > 0; left -= 50) await chain.client.mine({ blocks: Math.min(left, 50), interval }); // it takes a while
  };
  const withdraw = async ({ wallet }) => {
    const { balance, config } = await onChain(world, wallet);
    await chain.channels.send(wallet.account, "initiateWithdraw", config, balance);
    return (await chain.client.getBlock()).timestamp;
  };
  // claimed waits for the claim, and checks that it came in time.
  const claimed = async ({ wallet }, began, within = delay) => {
    const charged = world.books.vouchers.get(wallet.address.toLowerCase());
    await until("everything is claimed", async () => (await onChain(world, wallet)).claimed === charged, 60_000);
    assert.ok((await chain.client.getBlock()).timestamp < began + BigInt(within), "the delay has ended");
  };

  return async () => {
    await check("a withdrawal is claimed although the server that reads is killed", async () => {
      const other = await world.another();
      await other.start();
      endpoint.hold();
      const began = await withdraw(payers.killed);
      const { taken_at: before } = await scan();
      await until("a server reads", async () => (await scan()).taken_at !== before);
      await server.kill();
      endpoint.release();
      await claimed(payers.killed, began);
      await world.start();
      await other.stop();
    });

    await check("a withdrawal is claimed that a reorganisation moves into blocks that were read", async () => {
      await mine(40);
      const newest = await chain.client.getBlockNumber();
      await readTo(newest);
      endpoint.hold(); // until the blocks are mined again
      await chain.client.request({ method: "anvil_rollback", params: [20] });
      const began = await withdraw(payers.moved);
      assert.ok((await chain.client.getBlockNumber()) < newest);
      await mine(40);
      endpoint.release();
      await claimed(payers.moved, began);
    });

    await check("a withdrawal is claimed through an endpoint that refuses more than 500 blocks", async () => {
      endpoint.range = 500;
      await mine(260); // and those that are read again
      const began = await withdraw(payers.refused);
      await claimed(payers.refused, began);
      endpoint.range = Infinity;
    });

    await check("a withdrawal is claimed after the endpoint was away for a third of the delay", async () => {
      endpoint.away = true;
      const began = await withdraw(payers.away);
      await chain.later(delay / 3);
      await until("a server has tried", async () => server.log().includes("read the events of payment channels"));
      endpoint.away = false;
      await claimed(payers.away, began);
    });

    await check("a withdrawal is claimed by a server that starts after a day", async () => {
      await server.stop();
      const began = await withdraw(payers.stopped);
      await mine(48, day / 48);
      await world.start();
      await claimed(payers.stopped, began, 2 * day);
    });
  };
}
