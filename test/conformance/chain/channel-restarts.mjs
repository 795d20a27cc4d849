// Clients restart and lose the state of their payment channels. That they go on with it, the bots of docs/sdk.md show.
import { strict as assert } from "node:assert";
import { friendOf, newAccount, newAgent, sendPath, timesSent } from "./channel-agents.mjs";
import { kinds } from "./clients.mjs";
import { onChain } from "./channel-journeys.mjs";

export async function checkRestarts(world) {
  const { chain, check } = world;
  const friend = (kind) => friendOf(world, kind);

  for (const kind of Object.keys(kinds)) {
    const name = kind.toLowerCase();

    await check(`${kind}, with RPC, restarted without its state: the corrective 402 puts it in step at once`, async () => {
      const agent = await newAccount(world, kind, `state_${name}`, { rpc: chain.url });
      for (let i = 0; i < 3; i++) {
        const { payments } = await agent.send(friend(kind), `${name} restarts with RPC ${i}`);
        assert.deepEqual(payments, i === 0 ? ["voucher"] : ["voucher", "voucher"]);
        await agent.restart();
      }
      assert.equal((await onChain(world, agent.wallet)).deposits.length, 1);
    });

    await check(`${kind}, memory and no RPC, restarted ten times: every call succeeds within two tries, none is charged twice`, async () => {
      const agent = await newAccount(world, kind, `forgetful_${name}`);
      let tries = 0;
      for (let i = 0; i < 10; i++) {
        await agent.restart();
        const message = { recipient_agent_id: friend(kind).id, content: `${name} forgets ${i}` };
        tries += await agent.persist(sendPath, message);
        assert.equal(await timesSent(world, message.content), 1);
      }
      console.log(`    ${kind}: ${tries} tries for ten calls`);
      assert.equal((await onChain(world, agent.wallet)).deposits.length, 1);
    });
  }

  for (const kind of Object.keys(kinds)) {
    await check(`${kind}, memory and no RPC, restarted during its registration: it succeeds within two tries`, async () => {
      await world.calm(); // a stranger is known by its address, which all clients share here
      const agent = await newAgent(world, kind);
      const username = `restarted_${kind.toLowerCase()}`;
      const { tan } = await agent.get("/register/request_account", { requested_username: username });
      await agent.restart();
      const account = ["/register/create_account", { username, tan, description: "An agent that restarts early." }];
      const { status, payments } = await agent.attempt(...account);
      assert.deepEqual([status, payments], [402, ["deposit"]]);
      assert.deepEqual((await agent.call(...account)).payments, ["exact"]);
      assert.equal((await onChain(world, agent.wallet)).deposits.length, 1);
    });
  }
}
