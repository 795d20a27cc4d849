// The packages of a folder, which `make packages` or internal/packages built at least for this platform, meet the tools of their formats.
// Arguments: the folder, and the JSON schema of server.json. Nothing needs the network.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { appendFileSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { getMcpConfigForManifest } from "@anthropic-ai/mcpb";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { Ajv } from "ajv";
import formats from "ajv-formats";

const folder = resolve(process.argv[2]);
const schema = JSON.parse(readFileSync(process.argv[3]));
const platform = `${process.platform}-${process.arch}`;
const suffix = process.platform === "win32" ? ".exe" : "";
const work = mkdtempSync(join(tmpdir(), "parley-packages-"));
const cli = new URL("node_modules/@anthropic-ai/mcpb/dist/cli/cli.js", import.meta.url).pathname;
const mcpb = (...args) => execFileSync(process.execPath, [cli, ...args], { encoding: "utf8", cwd: work });
const json = (...path) => JSON.parse(readFileSync(join(...path)));
const hash = (file) => createHash("sha256").update(readFileSync(file)).digest("hex");

// A wallet that holds nothing, in a folder of its own, and a server that does not exist.
const environment = {
  ...process.env,
  PARLEY_HOME: join(work, "home"),
  PARLEY_SECRETS: "file",
  PARLEY_SERVER: "http://127.0.0.1:1",
  npm_config_offline: "true",
  npm_config_cache: join(work, "cache"),
  npm_config_loglevel: "error",
  npm_config_update_notifier: "false",
};
const wallet = { PARLEY_WALLET_KEY: "7".padStart(64, "0") };

// handshake starts an MCP server, and checks its name, its version and its list of tools.
async function handshake(command, args, env, version) {
  const client = new Client({ name: "packages", version: "1" });
  await client.connect(new StdioClientTransport({ command, args, env: { ...environment, ...env, ...wallet }, cwd: work, stderr: "inherit" }));
  assert.deepEqual(client.getServerVersion(), { name: "parley", title: "Parley", version });
  const { tools } = await client.listTools();
  assert.equal(tools.length, 10);
  assert.ok(tools.some((tool) => tool.name === "parley_send"));
  await client.close();
}

function sums() {
  const lines = readFileSync(join(folder, "SHA256SUMS"), "utf8").trimEnd().split("\n");
  for (const line of lines) assert.equal(line, `${hash(join(folder, line.slice(66)))}  ${line.slice(66)}`);
  console.log(`ok SHA256SUMS: ${lines.length} files`);
}

// signature signs with a throwaway key, as a release does, and checks the signature with the command of docs/install.md.
function signature() {
  const at = join(work, "signed");
  mkdirSync(at);
  copyFileSync(join(folder, "SHA256SUMS"), join(at, "SHA256SUMS"));
  const keys = ["release", "other"].map((name) => {
    execFileSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", join(work, name)]);
    return `parley ${readFileSync(join(work, `${name}.pub`))}`;
  });
  const sign = () => spawnSync("make", ["sign", `FOLDER=${at}`, `SIGNERS=${join(at, "release_signers")}`, `SIGNING_KEY=${join(work, "release")}`]);
  const [, command] = /```sh\n(.*ssh-keygen -Y verify.*)\n/.exec(readFileSync("docs/install.md", "utf8"));
  const verify = () => spawnSync("sh", ["-c", command], { cwd: at }).status === 0;

  writeFileSync(join(at, "release_signers"), keys[1]);
  assert.notEqual(sign().status, 0, "a key that is not listed signs a release");
  assert.ok(!verify(), "the command of docs/install.md accepts a key that is not listed");
  writeFileSync(join(at, "release_signers"), keys[0]);
  const signed = sign();
  assert.equal(signed.status, 0, `${signed.stderr}`);
  assert.ok(verify(), `${command} fails`);
  appendFileSync(join(at, "SHA256SUMS"), "\n");
  assert.ok(!verify(), "the command of docs/install.md accepts other sums");
  console.log("ok signature: made by a listed key, of these sums");
}

function registry() {
  const listing = json(folder, "server.json");
  const ajv = formats.default(new Ajv({ strict: false, allErrors: true }));
  const valid = ajv.compile(schema);
  assert.equal(schema.$id, listing.$schema);
  assert.ok(valid(listing), ajv.errorsText(valid.errors));
  assert.ok(!valid({ ...listing, description: "x".repeat(101) }), "the schema accepts anything");
  const [npm, ...bundles] = listing.packages;
  assert.equal(npm.registryType, "npm");
  assert.ok(bundles.length > 0);
  for (const bundle of bundles) {
    assert.equal(bundle.registryType, "mcpb");
    assert.ok(bundle.identifier.startsWith(`https://github.com/parley-chat/parley/releases/download/v${listing.version}/`));
    assert.equal(bundle.fileSha256, hash(join(folder, bundle.identifier.split("/").at(-1))));
  }
  console.log(`ok server.json: valid, with ${bundles.length} bundles`);
  return listing;
}

