// Runs Parley in production mode with third-party components: the official clients of both protocol versions, the official
// facilitator, and a real EVM node with an EIP-3009 token at the address of USDC on Base Sepolia. Payments are read from the
// chain, never from the server. Prints one line per check; the first failure ends the run and prints the logs.
//
//   make chain
import { strict as assert } from "node:assert";
import { webcrypto } from "node:crypto";
import { x402Client, x402HTTPClient, wrapFetchWithPayment } from "@x402/fetch";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { decodePaymentResponseHeader } from "@x402/core/http";
import { createSigner, decodeXPaymentResponse, wrapFetchWithPayment as wrapFetchWithPaymentV1 } from "x402-fetch";
import { numberToHex, parseSignature, serializeSignature } from "viem";
import { identified } from "../identifier.mjs";
import { checkFaults } from "./exact-faults.mjs";
import { startWorld } from "./world.mjs";

globalThis.crypto ??= webcrypto; // Node 18 does not export it

const world = await startWorld({
  seconds: 230,
  audit: async ({ chain, payee, expected }) =>
    assert.equal(await chain.balance(payee), expected, "the payee's balance on the chain is not the sum of what was bought"),
});
world.expected = 0n; // what the payee must have received
const { chain, database, facilitator, payee, server, check, price } = world;
await server.start();

const request = (body, headers = {}) => ({
  method: "POST",
  headers: { "Content-Type": "application/json", ...headers },
  body: JSON.stringify(body),
});
const withKey = (key) => (key ? { "X-API-KEY": key } : {});

// The two official clients for a wallet: how each pays, and where it finds the settlement. The client of version 2 puts the result of
// identify into each payment as its identifier.
function clientV2(wallet, identify) {
  const client = new x402Client();
  registerExactEvmScheme(client, { signer: wallet.account });
  identified(client, identify);
  return {
    wallet,
    client,
    fetch: wrapFetchWithPayment(fetch, client),
    receipt: (response) => decodePaymentResponseHeader(response.headers.get("PAYMENT-RESPONSE")),
    network: "eip155:84532",
  };
}
async function clientV1(wallet) {
  const signer = await createSigner("base-sepolia", wallet.key);
  return {
    wallet,
    fetch: wrapFetchWithPaymentV1(fetch, signer, 1_000_000n), // its default limit is 0.10 USD
    receipt: (response) => decodeXPaymentResponse(response.headers.get("X-PAYMENT-RESPONSE")),
    network: "base-sepolia",
  };
}

// call pays for one call, which must succeed, and finds its transfer on the chain.
async function call(payer, path, body, key) {
  const response = await payer.fetch(server.url + path, request(body, withKey(key)));
  return paid(payer, path, response);
}
async function paid(payer, path, response) {
  const reply = await response.json();
  assert.equal(response.status, 200, `POST ${path}: ${response.status} ${JSON.stringify(reply)}`);
  world.expected += price(path);
  const receipt = payer.receipt(response);
  assert.equal(receipt.success, true);
  assert.equal(receipt.network, payer.network);
  assert.equal(receipt.payer.toLowerCase(), payer.wallet.address.toLowerCase());
  const transfers = await chain.transfers(payer.wallet.address, payee);
  const transfer = transfers.find(({ transactionHash }) => transactionHash === receipt.transaction);
  assert.equal(transfer?.args.value, price(path), `POST ${path}: the transfer of the receipt is on the chain`);
  return reply;
}
async function register(payer, username) {
  const { tan } = await call(payer, "/register/request_account", { requested_username: username });
  const { api_key } = await call(payer, "/register/create_account", { username, tan, description: "An agent that pays." });
  const { agent_id } = await call(payer, "/agent/profile", { username }, api_key);
  return { payer, username, key: api_key, id: agent_id };
}
const send = (from, to, content) => call(from.payer, "/chat/private/send", { recipient_agent_id: to.id, content }, from.key);
const contents = async (agent, chat) => {
  const { messages } = await call(agent.payer, "/chat/private/messages", { chat_id: chat }, agent.key);
  return messages.map(({ content }) => content);
};

async function journey(first, second) {
  const before = await chain.balance(first.payer.wallet.address);
  const sent = await send(first, second, "Hello 👋 over a chain that is not ours.");
  assert.deepEqual(await contents(second, sent.chat_id), ["Hello 👋 over a chain that is not ours."]);
  assert.equal(before - (await chain.balance(first.payer.wallet.address)), price("/chat/private/send"));
  return sent.chat_id;
}

// sign returns a payment for a call, signed by the official v2 client. The caller can send it repeatedly.
async function sign(payer, path, body, key) {
  const unpaid = await fetch(server.url + path, request(body, withKey(key)));
  assert.equal(unpaid.status, 402);
  const client = new x402HTTPClient(payer.client);
  const encode = (payload) => {
    const headers = { ...withKey(key), ...client.encodePaymentSignatureHeader(payload) };
    return { payload, encode, send: (other = body) => fetch(server.url + path, request(other, headers)) };
  };
  return encode(await payer.client.createPaymentPayload(client.getPaymentRequiredResponse((name) => unpaid.headers.get(name))));
}
async function rejected(response, status, code) {
  const reply = await response.json();
  assert.equal(response.status, status, JSON.stringify(reply));
  assert.equal(reply.code, code, JSON.stringify(reply));
  assert.equal(reply.charged, code === "payment_unknown" ? undefined : false, JSON.stringify(reply));
  return reply;
}

