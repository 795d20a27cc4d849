// Follows docs/install.md, "Debian, in ten minutes", to the letter on a bare Debian: the commands are read from the document. It then
// pays through Caddy with the official client, upgrades while calls arrive, removes and purges. Needs root; see machine.mjs.
//
//   node test/conformance/install/install.mjs bin/install-test bookworm
//
// Play money takes the place of facilitator and blockchain, localhost that of the domain, and Caddy's own authority that of a public one.
import { strict as assert } from "node:assert";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { image } from "./image.mjs";
import { Machine, run } from "./machine.mjs";
import { proxies } from "./proxies.mjs";

const [packages, suite] = [resolve(process.argv[2]), process.argv[3]];
const repository = fileURLToPath(new URL("../../..", import.meta.url));
const AUTHORITY = "/var/lib/caddy/.local/share/caddy/pki/authorities/local/root.crt";
const PAYEE = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C";

// steps are the commands of the document, one text for each block.
function steps() {
  const document = readFileSync(join(repository, "docs/install.md"), "utf8");
  const section = document.split("## Debian, in ten minutes\n")[1].split("\n## ")[0];
  const blocks = [...section.matchAll(/^ {3}```sh\n([\s\S]*?)^ {3}```$/gm)].map((match) => match[1].replace(/^ {3}/gm, ""));
  const replaced = new Set();
  const replacements = {
    "parley.example": "localhost",
    '"0x…"': `"${PAYEE}"\nnetwork: eip155:84532`,
    "https://facilitator.example": "http://127.0.0.1:8403",
    "https://rpc.example": "http://127.0.0.1:8403/rpc",
  };
  const here = blocks.map((block) => {
    for (const [from, to] of Object.entries(replacements)) {
      if (block.includes(from)) replaced.add(from);
      block = block.replaceAll(from, to);
    }
    return block;
  });
  assert.equal(replaced.size, Object.keys(replacements).length, `the document has only ${[...replaced]}`);
  return here;
}

const work = mkdtempSync(join(tmpdir(), "parley-install-"));
const deb = join(packages, readdirSync(packages).find((name) => /^parley_.*\.deb$/.test(name)));
const machine = new Machine(suite, ["postgresql", "caddy", "nginx", "crun"]);
const ok = (text) => console.log(`ok  ${suite}: ${text}`);
const pid = () => machine.sh("systemctl show --property=MainPID --value parley");

// network starts the play-money network, with the program of the package.
function network() {
  run("dpkg-deb", ["-x", deb, work]);
  machine.put(join(work, "usr/bin/parley"), "/opt/devnet");
  machine.sh("chmod 755 /opt/devnet && systemd-run --quiet --unit=devnet /opt/devnet devnet --data /var/lib/devnet");
}

// follow runs the document's commands. Behind the first ones the package is installed, and nothing runs.
function follow() {
  const name = deb.split("/").at(-1);
  machine.put(deb, `/root/${name.replace(/_[^_]*\.deb$/, "_amd64.deb")}`);
  const [install, ...others] = steps();
  assert.ok(others.length >= 5, "the document has fewer steps");
  machine.sh(install);
  assert.notEqual(machine.try("systemctl is-active parley").status, 0, "the package starts a server that is not configured");
  assert.notEqual(machine.try("systemctl is-enabled parley").status, 0);
  const access = machine.sh("cd /etc/parley && stat -c '%a %U %G' . parley.yaml credentials");
  assert.equal(access, "750 root parley\n640 root parley\n700 root root");
  for (const commands of others) {
    // Programs on the machine trust public authorities; here Caddy's own takes their place.
    const checks = commands.includes("parley check");
    if (checks) machine.sh(`for i in $(seq 60); do cp ${AUTHORITY} /tmp/ && chmod 644 /tmp/root.crt && exit; sleep 0.5; done; exit 1`);
    const output = machine.sh(checks ? `export SSL_CERT_FILE=/tmp/root.crt\n${commands}` : commands);
    if (checks) console.log(output);
  }
  ok(`${others.length + 1} blocks of commands of the document`);
}

// inspect checks how the server runs.
function inspect() {
  assert.equal(machine.sh("systemctl is-active parley"), "active");
  assert.equal(machine.sh(`ps -o user= -p ${pid()}`), "parley");
  assert.equal(machine.sh(`stat -c %a /etc/parley/parley.yaml`), "640");
  machine.sh("systemd-analyze verify parley.service");
  const exposure = machine.sh("systemd-analyze security --threshold=20 parley.service").split("\n").at(-1);
  const journal = machine.sh("journalctl --unit parley --output cat");
  assert.match(journal, /ready https:\/\/localhost/);
  assert.match(machine.sh("journalctl --unit parley --output cat --grep migrations"), /the schema is up to date; migrations run: [1-9]/);
  ok(exposure.replace(/^\W*|\W*$/g, ""));
}

// pay runs the journey of the official client through Caddy, whose authority it trusts.
async function pay() {
  const authority = join(work, "root.crt");
  machine.get(AUTHORITY, authority);
  await node([join(repository, "test/conformance/journey.mjs")], authority);
  ok("two agents pay with the official client through Caddy");
}

