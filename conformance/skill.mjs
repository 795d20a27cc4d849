// Follows the agent skill like an agent that reads it for the first time: gets /skill.md from a running server, saves the program,
// runs every command in one shell, and compares the output with the skill (… matches anything). Then loses the program's
// responses in each way that the skill promises to survive.
//
//   go run ./conformance/live bin/parley node conformance/skill.mjs
import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { decodePaymentRequiredHeader, decodePaymentSignatureHeader, encodePaymentRequiredHeader } from "@x402/core/http";
import { Agent } from "./agent.mjs";

const { PARLEY_URL: url, PARLEY_FACILITATOR: facilitator, PARLEY_PAY_TO: payTo } = process.env;
const [agentsWallet, guidesWallet] = await (await fetch(`${facilitator}/accounts`)).json();
const revenue = async () => BigInt((await (await fetch(`${facilitator}/balances/${payTo}`)).json()).balance);

const directory = mkdtempSync(join(tmpdir(), "parley-skill-"));
const environment = {
  ...process.env,
  WALLET_KEY: agentsWallet.private_key,
  ...(Number(process.versions.node.split(".")[0]) < 20 && { NODE_OPTIONS: "--experimental-global-webcrypto" }),
};
delete environment.PARLEY_URL; // the skill sets it

// city_guide is the other agent of the skill. Between the commands it replies to questions about museums.
const guide = new Agent(url, guidesWallet);
async function guideReplies() {
  const { messages } = await guide.call("GET", "/agent/unread");
  for (const message of messages.filter(({ content }) => content.includes("museum"))) {
    await guide.call("POST", "/chat/private/send", { recipient_agent_id: message.sender_id, content: "The tile museum." });
  }
  return messages.map(({ content }) => content);
}

// One shell for the whole skill, so that commands share exported variables.
function openShell() {
  const shell = spawn("bash", { cwd: directory, env: environment, stdio: ["pipe", "pipe", "inherit"] });
  let printed = "";
  shell.stdout.on("data", (chunk) => (printed += chunk));
  shell.stdin.write("exec 2>&1; set -o pipefail\n");
  return {
    async run(commands) {
      printed = "";
      shell.stdin.write(`${commands}\nprintf '\\036%s\\036' $?\n`);
      const deadline = Date.now() + 300_000;
      for (;;) {
        const [, output, code] = printed.match(/^([\s\S]*)\x1e(\d+)\x1e$/) ?? [];
        if (code) return { output: output.trim(), code: Number(code) };
        assert(Date.now() < deadline && shell.exitCode === null, `no end of:\n${commands}\n${printed}`);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    },
    close: () => shell.stdin.end(),
  };
}

// blocks returns the skill's fenced code blocks, each with the text before it.
function blocks(skill) {
  const found = [];
  let end = 0;
  for (const match of skill.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)) {
    found.push({ language: match[1], text: match[2].trim(), before: skill.slice(end, match.index).trim() });
    end = match.index + match[0].length;
  }
  return found;
}

// fits reports whether an output matches the stated one. White space at the ends is ignored.
function fits(output, stated) {
  const pattern = stated.split("…").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("[\\s\\S]*?");
  return new RegExp(`^\\s*${pattern}\\s*$`).test(output);
}

function checkFrontMatter(skill) {
  const front = skill.match(/^---\n([\s\S]*?)\n---\n/)[1];
  const field = (name) => front.match(new RegExp(`^${name}: (.*)$`, "m"))?.[1] ?? "";
  assert.equal(field("name"), "parley", "the skill's name is its folder's");
  assert(field("description").length <= 1024 && /Use when/.test(field("description")), "the description says what and when");
  assert(field("compatibility").length <= 500);
  assert(skill.split("\n").length < 500, "the skill is to be read in one go");
}

async function runCommands(skill) {
  const shell = openShell();
  const list = blocks(skill);
  const wrong = [];
  let commands = 0;
  for (let i = 0; i < list.length; i++) {
    const { language, text, before } = list[i];
    if (language === "js") {
      const [, name] = before.match(/[Ss]ave it as `([\w.]+)`:$/) ?? assert.fail(`which file is this?\n${text}`);
      writeFileSync(join(directory, name), `${text}\n`);
      continue;
    }
    assert.equal(language, "sh", `a block that is neither a command nor what one prints:\n${text}`);
    const next = list[i + 1];
    const stated = next && next.before === "" && ["json", "text"].includes(next.language) ? list[++i].text : undefined;
    const { output, code } = await shell.run(text);
    commands++;
    const failure = stated?.includes('"success":false') && !text.startsWith("curl ");
    assert.equal(code, failure ? 1 : 0, `${text}\nended with ${code}:\n${output}`);
    const right = stated === undefined || fits(output, stated);
    if (!right) wrong.push(`${text}\nprinted\n${output}\nand not\n${stated}`);
    console.log(`${right ? "ok " : "NOT"} ${text.split("\n").at(-1)}`);
    await guideReplies();
  }
  shell.close();
  assert.deepEqual(wrong, []);
  return commands;
}

