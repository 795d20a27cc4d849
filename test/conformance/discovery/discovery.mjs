// Runs crawlers and skill clients against a running server: @agentcash/discovery, the bazaar validator of @x402/extensions, and
// the skills CLI. Exits with 0 only if none of them reports anything.
//
//   go run ./test/conformance/live bin/parley test/conformance/discovery/node_modules/.bin/node test/conformance/discovery/discovery.mjs
import { strict as assert } from "node:assert";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { validatePaymentRequiredDetailed } from "@agentcash/discovery";
import { decodePaymentRequiredHeader } from "@x402/core/http";
import { extractDiscoveryInfo, validateDiscoveryExtension, validateDiscoveryExtensionSpec } from "@x402/extensions/bazaar";
import { newFolder } from "../processes.mjs";

// While a program runs, connections that the server closes are noticed.
const run = promisify(execFile);
const here = dirname(fileURLToPath(import.meta.url));
const origin = process.env.PARLEY_URL;
const version = (name) => JSON.parse(readFileSync(join(here, "node_modules", name, "package.json"), "utf8")).version;
const table = [];
const done = (tool, what) => {
  console.log(`ok  ${tool}: ${what}`);
  table.push(`TABLE|${tool}|${version(tool)}|${what}|0`);
};

const get = async (url) => {
  const response = await fetch(url);
  assert.equal(response.status, 200, `GET ${url}: ${response.status}, want 200`);
  return response;
};
const contract = await (await get(`${origin}/openapi.json`)).json();
const paid = Object.entries(contract.paths).flatMap(([path, methods]) =>
  Object.entries(methods).filter(([, operation]) => operation["x-payment-info"])
    .map(([method, operation]) => ({ name: `${method.toUpperCase()} ${path}`, method: method.toUpperCase(), path, operation })));
const operations = Object.values(contract.paths).flatMap(Object.keys).length;
assert.ok(paid.length > 0, "the contract has no paid operation");

// @agentcash/discovery, by its command line: the origin, then each paid path.
const agentcash = async (...argv) => {
  const program = join(here, "node_modules/@agentcash/discovery/bin/discovery.js");
  return JSON.parse((await run(process.execPath, [program, ...argv, "--json"], { maxBuffer: 1 << 26 })).stdout);
};
// agentcash warns of more than 40 operations. The warning is about size, not about a fault.
const expected = operations > 40 ? ["L2_ROUTE_COUNT_HIGH"] : [];
const found = await agentcash("discover", origin);
assert.equal(found.ok, true);
assert.equal(found.resources.length, operations, "discover lists every operation");
assert.deepEqual(found.warnings.filter((warning) => !expected.includes(warning.code)), [], "discover has warnings");
assert.ok(found.meta.guidanceTokens > 0, "discover finds no guidance");
for (const { name, method, path, operation } of paid) {
  const checked = await agentcash("check", origin + path);
  assert.deepEqual(checked.warnings, [], `check ${path} has warnings`);
  const [advisory] = checked.advisories.filter((advisory) => advisory.method === method);
  assert.equal(advisory.estimatedPrice, `${operation["x-payment-info"].price.amount} USD`, `the price of ${name}`);
  assert.equal(advisory.authMode, operation.security?.length === 0 ? "paid" : "apiKey+paid", `who may call ${name}`);
}
done("@agentcash/discovery", `discover of the origin with ${operations} operations, check of ${paid.length} paid paths`);

// cut returns an example whose lists have at most so many entries: the catalog entry travels in a header.
const cut = (example, entries) => {
  if (Array.isArray(example)) return example.slice(0, entries).map((entry) => cut(entry, entries));
  if (example === null || typeof example !== "object") return example;
  return Object.fromEntries(Object.entries(example).map(([name, member]) => [name, cut(member, entries)]));
};

