// A poller, a sender and a rotation of the API key at the same time, as processes of one agent that are killed again and again.
import { strict as assert } from "node:assert";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { decodePaymentSignatureHeader } from "@x402/core/http";
import { identified, startProgram } from "./faults.mjs";
import { openProxy } from "../proxy.mjs";

const paths = { poller: "/agent/unread", sender: "/chat/private/send", rotator: "/agent/rotate_key" };
const roles = Object.keys(paths);
const roleOf = (path) => roles.find((role) => paths[role] === path);
const oneOf = (list) => list[Math.floor(Math.random() * list.length)];

// What a role calls again and again. A number is in use until its call has ended.
const calls = {
  poller: () => ["GET", "/agent/unread"],
  sender: (guide, number) => ["POST", "/chat/private/send", JSON.stringify({ recipient_agent_id: guide, content: `message ${number}` })],
  rotator: () => ["POST", "/agent/rotate_key", "{}"],
};

// Ledger records what the server did with each payment that passed the proxy.
class Ledger {
  payments = new Map();
  keys = new Set();

  record(payment, path, { status, headers, text }) {
    if (headers["idempotent-replayed"]) return; // not charged: the response of an earlier request, perhaps of another payment
    const { charged, api_key } = JSON.parse(text);
    const entry = this.payments.get(payment) ?? { path, value: BigInt(decodePaymentSignatureHeader(payment).payload.authorization.value) };
    entry.delivered ||= status === 200;
    entry.charged ||= status === 200 || charged === true;
    this.payments.set(payment, entry);
    if (api_key) this.keys.add(api_key);
  }

  delivered = (path) => [...this.payments.values()].filter((entry) => entry.delivered && entry.path === path).length;
  charged = () => [...this.payments.values()].filter(({ charged }) => charged).reduce((sum, { value }) => sum + value, 0n);
}

class Together {
  ledger = new Ledger();
  workers = {}; // of each role: the process of its call
  traps = {}; // of each role: when to kill it
  numbers = { poller: 1, sender: 1, rotator: 1 };
  kills = 0;
  got = []; // contents of the messages that the poller got
  errors = [];

  constructor(shared) {
    Object.assign(this, shared); // url, directory, environment, wallet, program, guide, guideReplies, balance
    this.folder = join(this.directory, "together");
    mkdirSync(this.folder);
  }

  async open() {
    this.proxy = await openProxy(this.url, async (payment, { request, forward, respond }) => {
      identified(payment);
      const path = request.url.split("?")[0];
      const trap = this.caught(roleOf(path));
      if (trap?.when === "before") return trap.fire(), request.socket.destroy();
      if (trap?.when === "meanwhile") setTimeout(trap.fire, Math.random() * 100);
      const reply = await forward();
      this.ledger.record(payment, path, reply);
      if (trap?.when === "answered") return trap.fire(), request.socket.destroy();
      respond(reply);
      if (trap) setTimeout(trap.fire, Math.random() * 10);
    });
    this.environment = { ...this.environment, PARLEY_URL: this.proxy.url };
  }

  caught(role) {
    const trap = this.traps[role];
    if (!trap || trap.skip-- > 0) return undefined;
    delete this.traps[role];
    return trap;
  }

  start(...parameters) {
    const [file, name] = this.program.command;
    return startProgram([file, join("..", name)], parameters, { cwd: this.folder, env: this.environment });
  }

  async run(...parameters) {
    const { code, output, error } = await this.start(...parameters).finished;
    assert.equal(code, 0, error);
    return output.trim();
  }

  // work makes the calls of a role. A call is made again if its process was killed before it printed the response.
  async work(role) {
    while (!this.ending) {
      const number = this.numbers[role];
      this.workers[role] = this.start(...calls[role](this.guide.id, number));
      const { code, output, error } = await this.workers[role].finished;
      if (code) this.errors.push(error);
      if (code === null && !output.endsWith("\n")) continue;
      this.numbers[role]++;
      if (role === "poller") this.got.push(...JSON.parse(output).messages.map(({ content }) => content));
      await sleep(role === "rotator" ? 250 : 25);
    }
  }