// identified checks that a payment has an unguessable identifier of its own.
const identifiers = new Map();
function identified(payment) {
  const id = decodePaymentSignatureHeader(payment).extensions["payment-identifier"]?.info.id;
  assert.match(id ?? "none", /^[a-zA-Z0-9_-]{32,128}$/, "every payment has a payment identifier");
  assert.equal(identifiers.get(id) ?? payment, payment, "no two payments have one identifier");
  identifiers.set(id, payment);
}

// openProxy starts a proxy between the program and the server. It applies the next fault of the plan to each paid request.
async function openProxy() {
  const proxy = { plan: [], payments: [] };
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const payment = request.headers["payment-signature"];
    const fault = payment ? proxy.plan.shift() : undefined;
    if (payment) proxy.payments.push(payment);
    if (payment) identified(payment);
    const reject = (status, code, more) => {
      response.writeHead(status, { "Content-Type": "application/json", "Retry-After": "0" });
      response.end(JSON.stringify({ success: false, message: "made up", code, charged: false, request_id: "req_0", ...more }));
    };
    if (typeof fault === "function") return fault(reject, request.socket);
    const headers = { ...request.headers };
    for (const name of ["host", "connection", "content-length"]) delete headers[name];
    if (fault === "reject") delete headers["payment-signature"];
    const forwarded = await fetch(url + request.url, { method: request.method, headers, body: body || undefined });
    const text = await forwarded.text();
    if (fault === "lose") return request.socket.destroy();
    if (fault === "kill") {
      proxy.program.kill("SIGKILL");
      return request.socket.destroy();
    }
    const passed = Object.fromEntries(forwarded.headers);
    for (const name of ["content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive"]) delete passed[name];
    if (proxy.dear && forwarded.status === 402) {
      const required = decodePaymentRequiredHeader(passed["payment-required"]);
      required.accepts[0].amount = "2000000";
      passed["payment-required"] = encodePaymentRequiredHeader(required);
    }
    response.writeHead(forwarded.status, passed);
    response.end(text);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  proxy.run = (...parameters) =>
    new Promise((resolve) => {
      const at = `http://127.0.0.1:${server.address().port}`;
      proxy.payments = [];
      proxy.program = spawn(process.execPath, ["parley.mjs", ...parameters], { cwd: directory, env: { ...environment, PARLEY_URL: at } });
      let output = "";
      proxy.program.stdout.on("data", (chunk) => (output += chunk));
      proxy.program.stderr.on("data", (chunk) => (output += chunk));
      proxy.program.on("close", (code) => resolve({ code, output: output.trim() }));
    });
  proxy.close = () => server.close();
  return proxy;
}

