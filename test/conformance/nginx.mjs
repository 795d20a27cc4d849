// Debian's nginx with nothing but proxy_pass before a server: its buffer for the header of a response has 4,096 bytes. The official client
// pays through it, and each price passes.
//
//   go run ./test/conformance/live bin/parley node test/conformance/nginx.mjs
import { strict as assert } from "node:assert";
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { Agent } from "./agent.mjs";
import { Program, freePort, newFolder, until } from "./processes.mjs";

const { PARLEY_URL: server, PARLEY_FACILITATOR: facilitator } = process.env;
const folder = newFolder();

// The control: a header that is too long for nginx.
const long = createServer((_, response) => response.writeHead(402, { "X-Long": "x".repeat(4000) }).end());
await new Promise((resolve) => long.listen(0, "127.0.0.1", resolve));

const proxies = [server, `http://127.0.0.1:${long.address().port}`];
const ports = [await freePort(), await freePort()];
const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${join(folder, name)};`);
for (const line of temporary) mkdirSync(line.split(" ")[1].slice(0, -1));
writeFileSync(join(folder, "nginx.conf"), `
  daemon off; master_process off; pid ${join(folder, "pid")}; error_log stderr; events {}
  http {
    access_log off; ${temporary.join(" ")}
    ${proxies.map((url, i) => `server { listen 127.0.0.1:${ports[i]}; location / { proxy_pass ${url}; } }`).join("\n")}
  }`);
const nginx = new Program("nginx", ["-e", "stderr", "-c", join(folder, "nginx.conf")]);
const [url, control] = ports.map((port) => `http://127.0.0.1:${port}`);
await until("nginx listens", () => nginx.gone || fetch(`${url}/health`).then((response) => response.ok, () => false), 30_000);
assert.ok(!nginx.gone, nginx.log);
assert.equal((await fetch(control)).status, 502, "nginx refuses a header that is too long");

const contract = await (await fetch(`${url}/openapi.json`)).json();
let prices = 0;
for (const [path, methods] of Object.entries(contract.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    if (!operation["x-payment-info"]) continue;
    const { status } = await fetch(url + path, { method });
    assert.equal(status, 402, `the price of ${method} ${path}\n${nginx.log}`);
    prices++;
  }
}
const wallets = await (await fetch(`${facilitator}/accounts`)).json();
const agent = new Agent(url, wallets[0]);
await agent.register("behind_nginx", "An agent that calls through nginx.");
const { chat_id } = await agent.call("POST", "/chat/group/create", { name: "Behind nginx" });
await agent.call("POST", "/chat/group/edit", { chat_id, description: "All of it passes." });
assert.equal((await agent.call("POST", "/chat/group/info", { chat_id })).description, "All of it passes.");
assert.equal((await agent.call("GET", "/agent/unread?wait=1")).total_unread, 0);

const version = spawnSync("nginx", ["-v"], { encoding: "utf8" }).stderr.match(/nginx\/(\S+)/)[1];
console.log(`TABLE|nginx|${version}|proxy_pass alone: prices of ${prices} operations, and calls that the official client pays|0`);
await nginx.stop();
process.exit(0);
