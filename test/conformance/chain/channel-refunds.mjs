// Top-ups and refunds.
import { strict as assert } from "node:assert";
import { friendOf, newAccount, sendPath, timesSent } from "./channel-agents.mjs";
import { onChain } from "./channel-journeys.mjs";
import { kinds } from "./clients.mjs";

export async function checkRefunds(world) {
  const { chain, check, query, price, server } = world;
  const friend = (kind) => friendOf(world, kind);
  await world.calm("--channel-min-deposit", "0.02");

  for (const kind of Object.keys(kinds)) {
    const name = kind.toLowerCase();
    const registration = price("/register/request_account") + price("/register/create_account");

    await check(`${kind}: the client tops its channel up when it is empty`, async () => {
      const agent = await newAccount(world, kind, `topping_${name}`);
      const payments = [];
      for (let i = 0; i < 10; i++) payments.push(...(await agent.send(friend(kind), `${name} tops up ${i}`)).payments);
      // Four messages per deposit of 0.02 USD; the first one was 1.00 USD more, for the registration.
      assert.deepEqual(payments, [..."vvvvdvvvdv"].map((letter) => (letter === "d" ? "deposit" : "voucher")));
      const { balance, deposits, transfers } = await onChain(world, agent.wallet);
      assert.deepEqual([deposits.length, transfers.length, balance], [3, 3, registration + 60_000n]);
    });

    await check(`${kind}: scheme.refund pays back a part, then everything that is not charged; the channel goes on`, async () => {
      await world.calm("--channel-min-deposit", "0.05");
      const agent = await newAccount(world, kind, `refunded_${name}`, { rpc: chain.url });
      await agent.send(friend(kind), `${name} pays`);
      const charged = registration + price(sendPath);
      const before = await onChain(world, agent.wallet);
      const part = await agent.client.refund(`${server.url}/agent/me`, "10000");
      assert.deepEqual([part.success, part.amount], [true, "10000"]);
      let after = await onChain(world, agent.wallet);
      assert.deepEqual([after.balance, after.claimed], [before.balance - 10_000n, charged], "the refund claims what is charged");

      await world.calm("--channel-min-deposit", "0.02");
      await query("UPDATE payment_channels SET refunded_at = refunded_at - interval '1 minute'"); // one refund per channel and minute
      const money = await chain.balance(agent.wallet.address);
      const left = before.balance - 10_000n - charged;
      const all = await agent.client.refund(`${server.url}/agent/unread`);
      assert.deepEqual([all.success, all.amount], [true, String(left)]);
      assert.equal(await chain.balance(agent.wallet.address), money + left);
      after = await onChain(world, agent.wallet);
      assert.deepEqual([after.balance, after.claimed], [charged, charged], "nothing is left in the channel");

      assert.deepEqual((await agent.send(friend(kind), `${name} goes on after a refund`)).payments, ["deposit"]);
      assert.deepEqual((await agent.send(friend(kind), `${name} goes on with the new deposit`)).payments, ["voucher"]);
    });

    await check(`${kind}, memory and no RPC, batch-settlement only: after a refund, a lost state and both, ten times, no call fails twice`, async () => {
      await world.calm("--channel-min-deposit", "0.02");
      const agent = await newAccount(world, kind, `only_${name}`, { channelsOnly: true });
      const send = async (content, tries) => {
        assert.equal(await agent.persist(sendPath, { recipient_agent_id: friend(kind).id, content }), tries, content);
        assert.deepEqual((await agent.send(friend(kind), `${content}, in step`)).payments, ["voucher"]);
        assert.equal(await timesSent(world, content), 1);
      };
      await send(`${name} pays from channels alone`, 1);
      for (let i = 0; i < 10; i++) {
        await agent.client.refund(`${server.url}/agent/me`);
        await send(`${name}, refund ${i}`, 1);
        await agent.restart();
        await send(`${name}, lost ${i}`, 2);
        await agent.client.refund(`${server.url}/agent/me`);
        await agent.restart();
        await send(`${name}, both ${i}`, 1);
      }
    });
  }
  await world.calm();
}
