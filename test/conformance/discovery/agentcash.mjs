// AgentCash, unmodified, finds Parley from its address and buys an account, a search and its unread messages: with payment channels offered
// first, and with exact first. AgentCash pays on Base only, so the server runs in production mode beside a facilitator of this file, which
// has the signatures of a real one checked and settles by counting. Only the balance, which AgentCash asks its own service for, is made up.
//
//   PARLEY=bin/parley POSTGRES=bin/chain-postgres node test/conformance/discovery/agentcash.mjs
import { strict as assert } from "node:assert";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { verifyTypedData } from "viem";
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts";
import { command, newFolder, newSecret, newServer, startPostgres } from "../processes.mjs";

const network = "eip155:8453";
const payee = privateKeyToAddress(generatePrivateKey());
const folder = newFolder();

// The facilitator, and the JSON-RPC endpoint of a chain on which every wallet has 1,000 USDC.
const used = new Map(); // amounts by nonce
const kinds = ["exact", "batch-settlement"].map((scheme) => ({ x402Version: 2, scheme, network }));
const reason = async ({ payload: { authorization, signature } }, { asset, amount, payTo, extra }) => {
  if (!authorization) return "unsupported_scheme"; // a payout: there is nothing in payment channels
  const types = ["address from", "address to", "uint256 value", "uint256 validAfter", "uint256 validBefore", "bytes32 nonce"];
  const signed = await verifyTypedData({
    address: authorization.from,
    domain: { name: extra.name, version: extra.version, chainId: 8453, verifyingContract: asset },
    types: { TransferWithAuthorization: types.map((field) => ({ type: field.split(" ")[0], name: field.split(" ")[1] })) },
    primaryType: "TransferWithAuthorization",
    message: authorization,
    signature,
  });
  if (!signed) return "invalid_exact_evm_signature";
  if (authorization.to !== payTo || authorization.value !== amount) return "invalid_exact_evm_recipient_mismatch";
  return used.has(authorization.nonce) ? "invalid_exact_evm_nonce_already_used" : undefined;
};
const word = (value) => `0x${value.toString(16).padStart(64, "0")}`;
const chain = { eth_chainId: () => "0x2105", eth_getCode: () => "0x", eth_call: () => word(1_000_000_000) };
const routes = {
  "GET /supported": () => ({ kinds }),
  "POST /verify": async ({ paymentPayload, paymentRequirements }) => {
    const invalidReason = await reason(paymentPayload, paymentRequirements);
    return { isValid: !invalidReason, invalidReason, payer: paymentPayload.payload.authorization?.from };
  },
  "POST /settle": async ({ paymentPayload, paymentRequirements }) => {
    const errorReason = await reason(paymentPayload, paymentRequirements);
    if (errorReason) return { success: false, errorReason, transaction: "", network };
    const { nonce, from, value } = paymentPayload.payload.authorization;
    used.set(nonce, Number(value));
    return { success: true, transaction: `0x${randomBytes(32).toString("hex")}`, network, payer: from };
  },
  "POST /rpc": ({ id, method }) => ({ jsonrpc: "2.0", id, result: chain[method]?.() ?? null }),
};
const service = createServer(async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  const content = await routes[`${request.method} ${request.url}`](text && JSON.parse(text));
  response.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(content));
});
await new Promise((resolve) => service.listen(0, "127.0.0.1", resolve));
const facilitator = `http://127.0.0.1:${service.address().port}`;

// The program asks its service for the balance before it pays, and sends it telemetry. Nothing else of it is changed.
const balance = join(folder, "balance.mjs");
writeFileSync(balance, `
  const send = globalThis.fetch;
  globalThis.fetch = async (input, init) => {
    const { origin, pathname } = new URL(input.url ?? input);
    if (origin !== "https://agentcash.dev") return send(input, init);
    const known = { balance: 1000, network: ${JSON.stringify(network)}, paymentNetwork: "base", chainId: 8453 };
    return pathname === "/api/balance" ? Response.json(known) : Response.json({}, { status: 503 });
  };`);

const home = { HOME: folder, X402_PRIVATE_KEY: generatePrivateKey() };
const here = fileURLToPath(new URL("node_modules/agentcash/", import.meta.url));
const { version } = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));
const run = promisify(execFile);
// agentcash runs a command and returns its output. A command that fails says so in its output too.
const agentcash = async (...argv) => {
  const program = ["--import", balance, join(here, "dist/esm/index.js"), ...argv, "--format", "json"];
  const { stdout } = await run(process.execPath, program, { env: { ...process.env, ...home } }).catch((error) => error);
  assert.ok(stdout.startsWith("{"), `agentcash ${argv.join(" ")}: ${stdout}`);
  return JSON.parse(stdout);
};

const postgres = await startPostgres();
command(["migrate", "--database-url", postgres.url]);
const server = await newServer([
  ...["--network", network, "--payee", payee, "--server-secret", newSecret(), "--authorizer-key", newSecret()],
  ...["--facilitator-url", facilitator, "--rpc-url", `${facilitator}/rpc`, "--database-url", postgres.url],
]);
const orders = {
  "batch-settlement": [],
  exact: ["--channel-claim-sum", "0.0001", "--channel-max-unclaimed", "0.0001"], // at its bound a server offers exact first
};
for (const [first, settings] of Object.entries(orders)) {
  try {
    await server.start(...settings);
    const call = async (path, body, key, ...more) => {
      const argv = body ? ["-m", "POST", "-b", JSON.stringify(body)] : [];
      if (key) argv.push("-H", `X-API-KEY: ${key}`);
      return agentcash("fetch", server.url + path, ...argv, ...more);
    };
    const asked = await fetch(`${server.url}/agent/me`);
    const { accepts } = JSON.parse(Buffer.from(asked.headers.get("PAYMENT-REQUIRED"), "base64"));
    assert.deepEqual([accepts[0].scheme, accepts.length], [first, 2], "what others are offered");

    const { data: found } = await agentcash("discover", server.url);
    assert.ok(found.endpoints.length >= 40, JSON.stringify(found).slice(0, 500));
    const before = used.size;
    const username = `cash_${first.replace("-", "_")}`;
    const bought = async (...args) => {
      const { success, data, ...rest } = await call(...args);
      assert.equal(success, true, JSON.stringify(rest));
      return data;
    };
    const { tan } = await bought("/register/request_account", { requested_username: username });
    const { api_key } = await bought("/register/create_account", { username, tan, description: "Buys with AgentCash." });
    const { agents } = await bought("/search/agents", { query: username }, api_key);
    assert.deepEqual(agents.map((agent) => agent.username), [username]);
    assert.equal((await bought("/agent/unread", undefined, api_key)).total_unread, 0);
    assert.equal(used.size - before, 4, "one payment for each call");

    // The control: with another name AgentCash signs the first offer on Base, whatever its scheme.
    const other = await call("/agent/me", undefined, api_key, "--provider", "other");
    assert.equal(other.success, first === "exact", `a client of another name: ${JSON.stringify(other)}`);
    await server.stop();
  } catch (error) {
    console.error(server.log(), error);
    process.exit(1);
  }
  console.log(`ok  agentcash: discover, an account, a search and a poll, with ${first} first`);
}
const sum = [...used.values()].reduce((all, amount) => all + amount, 0);
const ledger = command(["payments", "summary", "--json", "--database-url", postgres.url]);
assert.equal(JSON.parse(ledger).settlement.exact.amount, sum, "the ledger has what was settled");
console.log(`TABLE|agentcash|${version}|discover, an account, a search and a poll, with payment channels and with exact first|0`);
await postgres.stop();
process.exit(0);