async function npm(listing) {
  const { version } = listing;
  const tarball = (name) => join(folder, `${name}-${version}.tgz`);
  const at = join(work, "npm");
  mkdirSync(at);
  writeFileSync(join(at, "package.json"), "{}");
  const install = ["install", "--no-audit", "--no-fund", tarball("parley-chat-parley"), tarball(`parley-chat-parley-${platform}`)];
  execFileSync("npm", install, { cwd: at, env: environment, stdio: ["ignore", "ignore", "inherit"] });
  const main = join(at, "node_modules/@parley-chat/parley");
  const program = join(at, `node_modules/@parley-chat/parley-${platform}`);
  const description = json(main, "package.json");
  assert.equal(description.mcpName, listing.name);
  assert.equal(description.name, listing.packages[0].identifier);
  for (const one of [description, json(program, "package.json")]) {
    assert.equal(one.version, version);
    assert.equal(one.scripts, undefined);
  }
  for (const other of Object.values(description.optionalDependencies)) assert.equal(other, version);
  for (const file of [join(main, "LICENSE"), join(program, "LICENSE"), join(program, "THIRD_PARTY_LICENSES")]) assert.ok(statSync(file).size > 0);

  const npx = (...args) => spawnSync("npx", ["--no-install", "parley", ...args], { cwd: at, env: environment, encoding: "utf8" });
  assert.match(npx("--version").stdout, new RegExp(`^parley ${version} \\(commit [0-9a-f]{40}(-dirty)? of 20\\S+Z\\)\n$`));
  const status = npx("status");
  assert.equal(status.status, 4, status.stderr);
  assert.equal(JSON.parse(status.stderr).code, "no_account");
  const launcher = join(main, "bin/parley.js");
  await handshake(process.execPath, [launcher, "mcp"], {}, version);
  await stops(launcher);
  renameSync(program, program + "-away");
  const missing = spawnSync(process.execPath, [launcher, "--version"], { encoding: "utf8" });
  assert.equal(missing.status, 1);
  assert.match(missing.stderr, /--omit=optional/);
  console.log(`ok npm ${execFileSync("npm", ["--version"], { encoding: "utf8" }).trim()}: install offline, npx, exit codes, signals, MCP`);
}

// stops checks that the launcher hands on SIGTERM: the program ends, and with it the pipe that both write to.
async function stops(launcher) {
  const child = spawn(process.execPath, [launcher, "mcp"], { env: { ...environment, ...wallet }, stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
  await new Promise((done) => child.stdout.once("data", done));
  const ended = new Promise((done) => child.once("close", done));
  child.kill("SIGTERM");
  assert.equal(await Promise.race([ended, new Promise((done) => setTimeout(done, 10_000, "still runs after ten seconds").unref())]), 0);
}

async function bundle(listing) {
  const file = join(folder, `parley-${platform}.mcpb`);
  const at = join(work, "bundle");
  mcpb("info", file);
  mcpb("unpack", file, at);
  mcpb("validate", join(at, "manifest.json"));
  mcpb("pack", at, join(work, "packed.mcpb"));
  const manifest = json(at, "manifest.json");
  assert.equal(json(folder, `parley-${platform}${suffix}.cdx.json`).metadata.component.version, listing.version);
  assert.equal(manifest.manifest_version, "0.3");
  assert.equal(manifest.version, listing.version);
  assert.deepEqual(manifest.compatibility.platforms, [process.platform]);
  for (const name of ["LICENSE", "THIRD_PARTY_LICENSES"]) assert.ok(statSync(join(at, name)).size > 0);
  writeFileSync(join(at, "wrong.json"), JSON.stringify({ ...manifest, server: { ...manifest.server, type: "program" } }));
  assert.throws(() => mcpb("validate", join(at, "wrong.json")), "mcpb accepts a wrong type of server");
  // What a client runs if its user sets nothing.
  const quiet = { manifest, extensionPath: at, systemDirs: {}, userConfig: {}, pathSeparator: "/" };
  const { command, args, env } = await getMcpConfigForManifest(quiet);
  assert.equal(command, join(at, manifest.server.entry_point));
  assert.equal(command, join(at, "server", "parley" + suffix));
  assert.deepEqual(env, { PARLEY_HOME: "" });
  await handshake(command, args, { ...env, HOME: work, XDG_CONFIG_HOME: work }, listing.version);
  console.log("ok mcpb: info, unpack, validate, pack, MCP");
}

// server checks the archive, and the list of what the program is made of.
function server({ version }) {
  const name = `parley-server-${version}-${process.platform}-${process.arch.replace("x64", "amd64")}`;
  execFileSync("tar", ["-xzf", join(folder, `${name}.tar.gz`), "-C", work]);
  const program = join(work, name, "parley");
  assert.match(execFileSync(program, ["--version"], { encoding: "utf8" }), /^parley \S+ \(commit /);
  assert.match(execFileSync(program, ["serve", "--help"], { encoding: "utf8" }), /--database-url/);
  for (const file of ["LICENSE", "docs/install.md", "deploy/parley.yaml", "deploy/parley.service", "deploy/kubernetes/parley.yaml"])
    assert.ok(statSync(join(work, name, file)).size > 0, file);
  const bash = `source ${name}/completion/parley.bash && complete -p parley && COMP_LINE='parley mig' COMP_POINT=10 parley`;
  const completed = execFileSync("bash", ["--norc", "-c", bash], { cwd: work, encoding: "utf8", env: { PATH: `${join(work, name)}:${process.env.PATH}` } });
  assert.match(completed, /-C 'parley' parley\nmigrate\n$/);
  const list = json(folder, `${name}.cdx.json`);
  assert.equal(list.bomFormat, "CycloneDX");
  assert.equal(list.metadata.component.version, version);
  for (const module of ["github.com/jackc/pgx/v5", "github.com/labstack/echo/v4"]) {
    const found = list.components.find((component) => component.name === module);
    assert.match(found.hashes[0].content, /^[0-9a-f]{64}$/);
  }
  assert.ok(!list.components.some((component) => component.name.includes("golangci")));
  assert.equal(json(folder, `parley-${version}.openvex.json`)["@context"], "https://openvex.dev/ns/v0.2.0");
  console.log(`ok server: archive, completion, OpenVEX, SBOM of ${list.components.length} modules`);
}

try {
  sums();
  signature();
  const listing = registry();
  await npm(listing);
  await bundle(listing);
  server(listing);
} finally {
  rmSync(work, { recursive: true });
}
