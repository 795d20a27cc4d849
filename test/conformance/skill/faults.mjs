// Loses the program's responses, and kills it, in each way that the skill promises to survive.
import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, renameSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { decodePaymentRequiredHeader, decodePaymentSignatureHeader, encodePaymentRequiredHeader } from "@x402/core/http";
import { openProxy } from "../proxy.mjs";

// identified checks that a payment has an unguessable identifier of its own.
const identifiers = new Map();
export function identified(payment) {
  const id = decodePaymentSignatureHeader(payment).extensions["payment-identifier"]?.info.id;
  assert.match(id ?? "none", /^[a-zA-Z0-9_-]{32,128}$/, "every payment has a payment identifier");
  assert.equal(identifiers.get(id) ?? payment, payment, "no two payments have one identifier");
  identifiers.set(id, payment);
}

// Faults. Each is applied to one paid request; the program is the process that was started last.
const lose = async ({ request, forward }) => (await forward(), request.socket.destroy());
const killed = async ({ request, forward }, world) => (await forward(), world.kill(), request.socket.destroy());
const killedBefore = async ({ request }, world) => (world.kill(), request.socket.destroy());
const dropped = async ({ request }) => request.socket.destroy();
const unpaid = async ({ forward, respond }) => respond(await forward("payment-signature"));
const rejected = (...parameters) => async ({ reject }) => reject(...parameters);

// startProgram starts the skill's program for one call. finished has its exit code, which is null if it was killed, and what it printed.
export function startProgram([file, ...before], parameters, options) {
  const started = spawn(file, [...before, ...parameters], options);
  const printed = ["", ""];
  for (const [i, stream] of [started.stdout, started.stderr].entries()) stream.on("data", (chunk) => (printed[i] += chunk));
  started.finished = new Promise((resolve) => started.on("close", (code) => resolve({ code, output: printed[0], error: printed[1] })));
  return started;
}

class World {
  plan = []; // the faults of the next paid requests
  payments = []; // of the programs since the last start
  faults = 0;

  constructor(shared) {
    Object.assign(this, shared); // url, directory, environment, program, guide, guideReplies, revenue
    this.state = join(this.directory, "parley-state");
  }

  async open() {
    const onPayment = async (payment, exchange) => {
      this.payments.push(payment);
      identified(payment);
      const fault = this.plan.shift();
      if (fault) await fault(exchange, this);
      else exchange.respond(await exchange.forward());
    };
    const edit = (reply) => {
      if (!this.dear || reply.status !== 402) return;
      const required = decodePaymentRequiredHeader(reply.headers["payment-required"]);
      required.accepts[0].amount = "2000000";
      reply.headers["payment-required"] = encodePaymentRequiredHeader(required);
    };
    this.proxy = await openProxy(this.url, onPayment, edit);
  }

  kill() {
    this.process.kill("SIGKILL");
  }

  get options() {
    return { cwd: this.directory, env: { ...this.environment, PARLEY_URL: this.proxy.url } };
  }

  start(...parameters) {
    this.process = startProgram(this.program.command, parameters, this.options);
    return this.process.finished.then(({ code, output, error }) => ({ code, output: (code === 0 ? output : output + error).trim() }));
  }

  // run starts the program with these faults. It must end with code: null if it is killed.
  async run(plan, code, ...parameters) {
    this.plan = plan;
    this.payments = [];
    const ended = await this.start(...parameters);
    assert.equal(ended.code, code, `${parameters.join(" ")}: ${ended.output}`);
    return ended.output;
  }

  send(content) {
    return ["POST", "/chat/private/send", JSON.stringify({ recipient_agent_id: this.guide.id, content })];
  }

  files(start) {
    return existsSync(this.state) ? readdirSync(this.state).filter((name) => name.startsWith(start) && name.endsWith(".json")) : [];
  }

  // spends checks that the calls cost this many atomic units in total, that the faults happened, and that no call stays open.
  async spends(name, cost, calls) {
    const before = await this.revenue();
    await calls();
    assert.equal((await this.revenue()) - before, cost, `${name}: what it cost`);
    assert.deepEqual(this.plan, [], name);
    assert.deepEqual(this.files("call-"), [], `${name}: open calls`);
    this.faults++;
    console.log(`ok  ${name}`);
  }

  // once checks that the calls cost as much as these messages, and that city_guide receives each of them once.
  async once(name, contents, calls) {
    await this.spends(name, 5_000n * BigInt(contents.length), calls);
    assert.deepEqual((await this.guideReplies()).sort(), contents.sort(), name);
  }
}

