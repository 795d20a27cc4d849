// Follows the part of the skill with the commands of the program parley. The package agent tests their lost responses and kills.
import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { runCommands } from "./text.mjs";

const bin = fileURLToPath(new URL("../../../bin", import.meta.url));
const program = { file: "parley", typed: "", others: [] };

// environmentOf returns the environment of an agent with a folder of its own. The keyring of this machine is not used.
function environmentOf(folder) {
  const { PARLEY_URL, PARLEY_FACILITATOR, PARLEY_PAY_TO, ...environment } = process.env;
  return { ...environment, PATH: `${bin}:${environment.PATH}`, PARLEY_HOME: folder, DBUS_SESSION_BUS_ADDRESS: "unix:path=/nowhere" };
}

// furnish makes what the skill finds: a group chat and a channel of city_guide.
async function furnish(guide) {
  await guide.call("POST", "/chat/group/create", { name: "Lisbon walks", is_discoverable: true });
  const { channel_id } = await guide.call("POST", "/channel/create", { name: "lisbon_events" });
  await guide.call("POST", "/channel/send", { channel_id, content: "Tonight: fado." });
}

// checkServer starts the MCP server. test/conformance/mcp does the rest.
async function checkServer(environment) {
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "skill", version: "1" } };
  const server = spawn(join(bin, "parley"), ["mcp"], { env: environment, stdio: ["pipe", "pipe", "inherit"] });
  server.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id: 1, method: "initialize", params })}\n`);
  for await (const line of createInterface({ input: server.stdout })) {
    assert.equal(JSON.parse(line).result.serverInfo.name, "parley");
    server.stdin.end();
    return;
  }
  assert.fail("the MCP server ended");
}

// followCommands returns a line of the table of results.
export async function followCommands(part, { temporary, guide, guideReplies }) {
  const directory = mkdtempSync(join(temporary, "commands-"));
  const environment = environmentOf(join(directory, "home"));
  await furnish(guide);
  const commands = await runCommands(part, { directory, environment, program, between: guideReplies });
  await checkServer(environment);
  return `TABLE|commands of the skill|-|skills/parley: ${commands} code blocks run|0`;
}
