// A payer withdraws from its channel without asking the server.
import { strict as assert } from "node:assert";
import { until } from "../processes.mjs";
import { newAccount, sendPath, timesSent } from "./channel-agents.mjs";
import { onChain } from "./channel-journeys.mjs";

const delay = 900;

// checkWithdrawals starts a withdrawal. It returns a check for the end of the run that finishes it and moves the chain's clock, because
// authorizations cannot be settled after that.
export async function checkWithdrawals(world) {
  const { agents, chain, check, endpoint } = world;
  const agent = await newAccount(world, "TypeScript", "withdrawing");
  const charged = () => world.books.vouchers.get(agent.wallet.address.toLowerCase());
  let channel, before;

  await check("while a withdrawal is on its way to the server, vouchers are charged", async () => {
    await agent.send(agents.Python, "before the withdrawal");
    channel = await onChain(world, agent.wallet);
    before = channel.balance;
    endpoint.hold();
    await chain.channels.send(agent.wallet.account, "initiateWithdraw", channel.config, before);
    assert.deepEqual((await agent.send(agents.Python, "during the withdrawal")).payments, ["voucher"]);
    endpoint.release();
  });

  await check("the server sees the withdrawal, claims at once and refuses vouchers; the client goes on with exact", async () => {
    await until("the channel is claimed", async () => (await onChain(world, agent.wallet)).claimed === charged(), 60_000);
    const message = { recipient_agent_id: agents.Python.id, content: "after the withdrawal" };
    const refused = await agent.attempt(sendPath, message);
    assert.deepEqual([refused.status, refused.payments, refused.reply.charged], [402, ["voucher"], false]);
    assert.deepEqual((await agent.call(sendPath, message)).payments, ["exact"]);
    assert.equal(await timesSent(world, "after the withdrawal"), 1);
  });

  return () =>
    check("the payer finishes the withdrawal after the delay and gets what is not claimed; the server lost nothing", async () => {
      const money = await chain.balance(agent.wallet.address);
      await assert.rejects(chain.channels.send(agent.wallet.account, "finalizeWithdraw", channel.config));
      await chain.later(delay);
      await chain.channels.send(agent.wallet.account, "finalizeWithdraw", channel.config);
      assert.equal(await chain.balance(agent.wallet.address), money + before - charged());
      const { balance, claimed } = await onChain(world, agent.wallet);
      assert.deepEqual([balance, claimed], [charged(), charged()]);
    });
}