async function lostResponses(world) {
  const survives = (name, plan, signatures) =>
    world.once(name, [name], async () => {
      await world.run(plan, 0, ...world.send(name));
      assert.equal(new Set(world.payments).size, signatures, `${name}: ${signatures} payments are signed`);
    });
  await survives("the response is lost", [lose], 1);
  await survives("the response is lost twice", [lose, lose], 1);
  await survives("the response is lost before the server has the request", [dropped], 1);
  await survives("503 payment_unknown", [rejected(503, "payment_unknown", { charged: undefined }), lose], 1);
  await survives("409 payment_in_progress", [rejected(409, "payment_in_progress")], 1);
  await survives("409 proof_required", [rejected(409, "proof_required")], 2);
  await survives("500", [rejected(500, "internal_error", { charged: undefined })], 1);
  await survives("429", [rejected(429, "rate_limited")], 1);
  await survives("402 after a payment", [unpaid], 2);
  await world.once("a price above the limit", [], async () => {
    world.dear = true;
    assert.match(await world.run([], 1, ...world.send("dear")), /LIMIT/);
    assert.deepEqual(world.payments, []);
    world.dear = false;
  });
}

async function kills(world) {
  await world.once("the same IDEMPOTENCY_KEY after the response", ["job"], async () => {
    world.environment.IDEMPOTENCY_KEY = "job-1";
    const sent = await world.run([], 0, ...world.send("job"));
    assert.equal(await world.run([], 0, ...world.send("job")), sent);
    delete world.environment.IDEMPOTENCY_KEY;
  });
  await world.once("killed, then started again", ["killed"], async () => {
    await world.run([killed], null, ...world.send("killed"));
    await world.run([], 0, ...world.send("killed"));
  });
  await world.once("killed, then started with another call", ["interrupted", "next"], async () => {
    await world.run([killedBefore], null, ...world.send("interrupted"));
    await world.run([], 0, ...world.send("next"));
  });
  await world.once("killed, then started with another call, then again", ["between", "repeated"], async () => {
    await world.run([killed], null, ...world.send("repeated"));
    await world.run([], 0, ...world.send("between"));
    await world.run([], 0, ...world.send("repeated"));
  });
  await world.once("killed, and its parent does not notice", ["unnoticed"], async () => {
    const killed = new Promise((resolve) => {
      world.plan = [async ({ request, forward }) => {
        await forward();
        process.kill(Number(readFileSync(join(world.directory, "child"), "utf8")), "SIGKILL");
        resolve(request.socket.destroy());
      }];
    });
    const call = [...world.program.command, ...world.send("unnoticed")];
    const parent = spawn("sh", ["-c", '"$@" & echo $! > child; exec sleep 60', "sh", ...call], { ...world.options, stdio: "ignore" });
    await killed;
    await world.run([], 0, ...world.send("unnoticed"));
    parent.kill("SIGKILL");
  });
  await world.once("killed, and its number is that of another process", ["reused"], async () => {
    await world.run([killed], null, ...world.send("reused"));
    const [open] = world.files("call-");
    const reused = join(world.state, open.replace(/^call-\d+-/, `call-${process.pid}-`));
    renameSync(join(world.state, open), reused);
    const tenMinutesAgo = new Date(Date.now() - 600_000);
    utimesSync(reused, tenMinutesAgo, tenMinutesAgo);
    await world.run([], 0, ...world.send("reused"));
  });
  const { agent_id } = JSON.parse(await world.run([], 0, "GET", "/agent/me"));
  await world.spends("a poll is killed, and another call comes before the next poll", 8_000n, async () => {
    await world.guide.call("POST", "/chat/private/send", { recipient_agent_id: agent_id, content: "not lost" });
    await world.run([killed], null, "GET", "/agent/unread");
    await world.run([], 0, "GET", "/agent/me");
    assert.match(await world.run([], 0, "GET", "/agent/unread"), /not lost/);
    assert.doesNotMatch(await world.run([], 0, "GET", "/agent/unread"), /not lost/);
  });
  await world.spends("two polls at the same moment", 17_000n, async () => {
    const contents = ["one", "two", "three"];
    for (const content of contents) await world.guide.call("POST", "/chat/private/send", { recipient_agent_id: agent_id, content });
    const polls = await Promise.all([world.start("GET", "/agent/unread"), world.start("GET", "/agent/unread")]);
    const got = polls.flatMap(({ output }) => JSON.parse(output).messages.map(({ content }) => content));
    assert.deepEqual(got.sort(), contents.sort(), "each message is returned to one of them");
  });
}