  async register() {
    const username = `together_${this.program.name}`;
    const tan = await this.run("POST", "/register/request_account", JSON.stringify({ requested_username: username }), "tan");
    await this.run("POST", "/register/create_account", JSON.stringify({ username, tan, description: "I am several." }));
    this.id = await this.run("GET", "/agent/me", "", "agent_id");
  }

  // round kills the process of a role around one of its next payments.
  async round(role) {
    const when = oneOf(["before", "meanwhile", "answered", "responded"]);
    const caught = new Promise((fire) => (this.traps[role] = { when, skip: Math.floor(Math.random() * 2), fire }));
    await Promise.race([caught, sleep(10_000)]);
    delete this.traps[role];
    if (this.workers[role].kill("SIGKILL")) this.kills++;
  }

  // finish ends the work in the middle of calls and repeats what that interrupted. It returns the number of the last message and of polls.
  async finish(work) {
    this.ending = true;
    for (const role of roles) this.workers[role].kill("SIGKILL");
    await work;
    const interrupted = this.numbers.sender;
    await this.run("GET", "/agent/me");
    await this.run(...calls.sender(this.guide.id, interrupted));
    let [polls, unread] = [0, 1];
    for (; polls < 4 || unread > 0; polls++) { // the first ones return the responses of interrupted polls
      const { messages, total_unread } = JSON.parse(await this.run("GET", "/agent/unread"));
      unread = total_unread - messages.length;
      this.got.push(...messages.map(({ content }) => content));
    }
    return { last: interrupted, polls };
  }
}

async function guideReads(guide) {
  const contents = [];
  for (;;) {
    const { messages } = await guide.call("GET", "/agent/unread");
    if (messages.length === 0) return contents;
    contents.push(...messages.map(({ content }) => content));
  }
}

// surviveTogether returns what the processes survived.
export async function surviveTogether(shared) {
  const world = new Together(shared);
  const { guide, ledger, wallet, balance } = world;
  await guideReads(guide);
  const before = await balance(wallet.address);
  await world.open();
  await world.register();
  const work = Promise.all(roles.map((role) => world.work(role)));
  const sent = [];
  const begun = Date.now();
  let { rounds } = world.program;
  const greet = async () => {
    sent.push(`hello ${sent.length + 1}`);
    await guide.call("POST", "/chat/private/send", { recipient_agent_id: world.id, content: sent.at(-1) });
  };
  await Promise.all(roles.map(async (role) => {
    for (; rounds > 0; rounds--) await Promise.all([world.round(role), greet()]);
  }));
  const seconds = Math.round((Date.now() - begun) / 1000);
  const { last, polls } = await world.finish(work);

  const few = world.program.rounds / 12;
  for (const role of roles) assert(ledger.delivered(paths[role]) >= few, `the ${role} hardly did anything`);
  assert.deepEqual(world.errors, [], "no call fails");
  assert.deepEqual(sent.filter((content) => !world.got.includes(content)), [], "no message is lost");
  const expected = Array.from({ length: last }, (_, i) => `message ${i + 1}`);
  assert.deepEqual((await guideReads(guide)).sort(), expected.sort(), "each message arrives once");
  assert.equal(ledger.delivered(paths.sender), last, "each message is paid once");
  assert.equal(ledger.delivered(paths.rotator), ledger.keys.size - 1, "each rotation is paid once");
  assert(ledger.delivered(paths.poller) <= world.numbers.poller + polls, "no poll is paid twice");
  assert.equal(before - (await balance(wallet.address)), ledger.charged(), "the wallet paid for the delivered calls, and for nothing else");
  assert.deepEqual(readdirSync(join(world.folder, "parley-state")).filter((name) => /^(call|late)-.*json$/.test(name)), [], "no call stays open");
  world.proxy.close();
  const calls = `${last} messages, ${ledger.delivered(paths.poller)} polls and ${ledger.keys.size - 1} rotations`;
  console.log(`ok  ${world.kills} kills of three processes in ${seconds} s: ${calls}, each once`);
  return `${world.kills} kills of three processes`;
}
