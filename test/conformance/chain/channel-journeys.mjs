// Agents with each official client register, send 200 messages and read them.
import { strict as assert } from "node:assert";
import { historyPath, newAccount, sendPath } from "./channel-agents.mjs";
import { kinds } from "./clients.mjs";

// onChain returns the events of a wallet's payment channel, which it must have exactly one of, and its transfers.
export async function onChain({ chain, query }, wallet) {
  const [{ id, ...more }, ...others] = await query(
    `SELECT id, payer, payer_authorizer, pay_to, receiver_authorizer, asset, withdraw_delay, salt FROM payment_channels
      WHERE payer = '${wallet.address.toLowerCase()}'`,
  );
  assert.equal(others.length, 0, "one payment channel");
  const config = {
    ...{ payer: more.payer, payerAuthorizer: more.payer_authorizer, receiver: more.pay_to, receiverAuthorizer: more.receiver_authorizer },
    ...{ token: more.asset, withdrawDelay: Number(more.withdraw_delay), salt: more.salt },
  };
  assert.equal(await chain.channels.read("getChannelId", config), id);
  const [balance, claimed] = await chain.channels.read("channels", id);
  const deposits = await chain.channels.events("Deposited", { channelId: id });
  return { id, balance, claimed, deposits: deposits.map(({ args }) => args.amount), transfers: await chain.transfers(wallet.address) };
}

export async function checkJourneys(world) {
  const { chain, check, payee, price } = world;
  const messages = Array.from({ length: 200 }, (_, i) => `message ${i} of 200 👋`);
  const agents = (world.agents = {});

  await check("the official TypeScript and Python clients register and pay with one deposit and vouchers", async () => {
    const register = async (kind) => (agents[kind] = await (await newAccount(world, kind, `sender_${kind.toLowerCase()}`)).identify());
    await Promise.all(Object.keys(kinds).map(register));
    for (const agent of Object.values(agents)) {
      const { balance, deposits } = await onChain(world, agent.wallet);
      assert.deepEqual([balance, deposits], [4_000_000n, [4_000_000n]], agent.kind);
    }
  });

  await check("each sends 200 messages to the other and reads them; no call is a transaction", async () => {
    const before = await chain.client.getBlockNumber();
    const { TypeScript, Python } = agents;
    await Promise.all(
      [[TypeScript, Python], [Python, TypeScript]].map(async ([from, to]) => {
        for (const message of messages) {
          const { payments, reply } = await from.send(to, message);
          assert.deepEqual(payments, ["voucher"]);
          world.chat = reply.chat_id;
        }
      }),
    );
    for (const agent of Object.values(agents)) {
      const read = [];
      for (let page = 1; page <= 4; page++) {
        read.push(...(await agent.get(historyPath, { chat_id: world.chat, n: 100, page })).messages);
      }
      for (const sender of Object.values(agents)) {
        const from = read.filter(({ sender_id }) => sender_id === sender.id).map(({ content }) => content);
        assert.deepEqual(from.sort(), messages.slice().sort(), `${sender.kind}'s messages, read by ${agent.kind}`);
      }
    }
    assert.equal(await chain.client.getBlockNumber(), before, "the node has no new block");
  });

  await check("after claim and payout the chain has one deposit each, and the payee the delivered prices to the unit", async () => {
    const registration = price("/register/request_account") + price("/register/create_account") + price("/agent/me");
    const each = registration + 200n * price(sendPath) + 4n * price(historyPath);
    await world.claimAll();
    assert.equal(await chain.balance(payee), world.books.exact + 2n * each);
    for (const agent of Object.values(agents)) {
      const { balance, claimed, deposits, transfers } = await onChain(world, agent.wallet);
      assert.deepEqual([balance, claimed, deposits], [4_000_000n, each, [4_000_000n]], agent.kind);
      assert.equal(transfers.length, 1, `${agent.kind}: transfers from its wallet`);
    }
  });
}
