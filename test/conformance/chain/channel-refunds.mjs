// Top-ups and refunds.
import { strict as assert } from "node:assert";
import { friendOf, newAccount, sendPath } from "./channel-agents.mjs";
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
      // Four messages per deposit of 0.02 USD; 0.01 USD was left after the registration.
      assert.deepEqual(payments, [..."vvdvvvdvvv"].map((letter) => (letter === "d" ? "deposit" : "voucher")));
      const { balance, deposits, transfers } = await onChain(world, agent.wallet);
      assert.deepEqual([deposits.length, transfers.length, balance], [4, 4, registration + 50_000n]);
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

    await check(`${kind}, without RPC: after a refund of everything the next call succeeds within two tries`, async () => {
      const agent = await newAccount(world, kind, `closed_${name}`);
      await agent.send(friend(kind), `${name} pays without RPC`);
      await agent.client.refund(`${server.url}/agent/me`);
      await agent.persist(sendPath, { recipient_agent_id: friend(kind).id, content: `${name} goes on without RPC` });
      assert.equal((await onChain(world, agent.wallet)).balance, registration + price(sendPath));
    });
  }
  await world.calm();
}
