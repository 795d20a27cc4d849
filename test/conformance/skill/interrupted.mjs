// Loses the responses to commands of the program parley, and kills it. Then the same command is run again, as the skill says.
import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { decodePaymentSignatureHeader } from "@x402/core/http";
import { openProxy } from "./proxy.mjs";

const paths = { send: "/chat/private/send", inbox: "/agent/unread", key: "/agent/rotate_key" };
const messagePrice = 5_000n;
const rounds = Number(process.env.SKILL_KILLS || 200); // how often a process is killed

// Account is an account whose commands pass a proxy, which sees all payments.
class Account {
  plan = []; // the faults of the next paid requests
  signed = new Map(); // what the wallet has signed away: by each payment channel, and by each transfer
  delivered = {}; // how often the server did what a path is for
  charged = 0n; // for that
  refused = 0n; // the prices of calls that the server rejected, for example because the key was replaced meanwhile
  processes = new Set();

  async open({ url, temporary, guide, environmentOf, asPerson }, username) {
    this.guide = guide;
    this.home = join(mkdtempSync(join(temporary, "interrupted-")), "home");
    this.environment = environmentOf(this.home);
    this.proxy = await openProxy(url, (payment, exchange) => this.pay(payment, exchange));
    await this.must("init", "--server", this.proxy.url, "--username", username, "--yes");
    asPerson(this.environment, "parley", "wallet", "limits", "--per-day", "9", "--polls", "5");
    this.id = JSON.parse(await this.must("profile")).agent_id;
    await this.must("contacts", "add", "city_guide");
    return this;
  }

  async pay(payment, exchange) {
    const { accepted, payload } = decodePaymentSignatureHeader(payment);
    const [by, amount] = payload.voucher ? [payload.voucher.channelId, payload.voucher.maxClaimableAmount] : [payment, accepted.amount];
    if (BigInt(amount) > (this.signed.get(by) ?? 0n)) this.signed.set(by, BigInt(amount));
    const path = exchange.request.url.split("?")[0];
    const forward = async () => {
      const reply = await exchange.forward();
      if (reply.status === 200 && !reply.headers["idempotent-replayed"]) {
        this.delivered[path] = (this.delivered[path] ?? 0) + 1;
        this.charged += BigInt(accepted.amount);
      }
      if (reply.status !== 200) this.refused += BigInt(accepted.amount);
      return reply;
    };
    const fault = this.plan.shift();
    if (fault) return fault({ ...exchange, forward }, this);
    exchange.respond(await forward());
  }

  signedAway = () => [...this.signed.values()].reduce((sum, amount) => sum + amount, 0n);

  // start runs a command, and kills it after some milliseconds. It is done if all of its result was printed.
  async start(command, killAfter) {
    const started = spawn("parley", command, { env: this.environment, stdio: ["ignore", "pipe", "pipe"] });
    this.processes.add(started);
    const timer = killAfter === undefined ? undefined : setTimeout(() => started.kill("SIGKILL"), killAfter);
    let [output, errors] = ["", ""];
    started.stdout.on("data", (chunk) => (output += chunk));
    started.stderr.on("data", (chunk) => (errors += chunk));
    const [code, signal] = await new Promise((resolve) => started.on("close", (...ended) => resolve(ended)));
    clearTimeout(timer);
    this.processes.delete(started);
    assert(code === 0 || signal === "SIGKILL", `parley ${command.join(" ")} ended with ${code}: ${errors}`);
    return { output, done: output.endsWith("}\n"), killed: signal === "SIGKILL" };
  }

  async must(...command) {
    const { output, done } = await this.start(command);
    assert(done, `parley ${command.join(" ")} printed ${output}`);
    return output;
  }

  kill() {
    for (const process of this.processes) process.kill("SIGKILL");
  }

  // insist runs a command again and again until it has printed its result. Two of three processes are killed at a random moment.
  async insist(command, onKill) {
    for (;;) {
      const { output, done, killed } = await this.start(command, Math.random() < 0.67 ? Math.random() * 500 : undefined);
      if (killed) onKill();
      if (done) return JSON.parse(output);
    }
  }

  // openCalls returns the number of calls whose outcome is not known.
  openCalls = async () => JSON.parse(await this.must("status")).pending;
}

