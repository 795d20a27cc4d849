// Runs a program that uses an SDK, through a proxy that keeps the books: what the program bought must be what its wallets paid and the
// payee received, to the unit. The proxy loses the first response with an API key; the program must get it back. It finds the proxy in
// PARLEY_URL and the private keys of two wallets in WALLET_ALICE and WALLET_BOB.
//
//   go run ./test/conformance/live bin/parley node test/conformance/sdk/books.mjs PROGRAM [ARGUMENT...]
import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { received } from "../payments.mjs";
import { openProxy } from "../proxy.mjs";

const { PARLEY_URL: url, PARLEY_FACILITATOR: facilitator, PARLEY_PAY_TO: payTo } = process.env;
const [program, ...parameters] = process.argv.slice(2);
const get = async (address) => (await fetch(address)).json();
const { paths } = await get(`${url}/openapi.json`);
const wallets = await get(`${facilitator}/accounts`);

const payee = () => received(facilitator, payTo);
const payers = () => received(facilitator, ...wallets.map(({ address }) => address));

const books = { sum: 0n, lost: 0, transactions: 0, vouchers: 0 };
const proxy = await openProxy(url, async (payment, { request, forward, respond }) => {
  const reply = await forward();
  if (reply.status !== 200) return respond(reply);
  const path = request.url.split("?")[0];
  if (path === "/register/create_account" && books.lost === 0) {
    books.lost++;
    request.socket.destroy();
    return;
  }
  const price = paths[path][request.method.toLowerCase()]["x-payment-info"].protocols[0].x402.amount;
  const { success, transaction, extra } = JSON.parse(Buffer.from(reply.headers["payment-response"], "base64"));
  assert.deepEqual([success, extra?.chargedAmount ?? price], [true, price], `${path}: what was charged`);
  books.sum += BigInt(price);
  if (transaction) books.transactions++;
  else books.vouchers++;
  respond(reply);
});

const before = [await payee(), await payers()];
const [WALLET_ALICE, WALLET_BOB] = wallets.map((wallet) => wallet.private_key);
const env = { ...process.env, PARLEY_URL: proxy.url, WALLET_ALICE, WALLET_BOB };
const child = spawn(program, parameters, { stdio: "inherit", env });
process.on("exit", () => child.kill());
const [status] = await once(child, "exit");
assert.equal(status, 0, program);
assert.equal(books.lost, 1, "the first response with an API key is lost");
assert.ok(books.sum > 0n);
assert.equal((await payee()) - before[0], books.sum, "the payee received exactly the sum of the prices");
assert.equal(before[1] - (await payers()), books.sum, "the wallets paid exactly the sum of the prices");
console.log(
  `two agents, a lost API key back, a message read, a refusal; ${books.transactions} calls paid by a transaction, ${books.vouchers} by a ` +
    `voucher alone; the payee received ${books.sum} atomic units, exactly the prices`,
);
proxy.close();
process.exit();
