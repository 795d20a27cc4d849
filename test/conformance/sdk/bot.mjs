// Takes the bot of docs/sdk.md from the page, and kills it BOT_KILLS (100) times: before a paid request arrives, when the server has it,
// and after the response. Each job must be one message and one charge.
//
//   go run ./test/conformance/live bin/parley node test/conformance/sdk/bot.mjs ts|python FOLDER PROGRAM [ARGUMENT...]
//
// FOLDER has the generated SDK, and gets the bot, its jobs and its state. PROGRAM runs the bot there.
import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { randomBytes, randomInt } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/client";
import { FileClientChannelStorage } from "@x402/evm/batch-settlement/client/file-storage";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";
import { Agent } from "../agent.mjs";
import { received } from "../payments.mjs";
import { openProxy } from "../proxy.mjs";

const { PARLEY_URL: url, PARLEY_FACILITATOR: facilitator, BOT_KILLS = "100" } = process.env;
const [language, folder, program, ...parameters] = process.argv.slice(2);
const get = async (address) => (await fetch(address)).json();
const wallets = await get(`${facilitator}/accounts`);
const [bot, reader] = wallets.map((wallet) => new Agent(url, wallet));
await bot.register("bot", "Sends a message for each job.");
await reader.register("reader", "Reads them.");

const kills = Number(BOT_KILLS), jobs = Array.from({ length: kills }, (_, id) => ({ id: `${id}`, to: reader.id, text: `job ${id}` }));
let child, serving, dying, deaths = 0, charged = 0, paid, dieAt;
const kill = () => process.kill(-child.pid, "SIGKILL"); // tsx runs the bot in a process of its own
const die = async () => {
  kill();
  await once(child, "exit");
};
async function serve(_, { forward, respond }) {
  if (dying) return; // it died already
  dying = deaths < kills && ++paid === dieAt;
  const phase = dying ? randomInt(4) : -1;
  if (dying) deaths++;
  if (phase === 0) return die();
  const forwarded = forward();
  if (phase === 1) await die();
  const reply = await forwarded;
  if (reply.status === 200 && !reply.headers["idempotent-replayed"]) charged++;
  if (phase === 2) await die();
  if (phase < 1 || phase === 3) respond(reply);
  if (phase === 3) setTimeout(die, randomInt(5));
}
const proxy = await openProxy(url, (...request) => (serving = serve(...request)));
const page = readFileSync(new URL("../../../docs/sdk.md", import.meta.url), "utf8");
const source = page.match(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, "m"))[1].replaceAll("http://127.0.0.1:8402", proxy.url);
writeFileSync(join(folder, language === "ts" ? "bot.ts" : "bot.py"), source);
writeFileSync(join(folder, "jobs.jsonl"), jobs.map((job) => `${JSON.stringify(job)}\n`).join(""));

const balance = () => received(facilitator, wallets[0].address);
const before = await balance();
const salt = `0x${randomBytes(32).toString("hex")}`, env = { ...process.env, WALLET_KEY: wallets[0].private_key, API_KEY: bot.key, SALT: salt };
process.on("exit", () => child?.exitCode === null && child.signalCode === null && kill());
for (let status; status !== 0; await serving) {
  // It dies at a call that leaves a job for each further death.
  [dying, paid, dieAt] = [false, 0, 1 + randomInt(jobs.length - charged - (kills - deaths) + 1)];
  child = spawn(program, parameters, { cwd: folder, stdio: "inherit", env, detached: true });
  let killed;
  [status, killed] = await once(child, "exit");
  assert(status === 0 || killed === "SIGKILL", `the bot ends with ${status}`);
}
assert.equal(deaths, kills, "how often it was killed");

const messages = [];
for (let chat, page = 1; ; page++) {
  chat ??= (await reader.call("GET", "/agent/unread?mark_read=false&page_size=1")).messages[0].source_id;
  const { messages: some } = await reader.call("POST", "/chat/private/messages", { chat_id: chat, n: 250, page });
  if (some.length === 0) break;
  messages.push(...some.map(({ content }) => content));
}
assert.deepEqual(messages.sort(), jobs.map(({ text }) => text).sort(), "each job is one message");
// A refund claims what was charged. If the state of the payment channel was lost, a call with a new one refunds the former.
const { paths } = await get(`${url}/openapi.json`);
const priceOf = (path, method) => BigInt(paths[path][method]["x-payment-info"].protocols[0].x402.amount);
const keyed = (address, options) => fetch(address, { ...options, headers: { ...options?.headers, "X-API-KEY": bot.key } });
const storage = new FileClientChannelStorage({ directory: join(folder, "channels") });
const channels = new BatchSettlementEvmScheme(privateKeyToAccount(wallets[0].private_key), { storage, salt });
const pay = wrapFetchWithPayment(fetch, new x402Client().register("eip155:*", channels));
let due = priceOf("/chat/private/send", "post") * BigInt(jobs.length);
for (let refunded = false, tries = 1; !refunded; tries++) {
  assert(tries < 5, "nothing can be refunded");
  refunded = await channels.refund(`${url}/agent/me`, { fetch: keyed }).then(({ success }) => success, () => false);
  if (!refunded && (await pay(`${url}/agent/me`, { headers: { "X-API-KEY": bot.key } })).ok) due += priceOf("/agent/me", "get");
}
for (let tries = 60; before - (await balance()) !== due && tries > 0; tries--) await sleep(500); // the former is refunded later
assert.equal(before - (await balance()), due, "each job is one charge");
console.log(`ok  the bot in docs/sdk.md (${language}): ${deaths} deaths, ${jobs.length} jobs, messages and charges`);
proxy.close();
process.exit();
