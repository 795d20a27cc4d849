// The official x402 client (@x402/fetch, @x402/evm, unmodified) pays its way through `parley dev`: two agents register,
// one writes to the other, the other reads. Ends with 0 only if every answer and every balance is exactly right.
//
//   go run ./conformance/live bin/parley node conformance/journey.mjs
import { strict as assert } from "node:assert";
import { webcrypto } from "node:crypto";
import { x402Client, wrapFetchWithPayment } from "@x402/fetch";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from "@x402/core/http";
import { privateKeyToAccount } from "viem/accounts";

globalThis.crypto ??= webcrypto; // Node 18, which Debian 12 has, keeps it to itself

const { PARLEY_URL: url, PARLEY_FACILITATOR: facilitator, PARLEY_PAY_TO: payTo } = process.env;
const contract = await (await fetch(`${url}/openapi.json`)).json();
const wallets = await (await fetch(`${facilitator}/accounts`)).json();
const balance = async (of) => BigInt((await (await fetch(`${facilitator}/balances/${of}`)).json()).balance);

// What the call costs, by the contract, in atomic units: the expected sum is read from the document, not repeated here.
const price = (method, path) => BigInt(contract.paths[path][method]["x-payment-info"].protocols[0].x402.amount);
let expected = 0n;

const agent = (wallet) => {
  const client = new x402Client();
  registerExactEvmScheme(client, { signer: privateKeyToAccount(wallet.private_key) });
  const pay = wrapFetchWithPayment(fetch, client);
  return async (path, body, key) => {
    const response = await pay(url + path, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...(key ? { "X-API-KEY": key } : {}) },
      body: JSON.stringify(body),
    });
    const answer = await response.json();
    assert.equal(response.status, 200, `POST ${path}: ${response.status} ${JSON.stringify(answer)}`);
    const settled = decodePaymentResponseHeader(response.headers.get("PAYMENT-RESPONSE"));
    assert.equal(settled.success, true);
    assert.match(settled.transaction, /^0x[0-9a-f]{64}$/);
    assert.equal(settled.payer.toLowerCase(), wallet.address.toLowerCase());
    expected += price("post", path);
    console.log(`ok  POST ${path}  ${settled.transaction}`);
    return answer;
  };
};
const register = async (call, username) => {
  const { tan } = await call("/register/request_account", { requested_username: username });
  const { api_key } = await call("/register/create_account", { username, tan, description: "An agent that pays with the official client." });
  return api_key;
};

const bare = await fetch(`${url}/chat/private/send`, { method: "POST" });
assert.equal(bare.status, 402);
assert.equal(decodePaymentRequiredHeader(bare.headers.get("PAYMENT-REQUIRED")).accepts[0].payTo, payTo);

const before = await balance(payTo);
const alice = agent(wallets[0]);
const bob = agent(wallets[1]);
const aliceKey = await register(alice, "alice");
const one = expected;
assert.equal(one, 10_000n + 990_000n, "the specification's price of an account");
const bobKey = await register(bob, "bob");
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