// The catalog entry in each 402, validated by x402's own validator and extracted like a facilitator does, with each offer.
const schemes = new Set();
for (const { name, method, path, operation } of paid) {
  const response = await fetch(origin + path, { method });
  assert.equal(response.status, 402, `${name} without payment: ${response.status}, want 402`);
  const required = decodePaymentRequiredHeader(response.headers.get("PAYMENT-REQUIRED"));
  const entry = required.extensions.bazaar;
  for (const validate of [validateDiscoveryExtension, validateDiscoveryExtensionSpec]) {
    assert.deepEqual(validate(entry), { valid: true }, `${validate.name} of ${name}`);
  }
  const offered = operation["x-payment-info"].protocols.map(({ x402 }) => x402.scheme);
  assert.deepEqual(required.accepts.map(({ scheme }) => scheme), offered, `the schemes of ${name} in its 402 and in the contract`);
  for (const accepted of required.accepts) {
    const payload = { x402Version: 2, resource: required.resource, accepted, extensions: required.extensions, payload: {} };
    const listed = extractDiscoveryInfo(payload, accepted);
    assert.equal(listed.resourceUrl, origin + path);
    assert.equal(listed.method, method);
    const { input, output } = listed.discoveryInfo;
    assert.deepEqual(input.body, operation.requestBody?.content["application/json"].example, `the example call of ${name}`);
    assert.deepEqual(Object.keys(input.headers ?? {}), operation.security?.length === 0 ? [] : ["X-API-KEY"], `the headers of ${name}`);
    const { example } = operation.responses["200"].content["application/json"];
    const short = [1, 0].map((entries) => cut(example, entries)).find((one) => Buffer.byteLength(JSON.stringify(one)) <= 500);
    assert.deepEqual(output.example, short, `the example reply of ${name}`);
    schemes.add(accepted.scheme);
  }
  const said = validatePaymentRequiredDetailed(required, { requireInputSchema: true, requireOutputSchema: true });
  assert.deepEqual(said.issues, [], `the 402 of ${name}`);
}
done("@x402/extensions", `bazaar entries of ${paid.length} paid operations: validated, extracted, equal to the contract's examples`);

// The skills CLI installs the skill into an empty home directory, from the server's address and from the repository.
const install = async (source, want, files) => {
  const home = newFolder();
  const project = join(home, "project");
  mkdirSync(project);
  const argv = [join(here, "node_modules/skills/bin/cli.mjs"), "add", source, "--yes", "--agent", "claude-code", "--copy"];
  const env = { PATH: process.env.PATH, HOME: home, DISABLE_TELEMETRY: "1", CI: "1" };
  await run(process.execPath, argv, { cwd: project, env, timeout: 120_000 });
  assert.deepEqual(readdirSync(join(project, ".claude/skills")), ["parley"], `what was installed from ${source}`);
  assert.deepEqual(readdirSync(join(project, ".claude/skills/parley")).sort(), files);
  assert.equal(readFileSync(join(project, ".claude/skills/parley/SKILL.md"), "utf8"), want, `the skill from ${source} differs`);
};
const served = await (await get(`${origin}/skill.md`)).text();
const index = await (await get(`${origin}/.well-known/agent-skills/index.json`)).json();
assert.equal(index.skills[0].digest, `sha256:${createHash("sha256").update(served).digest("hex")}`);
await install(origin, served, ["SKILL.md"]);
const repository = join(here, "../../..");
const authored = readFileSync(join(repository, "skills/parley/SKILL.md"), "utf8");
await install(repository, authored, ["SKILL.md", "parley.mjs", "parley.py"]);
assert.equal(served, authored.replaceAll("https://parley.example", origin), "the served skill is the authored one for this address");
done("skills", "the skill from the server's index and from the repository, byte for byte");

// Links from the documents to this server work.
const llms = await (await get(`${origin}/llms.txt`)).text();
const card = await (await get(`${origin}/.well-known/agent-card.json`)).json();
const skill = await (await get(`${origin}/skill`)).json();
const linked = [...llms.matchAll(/\]\(([^)]+)\)/g)].map(([, url]) => url);
const links = new Set([...linked, card.documentationUrl, `${contract.servers[0].url}/openapi.yaml`]);
for (const url of links) {
  assert.ok(url.startsWith(origin + "/"), `${url} is on this server`);
  await get(url);
}
assert.equal(card.supportedInterfaces[0].url, origin);
// A2A 1.0 requires these fields.
for (const field of ["name", "description", "version", "capabilities", "defaultInputModes", "defaultOutputModes", "skills"]) {
  assert.ok(card[field] && card[field].length !== 0, `the agent card has no ${field}`);
}
assert.deepEqual([...schemes].sort(), ["batch-settlement", "exact"], "parley dev offers both schemes");
assert.match(skill.skill.install.npx, /^npx skills add \S+$/);
console.log(`ok  links: ${links.size} links of llms.txt, the agent card and the contract resolve`);
console.log(table.join("\n"));