async function credits(world) {
  await world.once("paid, rejected meanwhile, and corrected", ["corrected"], async () => {
    await world.run([rejected(409, "already_member", { charged: true })], 1, ...world.send("rejected"));
    const [payment] = world.payments;
    await world.run([], 1, "POST", "/chat/private/send", '{"recipient_agent_id":"nobody"}');
    await world.run([], 0, ...world.send("corrected"));
    assert.deepEqual(world.payments, [payment]);
  });
  await world.once("one credit and two processes", ["first", "second"], async () => {
    await world.run([rejected(409, "already_member", { charged: true })], 1, ...world.send("rejected"));
    world.payments = [];
    const [first, second] = await Promise.all([world.start(...world.send("first")), world.start(...world.send("second"))]);
    assert(first.code === 0 && second.code === 0, first.output + second.output);
    assert.equal(new Set(world.payments).size, 2);
    assert.deepEqual(world.files("credit-"), []);
  });
  await world.once("a credit that was used already", ["used", "paid anew"], async () => {
    await world.run([rejected(409, "already_member", { charged: true })], 1, ...world.send("rejected"));
    const [credit] = world.files("credit-");
    const copy = join(world.directory, "copy.json");
    copyFileSync(join(world.state, credit), copy);
    await world.run([], 0, ...world.send("used"));
    renameSync(copy, join(world.state, credit));
    await world.run([], 0, ...world.send("paid anew"));
  });
}

// bothLanguages runs the programs in one folder.
async function bothLanguages(world, other) {
  const { program } = world;
  writeFileSync(join(world.directory, other.file), await (await fetch(`${world.url}/${other.file}`)).text());
  await world.once("killed in one language, then started again in the other", ["two languages"], async () => {
    await world.run([killed], null, ...world.send("two languages"));
    world.program = other;
    await world.run([], 0, ...world.send("two languages"));
  });
  await world.spends("killed before it has the new key, then started in the other language", 3_000n, async () => {
    await world.run([killed], null, "POST", "/agent/rotate_key", "{}");
    world.program = program;
    await world.run([], 0, "GET", "/agent/me");
  });
}

async function lostKeys(world) {
  const rotate = ["POST", "/agent/rotate_key", "{}"];
  const me = ["GET", "/agent/me"];
  await world.spends("the response with a new key is lost", 3_000n, async () => {
    await world.run([lose], 0, ...rotate);
    assert.equal(new Set(world.payments).size, 1);
    await world.run([], 0, ...me);
  });
  await world.spends("killed before it has the new key, then started again", 3_000n, async () => {
    await world.run([killed], null, ...rotate);
    await world.run([], 0, ...rotate);
    await world.run([], 0, ...me);
  });
  await world.spends("killed before it has the new key, then started with another call", 3_000n, async () => {
    await world.run([killed], null, ...rotate);
    await world.run([], 0, ...me);
  });
  await world.spends("a call whose key is replaced before its payment arrives", 4_000n, async () => {
    const rotated = async ({ forward, respond }) => {
      const { code, output } = await world.start(...rotate);
      assert.equal(code, 0, output);
      respond(await forward());
    };
    await world.run([rotated], 0, ...me);
    await world.run([], 0, ...me);
  });
  const register = (name) => ["POST", "/register/request_account", JSON.stringify({ requested_username: name })];
  const create = (name, tan) => ["POST", "/register/create_account", JSON.stringify({ username: name, tan, description: "I lose things." })];
  const forget = () => rmSync(world.state, { recursive: true });
  const [forgetful, careless] = ["forgetful", "careless"].map((name) => `${name}_${world.program.name}`);
  await world.spends("both responses of a registration are lost", 1_001_000n, async () => {
    forget();
    const tan = await world.run([lose], 0, ...register(forgetful), "tan");
    await world.run([lose], 0, ...create(forgetful, tan));
    await world.run([], 0, ...me);
  });
  await world.spends("the responses of a registration are lost, and the stored payments too", 1_001_000n, async () => {
    for (const time of [1, 2]) {
      forget();
      assert.match(await world.run([], 0, ...register(careless), "tan"), /^[0-9A-Z]{8}$/, `the TAN, time ${time}`);
    }
    const tan = await world.run([], 0, ...register(careless), "tan");
    for (const time of [1, 2]) {
      forget();
      assert.match(await world.run([], 0, ...create(careless, tan), "api_key"), /^parley_/, `the API key, time ${time}`);
    }
    await world.run([], 0, ...me);
  });
  await world.spends("a key that is lost is 401 invalid_api_key", 0n, async () => {
    forget();
    mkdirSync(world.state);
    writeFileSync(join(world.state, "key-1.json"), JSON.stringify(`parley_${"0".repeat(50)}`));
    assert.match(await world.run([], 1, ...me), /invalid_api_key/);
  });
}

// surviveFaults returns how many faults the program survived.
export async function surviveFaults(shared) {
  const world = new World(shared);
  await world.open();
  await world.guideReplies();
  await lostResponses(world);
  await kills(world);
  await credits(world);
  if (shared.other) await bothLanguages(world, shared.other);
  await lostKeys(world);
  world.proxy.close();
  return world.faults;
}
