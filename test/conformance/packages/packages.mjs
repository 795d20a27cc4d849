// The packages of a folder, which `make packages` built at least for this platform, meet the tools of their formats.
// Arguments: the folder, and the JSON schema of server.json. Nothing needs the network.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { appendFileSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { Ajv } from "ajv";
import formats from "ajv-formats";

const folder = resolve(process.argv[2]);
const schema = JSON.parse(readFileSync(process.argv[3]));
const platform = `${process.platform}-${process.arch}`;
const work = mkdtempSync(join(tmpdir(), "parley-packages-"));
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
async function handshake(command, args, version) {
  const client = new Client({ name: "packages", version: "1" });
  await client.connect(new StdioClientTransport({ command, args, env: { ...environment, ...wallet }, cwd: work, stderr: "inherit" }));
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
  console.log("ok server.json: valid");
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
  await handshake(process.execPath, [launcher, "mcp"], version);
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

// programs checks the archives, and the lists of what the programs are made of.
function programs({ version }) {
  const unpack = (kind) => {
    const name = `parley-${kind}-${version}-${process.platform}-${process.arch.replace("x64", "amd64")}`;
    execFileSync("tar", ["-xzf", join(folder, `${name}.tar.gz`), "-C", work]);
    const list = json(folder, `${name}.cdx.json`);
    assert.equal(list.bomFormat, "CycloneDX");
    assert.equal(list.metadata.component.version, `v${version}`);
    return { at: join(work, name), program: join(work, name, "parley"), components: list.components };
  };
  const agent = unpack("agent");
  assert.match(execFileSync(agent.program, ["help"], { encoding: "utf8" }), /inbox/);
  assert.notEqual(spawnSync(agent.program, ["serve", "--help"]).status, 0, "the agent's program has the server");

  const { at, program, components } = unpack("server");
  assert.match(execFileSync(program, ["--version"], { encoding: "utf8" }), /^parley \S+ \(commit /);
  assert.match(execFileSync(program, ["serve", "--help"], { encoding: "utf8" }), /--database-url/);
  for (const file of ["LICENSE", "THIRD_PARTY_LICENSES", "README.md", "CHANGELOG.md", "docs/install.md", "docs/haproxy.cfg", "deploy/parley.yaml",
    "deploy/parley.service", "deploy/Caddyfile", "deploy/Dockerfile", "deploy/kubernetes/parley.yaml", "deploy/monitoring/rules.yaml", "deploy/monitoring/dashboard.json"])
    assert.ok(statSync(join(at, file)).size > 0, file);
  const bash = "source deploy/completion/parley.bash && complete -p parley && COMP_LINE='parley mig' COMP_POINT=10 parley";
  const completed = execFileSync("bash", ["--norc", "-c", bash], { cwd: at, encoding: "utf8", env: { PATH: `${at}:${process.env.PATH}` } });
  assert.match(completed, /-C 'parley' parley\nmigrate\n$/);
  // The image has no certificates but those in the program.
  for (const module of ["github.com/jackc/pgx/v5", "github.com/labstack/echo/v4", "golang.org/x/crypto/x509roots/fallback"]) {
    const found = components.find((component) => component.name === module);
    assert.match(found?.hashes[0].content ?? module, /^[0-9a-f]{64}$/);
  }
  assert.ok(!components.some((component) => component.name.includes("golangci")));
  assert.equal(json(folder, `parley-${version}.openvex.json`)["@context"], "https://openvex.dev/ns/v0.2.0");
  console.log(`ok programs: archives, completion, OpenVEX, SBOM of ${components.length} modules`);
}

try {
  sums();
  signature();
  const listing = registry();
  await npm(listing);
  programs(listing);
} finally {
  rmSync(work, { recursive: true });
}
