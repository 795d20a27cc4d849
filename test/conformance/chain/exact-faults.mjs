// Checks of the scheme exact with the official facilitator: the payer cancels, the facilitator dies, a smart wallet pays. test/attack has
// the other faults of a facilitator and of a chain.
import { strict as assert } from "node:assert";
import { parseSignature } from "viem";
import { usdc } from "./evm.mjs";
import { until } from "./processes.mjs";

export async function checkFaults(world, { alice, bob, clientV2, call, message, rejected, rich, contents }) {
  const { chain, facilitator, payee, check, price } = world;

  await check("an authorization that was cancelled on the chain buys nothing", async () => {
    const payer = clientV2(await chain.wallet(rich));
    const payment = await message("cancelled", payer);
    const { nonce } = payment.payload.payload.authorization;
    const signature = await payer.wallet.account.signTypedData({
      domain: { name: "USDC", version: "2", chainId: 84532, verifyingContract: usdc },
      types: { CancelAuthorization: [{ name: "authorizer", type: "address" }, { name: "nonce", type: "bytes32" }] },
      primaryType: "CancelAuthorization",
      message: { authorizer: payer.wallet.address, nonce },
    });
    const { r, s, v } = parseSignature(signature);
    await chain.token.write("cancelAuthorization", payer.wallet.address, nonce, Number(v), r, s);
    await rejected(await payment.send(), 402, "payment_refused");
    assert.equal((await chain.transfers(payer.wallet.address, payee)).length, 0);
    assert.equal((await contents()).includes("cancelled"), false);
  });

  // interrupted sends a payment and kills the facilitator when its transaction is on the way and not yet in a block.
  async function interrupted(content) {
    const payer = clientV2(await chain.wallet(rich));
    const payment = await message(content, payer);
    await chain.byHand();
    const reply = payment.send();
    await until("the transfer waits for its block", async () => (await chain.waiting()) === 1);
    await facilitator.kill();
    await rejected(await reply, 503, "payment_unknown");
    return { payer, payment };
  }

  // settledIn sends the same payment until its outcome is known, as the server requests.
  async function settledIn(payer, payment, content) {
    let reply;
    await until("the outcome is known", async () => (reply = await payment.send()).status !== 503);
    world.expected += price("/chat/private/send");
    assert.equal(reply.status, 200, await reply.text());
    assert.equal((await chain.transfers(payer.wallet.address, payee)).length, 1);
    assert.equal((await contents()).filter((each) => each === content).length, 1);
  }

  await check("the facilitator dies after it sent the transfer, and the payment is sent again", async () => {
    const { payer, payment } = await interrupted("interrupted");
    await chain.atOnce();
    await facilitator.start();
    await settledIn(payer, payment, "interrupted");
  });

  await check("the facilitator dies, the payment is sent again before the block: of its two transfers one fails", async () => {
    const { payer, payment } = await interrupted("impatient");
    await facilitator.start({ GAS: "200000" });
    const reply = payment.send();
    await until("a second transfer waits too", async () => (await chain.waiting()) === 2);
    await chain.atOnce();
    await reply;
    await settledIn(payer, payment, "impatient");
    await facilitator.kill();
    await facilitator.start();
  });

  await check("a smart wallet pays, with the signatures of both its owners", async () => {
    const payer = clientV2(await chain.smartWallet(rich, 2));
    await call(payer, "/chat/private/send", { recipient_agent_id: bob.id, content: "from two owners" }, alice.key);
    assert.equal((await contents()).includes("from two owners"), true);
  });
}
