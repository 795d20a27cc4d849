// Checks of the scheme exact: the payer cancels, the facilitator dies at every moment, smart wallets pay.
import { strict as assert } from "node:assert";
import { parseSignature } from "viem";
import { usdc } from "./evm.mjs";
import { until } from "./processes.mjs";
import { startNodeProxy } from "./proxy.mjs";

export async function checkFaults(world, { alice, bob, clientV2, call, message, rejected, rich, contents }) {
  const { chain, database, facilitator, payee, check, price } = world;

  // cancel lets the payer cancel the authorization on the chain.
  async function cancel({ wallet }, { payload }) {
    const { nonce } = payload.payload.authorization;
    const signature = await wallet.account.signTypedData({
      domain: { name: "USDC", version: "2", chainId: 84532, verifyingContract: usdc },
      types: { CancelAuthorization: [{ name: "authorizer", type: "address" }, { name: "nonce", type: "bytes32" }] },
      primaryType: "CancelAuthorization",
      message: { authorizer: wallet.address, nonce },
    });
    const { r, s, v } = parseSignature(signature);
    await chain.token.write("cancelAuthorization", wallet.address, nonce, Number(v), r, s);
  }
  async function boughtNothing(payer, payment, content) {
    await rejected(await payment.send(), 402, "payment_refused");
    assert.equal((await chain.transfers(payer.wallet.address, payee)).length, 0);
    assert.equal((await contents()).includes(content), false);
  }

  await check("an authorization that was cancelled on the chain buys nothing", async () => {
    const payer = clientV2(await chain.wallet(rich));
    const payment = await message("cancelled", payer);
    await cancel(payer, payment);
    await boughtNothing(payer, payment, "cancelled");
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
  async function sentOnce(payer, content) {
    assert.equal((await chain.transfers(payer.wallet.address, payee)).length, 1);
    assert.equal((await contents()).filter((each) => each === content).length, 1);
  }

  // settledIn sends the same payment until its outcome is known, as the server requests.
  async function settledIn(payer, payment, content) {
    let reply;
    await until("the outcome is known", async () => (reply = await payment.send()).status !== 503);
    world.expected += price("/chat/private/send");
    assert.equal(reply.status, 200, await reply.text());
    await sentOnce(payer, content);
  }

  await check("the facilitator dies after it sent the transfer, and the payment is sent again", async () => {
    const { payer, payment } = await interrupted("interrupted");
    await chain.atOnce();
    await facilitator.start();
    await settledIn(payer, payment, "interrupted");
  });

  await check("the facilitator does not hear that the node took its transfer", async () => {
    const payer = clientV2(await chain.wallet(rich));
    const payment = await message("unheard", payer);
    const proxy = await startNodeProxy(chain.url, { heard: true });
    await facilitator.kill();
    await facilitator.start({ RPC_URL: proxy.url });
    const reply = await payment.send();
    assert.equal(proxy.lost, 1);
    await facilitator.kill();
    proxy.stop();
    await facilitator.start();
    assert.notEqual(reply.status, 402, await reply.text());
    await settledIn(payer, payment, "unheard");
  });

  await check("the facilitator dies after it sent the transfer, and nobody sends the payment again", async () => {
    const { payer } = await interrupted("forgotten");
    await chain.atOnce();
    await facilitator.start();
    const open = "SELECT id FROM payments WHERE state IN ('settling', 'unknown')";
    await until("the server has finished it by itself", async () => (await database.query(open)).length === 0, 60_000);
    world.expected += price("/chat/private/send");
    await sentOnce(payer, "forgotten");
  });

  await check("a smart wallet pays, with the signatures of both its owners", async () => {
    const payer = clientV2(await chain.smartWallet(rich, 2));
    await call(payer, "/chat/private/send", { recipient_agent_id: bob.id, content: "from two owners" }, alice.key);
    assert.equal((await contents()).includes("from two owners"), true);
  });

  await check("a smart wallet without money buys nothing", async () => {
    const payer = clientV2(await chain.smartWallet(0n, 2));
    await boughtNothing(payer, await message("from a poor wallet", payer), "from a poor wallet");
  });

  await check("a smart wallet pays, with a signature as long as anybody's", async () => {
    const payer = clientV2(await chain.smartWallet(rich, 1));
    await call(payer, "/chat/private/send", { recipient_agent_id: bob.id, content: "from one owner" }, alice.key);
    assert.equal((await contents()).includes("from one owner"), true);
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

  await check("the facilitator dies, and its successor does not reach the chain", async () => {
    const { payer, payment } = await interrupted("lost");
    await chain.atOnce();
    await facilitator.start({ RPC_URL: "http://127.0.0.1:9" });
    await until("the server asks the chain itself", async () => (await payment.send()).status === 200);
    await facilitator.kill();
    await facilitator.start();
    await settledIn(payer, payment, "lost");
  });

  await check("an authorization that was cancelled while its outcome was unknown buys nothing", async () => {
    const payer = clientV2(await chain.wallet(rich));
    const payment = await message("cancelled in between", payer);
    await facilitator.kill();
    const proxy = await startNodeProxy(chain.url, { heard: false });
    await facilitator.start({ RPC_URL: proxy.url });
    const reply = payment.send();
    await until("the facilitator sends the transfer", () => proxy.lost === 1);
    await facilitator.kill();
    proxy.stop();
    await rejected(await reply, 503, "payment_unknown");
    await cancel(payer, payment);
    await facilitator.start();
    await boughtNothing(payer, payment, "cancelled in between");
  });
}
