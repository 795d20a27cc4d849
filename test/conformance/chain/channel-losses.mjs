// Responses are lost, and the facilitator is away for some time.
import { strict as assert } from "node:assert";
import { until } from "../processes.mjs";
import { openProxy } from "../proxy.mjs";
import { friendOf, newAccount, newAgent, sendPath, timesSent } from "./channel-agents.mjs";
import { kinds } from "./clients.mjs";
import { onChain } from "./channel-journeys.mjs";

export async function checkLosses(world) {
  const { chain, check, facilitator, price, server, agents } = world;
  const friend = (kind) => friendOf(world, kind);
  let [armed, lost] = [false, 0];
  const proxy = await openProxy(server.url, async (payment, { request, forward, respond }) => {
    const reply = await forward();
    if (!armed || reply.status !== 200) return respond(reply);
    armed = false;
    lost++;
    request.socket.destroy();
  });

  // lose makes a call whose response is lost after the charge, and returns what it paid with.
  async function lose(agent, path, body) {
    const before = lost;
    agent.url = proxy.url;
    armed = true;
    const result = await agent.attempt(path, body);
    assert.ok(result.error, `${agent.kind}: the response is lost: ${JSON.stringify(result)}`);
    assert.equal(lost, before + 1);
    agent.url = server.url;
    return result.payments;
  }
  const message = (agent, content) => [agent, sendPath, { recipient_agent_id: friend(agent.kind).id, content }];

  for (const kind of Object.keys(kinds)) {
    const name = kind.toLowerCase();

    await check(`${kind}, without RPC: a lost response comes again for the same request, and the client goes on in step`, async () => {
      const agent = await newAccount(world, kind, `same_${name}`);
      await agent.send(friend(kind), `${name} begins`);
      assert.deepEqual(await lose(...message(agent, `${name} lost`)), ["voucher"]);
      assert.deepEqual((await agent.send(friend(kind), `${name} lost`)).payments, ["voucher"]);
      assert.deepEqual((await agent.send(friend(kind), `${name} goes on`)).payments, ["voucher"]);
      assert.equal(await timesSent(world, `${name} lost`), 1);
    });

    await check(`${kind}, without RPC: the same for the response to the deposit, of a registration`, async () => {
      const agent = await newAgent(world, kind);
      const username = `first_${name}`;
      assert.deepEqual(await lose(agent, "/register/request_account", { requested_username: username }), ["deposit"]);
      await agent.register(username);
      assert.deepEqual((await agent.send(friend(kind), `${name} goes on from the start`)).payments, ["voucher"]);
      const { deposits, transfers } = await onChain(world, agent.wallet);
      assert.deepEqual([deposits.length, transfers.length], [1, 1], "one deposit and no other payment");
    });

    await check(`${kind}, with RPC: after a lost response any request succeeds at once`, async () => {
      const agent = await newAccount(world, kind, `any_${name}`, { rpc: chain.url });
      await agent.send(friend(kind), `${name} begins with RPC`);
      await lose(...message(agent, `${name} lost with RPC`));
      world.books.add(agent.wallet.address, "batch-settlement", price(sendPath));
      assert.deepEqual((await agent.send(friend(kind), `${name} asks for something else`)).payments, ["voucher", "voucher"]);
      assert.deepEqual((await agent.send(friend(kind), `${name} goes on with RPC`)).payments, ["voucher"]);
      assert.equal(await timesSent(world, `${name} lost with RPC`), 1);
    });
  }
  proxy.close();

  await check("without its facilitator the server takes vouchers, and deposits when it is back", async () => {
    await world.calm();
    await facilitator.kill();
    for (const [kind, agent] of Object.entries(agents)) {
      assert.deepEqual((await agent.send(friend(kind), `${kind} without the facilitator`)).payments, ["voucher"]);
    }
    const agent = await newAgent(world, "TypeScript");
    const request = () => agent.attempt("/register/request_account", { requested_username: "patient" });
    const { status, reply } = await request();
    assert.deepEqual([status, reply.code, reply.charged], [503, "unavailable", false]);
    await facilitator.start();
    await until("the deposit is taken", async () => (await request()).status === 200);
    assert.equal((await onChain(world, agent.wallet)).deposits.length, 1);
  });
}