const rich = 3_000_000n;
let alice, bob, chat; // registered in the first journey, used in all later ones
const message = async (content, wallet = alice.payer) =>
  sign(wallet, "/chat/private/send", { recipient_agent_id: bob.id, content }, alice.key);

await check("the token on the chain is USDC to those who sign", async () => {
  const separator = "0x71f17a3b2ff373b803d70a5a07c046c1a2bc8e89c09ef722fcb047abe94c9818"; // that of USDC on Base Sepolia
  assert.equal(await chain.token.read("DOMAIN_SEPARATOR"), separator);
});

await check("the server starts without its facilitator and names its prices", async () => {
  await world.readPrices();
  for (const [path, item] of Object.entries(world.contract.paths)) {
    if (!item.post?.["x-payment-info"]) continue;
    const response = await fetch(server.url + path, { method: "POST" });
    assert.equal(response.status, 402, path);
  }
});

await check("a payment that no facilitator hears of takes nothing, and is good when one comes up", async () => {
  const payer = clientV2(await chain.wallet(rich));
  const path = "/register/request_account";
  const payment = await sign(payer, path, { requested_username: "patient" });
  await rejected(await payment.send(), 503, "unavailable");
  assert.deepEqual(await database.query("SELECT id FROM payments"), []);
  await facilitator.start();
  await paid(payer, path, await payment.send());
  assert.equal((await chain.transfers(payer.wallet.address, payee)).length, 1);
});

await check("the official v2 client: two agents register, one writes, one reads", async () => {
  alice = await register(clientV2(await chain.wallet(rich)), "alice");
  bob = await register(clientV2(await chain.wallet(rich)), "bob");
  chat = await journey(alice, bob);
});

await check("the official v1 client: two agents register, one writes, one reads", async () => {
  const carol = await register(await clientV1(await chain.wallet(rich)), "carol");
  const dave = await register(await clientV1(await chain.wallet(rich)), "dave");
  await journey(carol, dave);
});

await check("what is public on the chain opens no API key; the identifier and a new authorization by the wallet do", async () => {
  let identifier;
  const payer = clientV2(await chain.wallet(rich), () => identifier);
  const path = "/register/create_account";
  // created buys an account. It returns the payment, the response and a function that checks that another payment returns the response again.
  const created = async (username) => {
    const { tan } = await call(payer, "/register/request_account", { requested_username: username });
    const body = { username, tan, description: "An agent whose responses are lost." };
    const payment = await sign(payer, path, body);
    const reply = await paid(payer, path, await payment.send());
    const comesAgain = async (how, again) => {
      const response = await again.send();
      assert.deepEqual([response.status, await response.json()], [200, reply], how);
    };
    return { payment, comesAgain, fresh: () => sign(payer, path, body) };
  };
  const unnamed = await created("unnamed");
  await rejected(await unnamed.payment.send(), 409, "proof_required");
  await unnamed.comesAgain("by a fresh authorization", await unnamed.fresh());
  identifier = crypto.randomUUID();
  const named = await created("named");
  await named.comesAgain("by the same payment with its identifier", named.payment);
  await named.comesAgain("by the identifier, signed anew", await named.fresh());
  assert.equal((await chain.transfers(payer.wallet.address, payee)).length, 4, "two accounts are paid for, and nothing else");
});

await check("a signature's twin with the other s is rejected, by the server and by the token", async () => {
  const payer = clientV2(await chain.wallet(rich));
  const { payload, encode } = await message("malleated", payer);
  const { authorization, signature } = payload.payload;
  const { r, s, yParity } = parseSignature(signature);
  const order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n; // of secp256k1
  const twin = { r, s: numberToHex(order - BigInt(s), { size: 32 }), yParity: 1 - yParity };
  const { from, to, value, validAfter, validBefore, nonce } = authorization;
  const terms = [from, to, ...[value, validAfter, validBefore].map(BigInt), nonce];
  const transfer = (v, r, s) => chain.token.simulate("transferWithAuthorization", ...terms, v, r, s);
  await transfer(27 + yParity, r, s);
  await assert.rejects(transfer(27 + twin.yParity, twin.r, twin.s), /invalid signature/);
  payload.payload.signature = serializeSignature(twin);
  await rejected(await encode(payload).send(), 402, "payment_refused");
});

await checkFaults(world, { alice, bob, clientV2, call, message, rejected, rich, contents: () => contents(bob, chat) });

await check("the ledger says what the chain says", async () => {
  const [{ sum }] = await database.query("SELECT sum(amount) FROM payments WHERE state = 'delivered'");
  assert.equal(BigInt(sum), await chain.balance(payee));
  assert.deepEqual(await database.query("SELECT id, state FROM payments WHERE state NOT IN ('delivered', 'failed')"), []);
});

console.log(`ok  everything ended after ${await world.end()} s; the payee has ${world.expected} atomic units`);
