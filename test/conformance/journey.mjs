// The official x402 client (@x402/fetch, @x402/evm, unmodified) pays its way through `parley dev`: two agents register,
// one sends a message, the other reads it. The response with the API key is lost once and requested again in each way that the
// contract names. Exits with 0 only if every response and every balance is correct.
//
//   go run ./test/conformance/live bin/parley node test/conformance/journey.mjs
import { strict as assert } from "node:assert";
import { wrapFetchWithPayment, x402HTTPClient } from "@x402/fetch";
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from "@x402/core/http";
import { insisting, losing, payerOf } from "./agent.mjs";

const { PARLEY_URL: url, PARLEY_FACILITATOR: facilitator, PARLEY_PAY_TO: payTo } = process.env;
const contract = await (await fetch(`${url}/openapi.json`)).json();
const wallets = await (await fetch(`${facilitator}/accounts`)).json();
const balance = async (of) => BigInt((await (await fetch(`${facilitator}/balances/${of}`)).json()).balance);

// The price of a call in atomic units, read from the contract.
const price = (method, path) => BigInt(contract.paths[path][method]["x-payment-info"].protocols[0].x402.amount);
let expected = 0n;

const agent = (wallet, send = fetch) => {
  const pay = wrapFetchWithPayment(insisting(send), payerOf(wallet));
  return async (path, body, key) => {
    const response = await pay(url + path, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...(key ? { "X-API-KEY": key } : {}) },
      body: JSON.stringify(body),
    });
    const reply = await response.json();
    assert.equal(response.status, 200, `POST ${path}: ${response.status} ${JSON.stringify(reply)}`);
    const settled = decodePaymentResponseHeader(response.headers.get("PAYMENT-RESPONSE"));
    assert.equal(settled.success, true);
    assert.match(settled.transaction, /^0x[0-9a-f]{64}$/);
    assert.equal(settled.payer.toLowerCase(), wallet.address.toLowerCase());
    expected += price("post", path);
    console.log(`ok  POST ${path}  ${settled.transaction}`);
    return reply;
  };
};
const register = async (call, username) => {
  const { tan } = await call("/register/request_account", { requested_username: username });
  const { api_key } = await call("/register/create_account", { username, tan, description: "An agent that pays with the official client." });
  return api_key;
};

// lostResponses registers an account. Each of the two responses with a secret is requested again: by strangers who read the
// chain, and by the wallet.
async function lostResponses(username, wallet) {
  let identifier;
  const client = payerOf(wallet, () => identifier);
  const codec = new x402HTTPClient(client);
  // sign creates a payment for a call; its send can be repeated.
  const sign = async (path, body) => {
    const request = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    const unpaid = await fetch(url + path, request);
    const payload = await client.createPaymentPayload(codec.getPaymentRequiredResponse((name) => unpaid.headers.get(name)));
    const headers = { ...request.headers, ...codec.encodePaymentSignatureHeader(payload) };
    return async () => {
      const response = await fetch(url + path, { ...request, headers });
      return { status: response.status, header: response.headers.get("PAYMENT-RESPONSE"), ...(await response.json()) };
    };
  };
  const revenue = async () => (await balance(payTo)) - before;
  // repeated checks that a call returns the first response and settlement again, and that nothing is paid.
  const repeated = async (how, first, send) => {
    const paid = await revenue();
    assert.deepEqual(await send(), first, how);
    assert.equal(await revenue(), paid, `${how}: nothing is charged`);
    console.log(`ok  ${how}`);
  };
  const proofRequired = async (how, send) => {
    const paid = await revenue();
    const { status, code, charged } = await send();
    assert.deepEqual({ status, code, charged }, { status: 409, code: "proof_required", charged: false }, how);
    assert.equal(await revenue(), paid, `${how}: nothing is charged`);
    console.log(`ok  ${how}: 409 proof_required`);
  };

  const path = "/register/request_account";
  const bare = await sign(path, { requested_username: username }); // without an identifier
  const reserved = await bare();
  assert.equal(reserved.status, 200, JSON.stringify(reserved));
  expected += price("post", path);
  await proofRequired("a payment without identifier, sent again", bare);
  await repeated("the TAN, by a fresh authorization of the same wallet", reserved, await sign(path, { requested_username: username }));

  const create = "/register/create_account";
  const account = { username, tan: reserved.tan, description: "An agent that loses responses." };
  identifier = crypto.randomUUID();
  const named = await sign(create, account);
  const created = await named();
  assert.equal(created.status, 200, JSON.stringify(created));
  expected += price("post", create);
  await repeated("the API key, by the same payment with its identifier", created, named);
  await repeated("the API key, by another payment with that identifier", created, await sign(create, account));
  identifier = undefined;
  await repeated("the API key, by a fresh authorization of the same wallet", created, await sign(create, account));
  return created.api_key;
}

const bare = await fetch(`${url}/chat/private/send`, { method: "POST" });
assert.equal(bare.status, 402);
assert.equal(decodePaymentRequiredHeader(bare.headers.get("PAYMENT-REQUIRED")).accepts[0].payTo, payTo);

const before = await balance(payTo);
const lossy = losing("/register/create_account");
const alice = agent(wallets[0], lossy);
const bob = agent(wallets[1]);
const aliceKey = await register(alice, "alice");
const one = expected;
assert.equal(lossy.lost, 1, "the response with alice's API key is lost once, and comes back to the same payment with its identifier");
assert.equal(one, 10_000n + 990_000n, "the specification's price of an account");
const bobKey = await lostResponses("bob", wallets[1]);
const { agent_id } = await alice("/agent/profile", { username: "bob" }, aliceKey);
const sent = await alice("/chat/private/send", { recipient_agent_id: agent_id, content: "Hello, Bob 👋 — from the official client." }, aliceKey);
const read = await bob("/chat/private/messages", { chat_id: sent.chat_id }, bobKey);
assert.equal(read.messages.length, 1);
assert.equal(read.messages[0].message_id, sent.message_id);
assert.equal(read.messages[0].content, "Hello, Bob 👋 — from the official client.");
assert.equal(read.messages[0].sender_username, "alice");
// Two accounts, a profile, a message and a fetch, at the specification's prices.
assert.equal(expected, 2n * (10_000n + 990_000n) + 1_000n + 5_000n + 1_000n);
assert.equal((await balance(payTo)) - before, expected, "the payee holds exactly the sum");
console.log(`ok  the payee received ${expected} atomic units, exactly the sum of the prices`);
