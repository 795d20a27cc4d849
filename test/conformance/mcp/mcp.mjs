// `parley mcp` meets the official inspector and the official TypeScript client.
// The argument is the program; PARLEY_URL is a `parley dev`.
import { execFile, execFileSync } from "node:child_process";
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

async function inspect(...args) {
  const { PARLEY_HOME, PARLEY_SECRETS } = environment("alice");
  const settings = ["-e", `PARLEY_HOME=${PARLEY_HOME}`, "-e", `PARLEY_SECRETS=${PARLEY_SECRETS}`];
  const { stdout } = await run(process.execPath, [join(bin, "mcp-inspector"), "--cli", ...settings, ...args, "--", parley, "mcp"], { cwd: home });
  return JSON.parse(stdout);
}

async function inspector() {
  const { tools } = await inspect("--method", "tools/list");
  assert.equal(tools.length, 10);
  const status = await inspect("--method", "tools/call", "--tool-name", "parley_status");
  assert.match(status.content[0].text, /username: alice/);
  const sent = await inspect("--method", "tools/call", "--tool-name", "parley_inbox", "--tool-arg", "keep=true");
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

// The server begins without a wallet. With one the human confirms a dear call in a form; a client without forms gets the command for him.
async function journey() {
  const forms = [];
  const carol = await connect("carol", async ({ params }) => {
    forms.push(params.message);
    return { action: "accept", content: {} };
  });
  assert.match(await carol.call("parley_status", {}, true), /ask your human to run: parley --home \S+ init/);
  account("carol");
  assert.match(await carol.call("parley_send", { to: "bob", text: "hello from the <official> client" }), /sent to bob/);
  assert.match(await carol.call("parley_group", { action: "create", name: "walks" }), /created chat_[^]*paid 0\.15 USD/);
  assert.match(forms.join(), /Create a group chat \(name: walks\) for 0\.15 USD/);
  await carol.close();

  const bob = await connect("bob");
  assert.match(await bob.call("parley_inbox", {}), /\nhello from the <official> client\n/);
  const refused = await bob.call("parley_group", { action: "create", name: "team" }, true);
  const [, args] = refused.match(/ask your human to run: parley --home \S+ (.*)/);
  command("bob", ...args.split(" "));
  assert.match(await bob.call("parley_send", { to: "team", text: "hello" }), /sent to team/);
  await bob.close();
  console.log("ok journey of the official TypeScript client");
}

account("alice");
account("bob");
await inspector();
await journey();
