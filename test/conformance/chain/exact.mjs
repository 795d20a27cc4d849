// The scheme exact: journeys, and deaths of the facilitator.
import { strict as assert } from "node:assert";
import { until } from "../processes.mjs";
import { historyPath, newAccount, newAgent, sendPath, timesSent } from "./channel-agents.mjs";

export async function checkExact(world) {
  const { agents, chain, check, facilitator, payee, price, query } = world;
  const transfersOf = ({ wallet }) => chain.transfers(wallet.address, payee);

  for (const kind of ["TypeScript", "Python", "version 1"]) {
    await check(`${kind}, with exact only: two agents register, one writes, one reads; the receipts name the transfers`, async () => {
      const account = (role) => newAccount(world, kind, `${role}_${kind.toLowerCase().replace(" ", "_")}`, { exactOnly: true });
      const [writer, reader] = [await account("writer"), await (await account("reader")).identify()];
      const content = "Hello 👋 over a chain that is not ours.";
      const { receipt, reply } = await writer.send(reader, content);
      const { messages } = await reader.get(historyPath, { chat_id: reply.chat_id });
      assert.deepEqual(messages.map((message) => message.content), [content]);
      const transfers = await transfersOf(writer);
      assert.equal(transfers.length, 3, "two for the account, one for the message");
      assert.deepEqual([transfers[2].args.value, transfers[2].transactionHash], [price(sendPath), receipt.transaction]);
    });
  }

  // dies sends a payment again and again, and kills the facilitator when its transaction is on the way and not yet in a block.
  const dies = (what, content, meanwhile) =>
    check(`the facilitator dies after it sent the transfer, ${what}`, async () => {
      const agent = await newAgent(world, "TypeScript", { exactOnly: true, insist: true });
      agent.key = agents.TypeScript.key;
      await chain.byHand();
      const sent = agent.send(agents.Python, content);
      await until("the transfer waits for its block", async () => (await chain.waiting()) === 1);
      await facilitator.kill();
      await meanwhile();
      await sent;
      assert.equal((await transfersOf(agent)).length, 1);
      assert.equal(await timesSent(world, content), 1);
    });
  await dies("and the payment is sent again after the block", "interrupted", async () => {
    await chain.atOnce();
    await facilitator.start();
  });
  await dies("and the payment is sent again before the block: of its two transfers one fails", "impatient", async () => {
    await facilitator.start({ GAS: "200000" });
    await until("a second transfer waits too", async () => (await chain.waiting()) === 2);
    await chain.atOnce();
  });
  await facilitator.kill();
  await facilitator.start();

  await check("the ledger says what the chain says", async () => {
    const [{ sum }] = await query("SELECT sum(amount) FROM payments WHERE scheme = 'exact' AND state = 'delivered'");
    assert.equal(BigInt(sum), world.books.exact);
    assert.deepEqual(await query("SELECT id, state FROM payments WHERE state NOT IN ('delivered', 'failed')"), []);
  });
}