// node runs a program with the network of the machine and returns its output.
async function node(parameters, authority, more) {
  const env = { NODE_EXTRA_CA_CERTS: authority, PARLEY_URL: "https://localhost", PARLEY_FACILITATOR: "http://127.0.0.1:8403", PARLEY_PAY_TO: PAYEE };
  const child = machine.beside(process.execPath, parameters, { ...env, ...more });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
  const status = await new Promise((done) => child.once("close", done));
  assert.equal(status, 0, output);
  return output;
}

// upgrade installs the same program as a higher version, while calls arrive: none fails. The configuration stays.
async function upgrade() {
  const newer = join(work, "newer");
  run("dpkg-deb", ["-R", deb, newer]);
  run("sed", ["-i", "s/^Version: .*/Version: 99.0.0/", join(newer, "DEBIAN/control")]);
  run("dpkg-deb", ["-Znone", "-b", newer, join(work, "newer.deb")]);
  machine.put(join(work, "newer.deb"), "/root/newer.deb");
  const [before, configuration] = [pid(), machine.sh("md5sum /etc/parley/parley.yaml")];
  const caller = `
    let calls = 0, end = false;
    process.once("SIGTERM", () => (end = true));
    while (!end) {
      const response = await fetch("https://localhost/health");
      if (response.status !== 200) throw new Error(response.status + " after " + calls + " calls: " + (await response.text()));
      await response.arrayBuffer();
      calls++;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    console.log(calls);`;
  const child = machine.beside(process.execPath, ["--input-type=module", "-e", caller], { NODE_EXTRA_CA_CERTS: join(work, "root.crt") });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
  const ended = new Promise((done) => child.once("close", done));
  machine.sh("apt-get install -y /root/newer.deb");
  assert.notEqual(pid(), before, "the upgrade does not restart the server");
  assert.equal(machine.sh("systemctl is-active parley"), "active");
  await new Promise((resolve) => setTimeout(resolve, 1000));
  child.kill("SIGTERM");
  assert.equal(await ended, 0, output);
  assert.ok(Number(output) > 100, `only ${output} calls arrived during the upgrade`);
  assert.equal(machine.sh("md5sum /etc/parley/parley.yaml"), configuration);
  assert.equal(machine.sh("dpkg-query -W -f '${Version}' parley"), "99.0.0");
  assert.equal(machine.sh("runuser -u parley -- psql -tAc 'SELECT count(*) FROM agents' parley"), "3");
  ok(`upgrade: ${output.trim()} calls through Caddy meanwhile, all answered`);
}

// remove keeps the configuration; purge leaves nothing but the database.
function remove() {
  machine.sh("apt-get remove -y parley");
  assert.notEqual(machine.try("systemctl is-active parley").status, 0);
  machine.sh("test -e /etc/parley/parley.yaml && test -e /etc/parley/credentials/authorizer-key && test -e /etc/parley/credentials/server-secret && getent passwd parley");
  machine.sh("apt-get purge -y parley");
  const elsewhere = ["/proc", "/root", "/var/log", "/run/systemd"].map((folder) => `-not -path '${folder}/*'`);
  const left = machine.sh(`find / -xdev -iname '*parley*' ${elsewhere.join(" ")}`);
  assert.equal(left, "", `purge leaves:\n${left}`);
  for (const database of ["passwd", "group"]) assert.equal(machine.try(`getent ${database} parley`).status, 2);
  assert.equal(machine.sh("systemctl --failed --plain --no-legend"), "");
  ok("removed and purged: nothing is left but the database");
}

try {
  const begun = Date.now();
  await machine.boot();
  network();
  follow();
  inspect();
  await pay();
  await proxies(machine, { repository, work, node });
  ok("Caddy and nginx: paid calls, forged addresses, a server that does not respond");
  await upgrade();
  remove();
  machine.sh(`runuser -u postgres -- psql -qc "ALTER ROLE parley PASSWORD 'play'"`);
  image(machine, {
    work,
    archive: join(packages, readdirSync(packages).find((name) => name.endsWith("-image.tar"))),
    settings: [
      "PARLEY_DATABASE_URL=postgres://parley:play@127.0.0.1/parley",
      "PARLEY_BASE_URL=http://localhost:8402",
      `PARLEY_PAYEE=${PAYEE}`,
      "PARLEY_NETWORK=eip155:84532",
      "PARLEY_FACILITATOR_URL=http://127.0.0.1:8403",
      "PARLEY_RPC_URL=http://127.0.0.1:8403/rpc",
      "PARLEY_SERVER_SECRET=file:/server-secret",
    ],
  });
  ok("the image migrates and serves: as user 65532, with a read-only root, without capabilities");
  const [version, seconds] = [machine.sh("cat /etc/debian_version"), Math.round((Date.now() - begun) / 1000)];
  console.log(`TABLE|Debian ${suite}|${version}|docs/install.md with systemd, PostgreSQL and Caddy; upgrade, removal (${seconds} s)|0`);
} catch (error) {
  if (machine.leader) console.log(machine.try("journalctl --no-pager --lines 60 --unit parley --unit caddy --output cat").stdout);
  throw error;
} finally {
  await machine.stop();
  rmSync(work, { recursive: true, force: true });
}