async function loseResponses() {
  const proxy = await openProxy();
  const send = (content) => ["POST", "/chat/private/send", JSON.stringify({ recipient_agent_id: guide.id, content })];
  await guideReplies();
  let faults = 0;
  const survived = (name) => {
    faults++;
    console.log(`ok  ${name}`);
  };
  // once checks that the calls cost as much as these messages, and that city_guide receives each of them once.
  const once = async (name, contents, calls) => {
    const before = await revenue();
    await calls();
    const cost = (await revenue()) - before;
    assert.equal(cost, 5_000n * BigInt(contents.length), `${name}: the calls cost ${cost}`);
    assert.deepEqual(await guideReplies(), contents, name);
    assert.deepEqual(proxy.plan, [], name);
    survived(name);
  };
  const survives = (name, plan, signatures) =>
    once(name, [name], async () => {
      proxy.plan = plan;
      const { code, output } = await proxy.run(...send(name));
      assert.equal(code, 0, `${name}: ${output}`);
      assert.equal(new Set(proxy.payments).size, signatures, `${name}: ${signatures} payments are signed`);
    });
  await survives("the response is lost", ["lose"], 1);
  await survives("the response is lost twice", ["lose", "lose"], 1);
  await survives("the response is lost before the server has the request", [(_, socket) => socket.destroy()], 1);
  await survives("503 payment_unknown", [(reject) => reject(503, "payment_unknown"), "lose"], 1);
  await survives("409 payment_in_progress", [(reject) => reject(409, "payment_in_progress")], 1);
  await survives("409 proof_required", [(reject) => reject(409, "proof_required")], 2);
  await survives("500", [(reject) => reject(500, "internal_error")], 1);
  await survives("429", [(reject) => reject(429, "rate_limited")], 1);
  await survives("402 after a payment", ["reject"], 2);
  await once("killed, then started again", ["killed"], async () => {
    proxy.plan = ["kill"];
    assert.equal((await proxy.run(...send("killed"))).code, null);
    assert.equal((await proxy.run(...send("killed"))).code, 0);
  });
  await once("killed, then started with another call", ["interrupted", "next"], async () => {
    proxy.plan = [(_, socket) => (proxy.program.kill("SIGKILL"), socket.destroy())];
    assert.equal((await proxy.run(...send("interrupted"))).code, null);
    assert.equal((await proxy.run(...send("next"))).code, 0);
  });
  await once("paid, rejected meanwhile, and corrected", ["corrected"], async () => {
    proxy.plan = [(reject) => reject(409, "already_member", { charged: true })];
    const rejected = await proxy.run(...send("rejected"));
    assert.equal(rejected.code, 1, rejected.output);
    const [payment] = proxy.payments;
    const invalid = await proxy.run("POST", "/chat/private/send", '{"recipient_agent_id":"nobody"}');
    assert.equal(invalid.code, 1, invalid.output);
    assert.equal((await proxy.run(...send("corrected"))).code, 0);
    assert.deepEqual(proxy.payments, [payment]);
  });
  await once("a price above the limit", [], async () => {
    proxy.dear = true;
    const { code, output } = await proxy.run(...send("dear"));
    assert(code === 1 && output.includes("LIMIT"), output);
    assert.deepEqual(proxy.payments, []);
    proxy.dear = false;
  });
  // spends checks that the calls cost this many atomic units in total, and that the plan is used up.
  const spends = async (name, cost, calls) => {
    const before = await revenue();
    await calls();
    assert.equal((await revenue()) - before, cost, `${name}: what it cost`);
    assert.deepEqual(proxy.plan, [], name);
    survived(name);
  };
  const succeeds = async (plan, ...parameters) => {
    proxy.plan = plan;
    const { code, output } = await proxy.run(...parameters);
    assert.equal(code, 0, `${parameters.join(" ")}: ${output}`);
    return output;
  };
  await spends("the response with a new key is lost", 3_000n, async () => {
    await succeeds(["lose"], "POST", "/agent/rotate_key", "{}");
    assert.equal(new Set(proxy.payments).size, 1);
    await succeeds([], "GET", "/agent/me");
  });
  await spends("killed before it has the new key, then started again", 3_000n, async () => {
    proxy.plan = ["kill"];
    assert.equal((await proxy.run("POST", "/agent/rotate_key", "{}")).code, null);
    await succeeds([], "POST", "/agent/rotate_key", "{}");
    await succeeds([], "GET", "/agent/me");
  });
  const state = join(directory, "parley-state.json");
  const register = ["POST", "/register/request_account", '{"requested_username":"forgetful"}'];
  const create = (tan) => ["POST", "/register/create_account", JSON.stringify({ username: "forgetful", tan, description: "I lose things." })];
  await spends("both responses of a registration are lost", 1_001_000n, async () => {
    rmSync(state);
    const tan = await succeeds(["lose"], ...register, "tan");
    await succeeds(["lose"], ...create(tan));
    await succeeds([], "GET", "/agent/me");
  });
  await spends("the responses of a registration are lost, and the stored payments too", 1_001_000n, async () => {
    const other = (parameters) => parameters.map((parameter) => parameter.replace("forgetful", "careless"));
    for (const gone of [1, 2]) {
      rmSync(state);
      assert.match(await succeeds([], ...other(register), "tan"), /^[0-9A-Z]{8}$/, `the TAN, time ${gone}`);
    }
    const tan = await succeeds([], ...other(register), "tan");
    for (const gone of [1, 2]) {
      rmSync(state);
      assert.match(await succeeds([], ...other(create(tan)), "api_key"), /^parley_/, `the API key, time ${gone}`);
    }
    await succeeds([], "GET", "/agent/me");
  });
  writeFileSync(state, JSON.stringify({ credit: {}, key: `parley_${"0".repeat(50)}` }));
  const { code, output } = await proxy.run("GET", "/agent/me");
  assert(code === 1 && output.includes("invalid_api_key"), output);
  survived("a key that is lost is 401 invalid_api_key");
  proxy.close();
  return faults;
}

try {
  const skill = await (await fetch(`${url}/skill.md`)).text();
  checkFrontMatter(skill);
  await guide.register("city_guide", "I know every museum in Lisbon.");
  const commands = await runCommands(skill);
  assert(existsSync(join(directory, "parley-state.json")));
  const faults = await loseResponses();
  const { version } = JSON.parse(readFileSync(join(directory, "node_modules/@x402/fetch/package.json"), "utf8"));
  console.log(`TABLE|skill with @x402/fetch|${version}|skills/parley/SKILL.md: ${commands} code blocks run, ${faults} faults survived|0`);
} finally {
  rmSync(directory, { recursive: true, force: true });
}
