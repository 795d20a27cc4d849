// Responses and the clients' memory are lost.
import { strict as assert } from "node:assert";
import { newAgent, sendPath } from "./channel-agents.mjs";
import { kinds, newFolder } from "./clients.mjs";
import { onChain } from "./channel-journeys.mjs";
import { startServerProxy } from "./proxy.mjs";

export async function checkLosses(world) {
  const { chain, check, database, price, server, agents } = world;
  const reader = (kind) => agents[kind === "Python" ? "TypeScript" : "Python"];
  const sent = async (content) => Number((await database.query(`SELECT count(*) AS n FROM messages WHERE content = '${content}'`))[0].n);
  const proxy = await startServerProxy(server.url);

  const newPayer = async (kind, username, options) => (await newAgent(world, kind, options)).register(username);

  // lose makes a call whose response is lost after the charge, and returns what it paid with.
  async function lose(agent, path, body) {
    const lost = proxy.lost;
    agent.url = proxy.url;
    proxy.lose();
    const result = await agent.attempt(path, body);
    assert.ok(result.error, `${agent.kind}: the response is lost: ${JSON.stringify(result)}`);
    assert.equal(proxy.lost, lost + 1);
    agent.url = server.url;
    return result.payments;
  }
  const message = (agent, content) => [agent, sendPath, { recipient_agent_id: reader(agent.kind).id, content }];

  for (const kind of Object.keys(kinds)) {
    const name = kind.toLowerCase();

    await check(`${kind}, without RPC: a lost response comes again for the same request, and the client goes on in step`, async () => {
      const agent = await newPayer(kind, `same_${name}`);
      await agent.send(reader(kind), `${name} begins`);
      assert.deepEqual(await lose(...message(agent, `${name} lost`)), ["voucher"]);
      assert.deepEqual((await agent.send(reader(kind), `${name} lost`)).payments, ["voucher"]);
      assert.deepEqual((await agent.send(reader(kind), `${name} goes on`)).payments, ["voucher"]);
      assert.equal(await sent(`${name} lost`), 1);
    });

    await check(`${kind}, without RPC: the same for the response to the deposit, of a registration`, async () => {
      const agent = await newAgent(world, kind);
      const username = `first_${name}`;
      assert.deepEqual(await lose(agent, "/register/request_account", { requested_username: username }), ["deposit"]);
      await agent.register(username);
      assert.deepEqual((await agent.send(reader(kind), `${name} goes on from the start`)).payments, ["voucher"]);
      const { deposits, transfers } = await onChain(world, agent.wallet);
      assert.deepEqual([deposits.length, transfers.length], [1, 1], "one deposit and no other payment");
    });

    await check(`${kind}, with RPC: after a lost response any request succeeds at once`, async () => {
      const agent = await newPayer(kind, `any_${name}`, { rpc: chain.url });
      await agent.send(reader(kind), `${name} begins with RPC`);
      await lose(...message(agent, `${name} lost with RPC`));
      world.books.add(agent.wallet.address, "batch-settlement", price(sendPath));
      assert.deepEqual((await agent.send(reader(kind), `${name} asks for something else`)).payments, ["voucher", "voucher"]);
      assert.deepEqual((await agent.send(reader(kind), `${name} goes on with RPC`)).payments, ["voucher"]);
      assert.equal(await sent(`${name} lost with RPC`), 1);
    });

    await check(`${kind}, with RPC, restarted without its state: the corrective 402 puts it in step at once`, async () => {
      const agent = await newPayer(kind, `state_${name}`, { rpc: chain.url });
      for (let i = 0; i < 3; i++) {
        const { payments } = await agent.send(reader(kind), `${name} restarts with RPC ${i}`);
        assert.deepEqual(payments, i === 0 ? ["voucher"] : ["voucher", "voucher"]);
        await agent.restart();
      }
      assert.equal((await onChain(world, agent.wallet)).deposits.length, 1);
    });

    await check(`${kind}, with its state in files, restarted: it goes on with its channel`, async () => {
      const agent = await newPayer(kind, `files_${name}`, { folder: newFolder() });
      for (let i = 0; i < 3; i++) {
        const { payments } = await agent.send(reader(kind), `${name} restarts with files ${i}`);
        assert.deepEqual(payments, ["voucher"]);
        await agent.restart();
      }
      assert.equal((await onChain(world, agent.wallet)).deposits.length, 1);
    });

    await check(`${kind}, memory and no RPC, restarted ten times: every call succeeds within two tries, none is charged twice`, async () => {
      const agent = await newPayer(kind, `forgetful_${name}`);
      let tries = 0;
      for (let i = 0; i < 10; i++) {
        await agent.restart();
        const message = { recipient_agent_id: reader(kind).id, content: `${name} forgets ${i}` };
        tries++;
        if ((await agent.attempt(sendPath, message)).status !== 200) {
          tries++;
          await agent.call(sendPath, message);
        }
        assert.equal(await sent(message.content), 1);
      }
      console.log(`    ${kind}: ${tries} tries for ten calls`);
      assert.equal((await onChain(world, agent.wallet)).deposits.length, 1);
    });
  }
  proxy.stop();
}
