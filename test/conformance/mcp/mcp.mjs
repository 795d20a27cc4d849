// `parley mcp` meets the official inspector and the official TypeScript client.
// The argument is the program; PARLEY_URL is a `parley dev`.
import { execFile, execFileSync, spawnSync } from "node:child_process";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import assert from "node:assert/strict";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { newFolder } from "../processes.mjs";

const run = promisify(execFile);
const parley = resolve(process.argv[2]);
const bin = new URL("node_modules/.bin/", import.meta.url).pathname;
const home = newFolder();
const environment = (name) => ({ ...process.env, PARLEY_HOME: join(home, name), PARLEY_SECRETS: "file" });
const account = (name, username = name) =>
  execFileSync(parley, ["init", "--server", process.env.PARLEY_URL, "--username", username, "--yes"], { env: environment(name), stdio: ["ignore", "pipe", "inherit"] });
const command = (name, ...args) => execFileSync(parley, args, { env: environment(name), stdio: ["ignore", "pipe", "inherit"] }).toString();

// Runs the command that a result names, as a person does: at a terminal, and says yes.
function atTerminal(name, command) {
  const { CLAUDECODE, CODEX_SANDBOX, CURSOR_AGENT, ...env } = environment(name);
  const person = spawnSync("script", ["-qec", command.replace(/^parley/, parley), "/dev/null"], { env, input: "y\n" });
  assert.equal(person.status, 0, String(person.stdout));
}

async function inspect(...args) {
  const { PARLEY_HOME, PARLEY_SECRETS } = environment("alice");
  const settings = ["-e", `PARLEY_HOME=${PARLEY_HOME}`, "-e", `PARLEY_SECRETS=${PARLEY_SECRETS}`];
  const { stdout } = await run(process.execPath, [join(bin, "mcp-inspector"), "--cli", ...settings, ...args, "--", parley, "mcp"], { cwd: home });
  return JSON.parse(stdout);
}

async function inspector() {
  const { tools } = await inspect("--method", "tools/list");
  assert.equal(tools.length, 12);
  const { resources } = await inspect("--method", "resources/list");
  assert.equal(resources.length, 2);
  const read = await inspect("--method", "resources/read", "--uri", "parley://operations");
  assert.match(read.contents[0].text, /sendPrivateMessage/);
  const status = await inspect("--method", "tools/call", "--tool-name", "parley_status");
  assert.match(status.content[0].text, /account alice/);
  const sent = await inspect("--method", "tools/call", "--tool-name", "parley_inbox", "--tool-arg", "detailed=true");
  assert.match(sent.content[0].text, /paid 0\.001 USD/);
  console.log("ok inspector: lists, reads and calls");
}

async function connect(name, human) {
  const client = new Client({ name: "journey", version: "1" }, { capabilities: human ? { elicitation: {} } : {} });
  if (human) client.setRequestHandler(ElicitRequestSchema, human);
  await client.connect(new StdioClientTransport({ command: parley, args: ["mcp", "--tools", "all"], env: environment(name), stderr: "inherit" }));
  const call = async (tool, args, failed = false) => {
    const result = await client.callTool({ name: tool, arguments: args });
    assert.equal(Boolean(result.isError), failed, `${tool}: ${result.content[0].text}`);
    return result.content[0].text;
  };
  return { call, close: () => client.close() };
}

// A wallet without an account registers through a tool, and the human allows the price in a form. It writes to bob, who meets his limits.
async function journey() {
  assert.throws(() => account("carol", "bob"), { status: 3 }); // the name is taken, so there is a wallet without an account
  const forms = [];
  const carol = await connect("carol", async ({ params }) => {
    forms.push(params.message);
    return { action: "accept", content: { allow: true } };
  });
  assert.match(await carol.call("parley_status", {}), /no account yet: call parley_create/);
  assert.match(await carol.call("parley_create", { kind: "account", name: "carol" }), /account carol created; its API key is stored/);
  assert.match(forms.join(), /costs 0\.99 USD.*create the account carol/);
  command("carol", "contacts", "add", "bob");
  assert.match(await carol.call("parley_send", { to: "bob", text: "hello from the official client" }), /sent to bob/);
  await carol.close();
  assert.equal(JSON.parse(command("carol", "status")).username, "carol");

  const bob = await connect("bob");
  command("bob", "contacts", "trust", "carol");
  assert.match(await bob.call("parley_inbox", {}), /\| hello from the official client/);
  const team = { kind: "group", name: "team" };
  const refused = await bob.call("parley_create", team, true);
  const [, approve] = refused.match(/ask your human to run: (parley wallet approve [^(]+) \(/);
  atTerminal("bob", approve);
  assert.match(await bob.call("parley_create", team), /group team created[^]*paid 0\.15 USD/);
  await bob.close();
  console.log("ok journey of the official TypeScript client");
}

account("alice");
account("bob");
await inspector();
await journey();
