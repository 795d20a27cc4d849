// A poller, a sender and a rotation of the API key at the same time, as processes of one agent that are killed again and again.
import { strict as assert } from "node:assert";
import { execFile, spawn } from "node:child_process";
import { copyFileSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { decodePaymentSignatureHeader } from "@x402/core/http";
import { identified } from "./faults.mjs";
import { openProxy } from "../proxy.mjs";

const paths = { poller: "/agent/unread", sender: "/chat/private/send", rotator: "/agent/rotate_key" };
const roles = Object.keys(paths);
const roleOf = (path) => roles.find((role) => paths[role] === path);
const oneOf = (list) => list[Math.floor(Math.random() * list.length)];

// starterOf returns what starts a process of a role, and returns its number and when it ended.
function starterOf({ name, command }, options) {
  if (name === "javascript") {
    return (role) => {
      const worker = spawn(command[0], ["../driver.mjs", role], options);
      return { pid: worker.pid, ended: new Promise((resolve) => worker.on("close", resolve)) };
    };
  }
  const parent = spawn(command[0], ["../driver.py"], { ...options, stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: parent.stdout })[Symbol.asyncIterator]();
  const start = async (role) => {
    parent.stdin.write(`${role}\n`);
    const pid = Number((await lines.next()).value);
    const ended = async () => {
      for (;;) {
        try {
          process.kill(pid, 0);
        } catch {
          return;
        }
        await sleep(2);
      }
    };
    return { pid, get ended() { return ended(); } };
  };
  start.close = () => parent.stdin.end();
  return start;
}

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
  workers = {};
  traps = {}; // of each role: when to kill it
  kills = 0;

  constructor(shared) {
    Object.assign(this, shared); // url, directory, environment, wallet, program, guide, guideReplies, balance
    this.folder = join(this.directory, "together");
    mkdirSync(this.folder);
    const driver = `driver${this.program.file.slice("parley".length)}`;
    copyFileSync(new URL(driver, import.meta.url), join(this.directory, driver));
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
    this.environment = { ...this.environment, PARLEY_URL: this.proxy.url, RECIPIENT: this.guide.id };
    this.start = starterOf(this.program, { cwd: this.folder, env: this.environment, stdio: "inherit" });
  }

  caught(role) {
    const trap = this.traps[role];
    if (!trap || trap.skip-- > 0) return undefined;
    delete this.traps[role];
    return trap;
  }

  async run(...parameters) {
    const [file, name] = this.program.command;
    const { stdout } = await promisify(execFile)(file, [join("..", name), ...parameters], { cwd: this.folder, env: this.environment });
    return stdout.trim();
  }

  async register() {
    const username = `together_${this.program.name}`;
    const tan = await this.run("POST", "/register/request_account", JSON.stringify({ requested_username: username }), "tan");
    await this.run("POST", "/register/create_account", JSON.stringify({ username, tan, description: "I am several." }));
    this.id = await this.run("GET", "/agent/me", "", "agent_id");
  }

  lines(role, word) {
    const lines = readFileSync(join(this.folder, `${role}.log`), "utf8").split("\n");
    return lines.filter((line) => line.startsWith(`${word} `)).map((line) => line.slice(word.length + 1));
  }

  async kill(role) {
    const { pid, ended } = this.workers[role];
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      assert.fail(`the ${role} ended by itself`);
    }
    await ended;
    this.kills++;
  }

  // round kills the process of a role around one of its next payments, and starts it again.
  async round(role) {
    const when = oneOf(["before", "meanwhile", "answered", "responded"]);
    const caught = new Promise((fire) => (this.traps[role] = { when, skip: Math.floor(Math.random() * 3), fire }));
    await Promise.race([caught, sleep(10_000)]);
    delete this.traps[role];
    await this.kill(role);
    this.workers[role] = await this.start(role);
  }

  // finish repeats what the last kills interrupted. It returns the contents of all messages that the agent got.
  async finish() {
    await this.run("GET", "/agent/me");
    const last = Math.max(...this.lines("sender", "begin").map(Number));
    if (!this.lines("sender", "end").includes(String(last))) {
      await this.run("POST", "/chat/private/send", JSON.stringify({ recipient_agent_id: this.guide.id, content: `message ${last}` }));
    }
    const got = this.lines("poller", "got").map((line) => line.split(" ").slice(1).join(" "));
    let unread = 1;
    for (this.polls = 0; this.polls < 4 || unread > 0; this.polls++) { // the first ones return the responses of interrupted polls
      const { messages, total_unread } = JSON.parse(await this.run("GET", "/agent/unread"));
      unread = total_unread - messages.length;
      got.push(...messages.map(({ content }) => content));
    }
    return { last, got };
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
  for (const role of roles) world.workers[role] = await world.start(role);
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
  for (const role of roles) await world.kill(role);
  const seconds = Math.round((Date.now() - begun) / 1000);
  world.start.close?.();
  const { last, got } = await world.finish();

  const few = world.program.rounds / 12;
  for (const role of roles) assert(ledger.delivered(paths[role]) >= few, `the ${role} hardly did anything`);
  assert.deepEqual(roles.flatMap((role) => world.lines(role, "error")), [], "no call fails");
  assert.deepEqual(sent.filter((content) => !got.includes(content)), [], "no message is lost");
  const expected = Array.from({ length: last }, (_, i) => `message ${i + 1}`);
  assert.deepEqual((await guideReads(guide)).sort(), expected.sort(), "each message arrives once");
  assert.equal(ledger.delivered(paths.sender), last, "each message is paid once");
  assert.equal(ledger.delivered(paths.rotator), ledger.keys.size - 1, "each rotation is paid once");
  assert(ledger.delivered(paths.poller) <= Math.max(...world.lines("poller", "begin").map(Number)) + world.polls, "no poll is paid twice");
  assert.equal(before - (await balance(wallet.address)), ledger.charged(), "the wallet paid for the delivered calls, and for nothing else");
  assert.deepEqual(readdirSync(join(world.folder, "parley-state")).filter((name) => /^(call|late)-.*json$/.test(name)), [], "no call stays open");
  world.proxy.close();
  const calls = `${last} messages, ${ledger.delivered(paths.poller)} polls and ${ledger.keys.size - 1} rotations`;
  console.log(`ok  ${world.kills} kills of three processes in ${seconds} s: ${calls}, each once`);
  return `${world.kills} kills of three processes`;
}