// Faults. Each is applied to one paid request.
const lose = async ({ request, forward }) => (await forward(), request.socket.destroy());
const drop = async ({ request }) => request.socket.destroy();
const killed = async ({ request, forward }, account) => (await forward(), account.kill(), request.socket.destroy());
const killedBefore = async ({ request }, account) => (account.kill(), request.socket.destroy());
const rejected = (...parameters) => async ({ reject }) => reject(...parameters);

async function guideReads(guide) {
  const contents = [];
  for (;;) {
    const { messages } = await guide.call("GET", "/agent/unread");
    if (messages.length === 0) return contents;
    contents.push(...messages.map(({ content }) => content));
  }
}

// surviveLosses returns how many faults a command survived: each message arrives once and is paid once.
export async function surviveLosses(shared) {
  const account = await new Account().open(shared, "losing");
  const plans = {
    "the response is lost": [lose],
    "the response is lost twice": [lose, lose],
    "the request is lost": [drop],
    "503 payment_unknown": [rejected(503, "payment_unknown", { charged: undefined }), lose],
    "409 payment_in_progress": [rejected(409, "payment_in_progress")],
    "500": [rejected(500, "internal_error", { charged: undefined })],
    "killed after the server has responded": [killed],
    "killed before the server has the request": [killedBefore],
    "killed twice": [killedBefore, killed],
  };
  await guideReads(account.guide);
  for (const [name, plan] of Object.entries(plans)) {
    const [signed, charged] = [account.signedAway(), account.charged];
    account.plan = [...plan];
    const command = ["send", "city_guide", name];
    while (!(await account.start(command)).done);
    assert.deepEqual(account.plan, [], name);
    assert.deepEqual(await guideReads(account.guide), [name], "the message arrives once");
    assert.equal(account.charged - charged, messagePrice, `${name}: what it cost`);
    assert.equal(account.signedAway() - signed, messagePrice, `${name}: what the wallet signed away`);
    assert.equal(await account.openCalls(), 0, `${name}: open calls`);
    console.log(`ok  parley send: ${name}`);
  }
  account.proxy.close();
  return Object.keys(plans).length;
}

// surviveKills lets processes of one account send and poll, and kills them at random moments. Another one replaces the key meanwhile.
export async function surviveKills(shared) {
  const account = await new Account().open(shared, "killed");
  const { guide } = account;
  await guideReads(guide);
  const [begun, sent, texts, got] = [Date.now(), [], [], new Set()];
  let kills = 0;
  const onKill = () => kills++;
  const poll = ({ messages }) => messages.forEach(({ message_id, text }) => got.add(message_id) && texts.push(text));
  const work = {
    send: async (number) => account.insist(["send", "city_guide", `message ${number}`], onKill),
    inbox: async (number) => {
      sent.push(`hello ${number}`);
      await guide.call("POST", "/chat/private/send", { recipient_agent_id: account.id, content: sent.at(-1) });
      poll(await account.insist(["inbox"], onKill));
    },
    key: async () => (await account.must("key", "rotate"), sleep(200)),
  };
  const calls = {};
  await Promise.all(Object.entries(work).map(async ([name, run]) => {
    for (calls[name] = 0; kills < rounds; ) await run(++calls[name]);
  }));
  for (let last; last?.total_unread !== 0 || last.messages.length; ) poll((last = JSON.parse(await account.must("inbox"))));
  const expected = Array.from({ length: calls.send }, (_, i) => `message ${i + 1}`);
  assert.deepEqual((await guideReads(guide)).sort(), expected.sort(), "each message arrives once");
  assert.equal(account.delivered[paths.send], calls.send, "each message is paid once");
  assert.equal(account.delivered[paths.key], calls.key, "each rotation is paid once");
  assert.deepEqual(sent.filter((content) => !texts.includes(content)), [], "no message is lost");
  const notDelivered = account.signedAway() - account.charged;
  assert(notDelivered >= 0n && notDelivered <= account.refused, `the wallet has signed away ${notDelivered} for nothing`);
  assert.equal(await account.openCalls(), 0, "no call stays open");
  account.proxy.close();
  const seconds = Math.round((Date.now() - begun) / 1000);
  const done = `${calls.send} messages, ${calls.inbox} polls and ${calls.key} rotations`;
  console.log(`ok  ${kills} kills of a sender and a poller in ${seconds} s: ${done}, each once`);
  return `${kills} kills of a sender and a poller`;
}
