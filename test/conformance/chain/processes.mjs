// The processes of the checks: PostgreSQL, the facilitator and Parley's server as an operator starts it. All of them, and the EVM node
// (evm.mjs), use loopback and free ports and end with this process.
import { spawn, spawnSync } from "node:child_process";
import { strict as assert } from "node:assert";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { parseEther } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import pg from "pg";

export const here = (name) => fileURLToPath(new URL(name, import.meta.url));

const running = new Set();
// Runs also after an exception. PostgreSQL ends when its standard input ends.
process.on("exit", () => running.forEach((program) => program.process.kill("SIGKILL")));
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));

// Program is a child process whose output is kept.
export class Program {
  constructor(command, args, environment = {}) {
    this.log = "";
    this.process = spawn(command, args, { stdio: ["pipe", "pipe", "pipe"], env: { ...process.env, ...environment } });
    running.add(this);
    this.process.stdin.on("error", () => {}); // it ended early
    for (const stream of [this.process.stdout, this.process.stderr]) stream.on("data", (chunk) => (this.log += chunk));
    this.ended = new Promise((resolve) => {
      this.process.on("error", (error) => {
        this.log += error;
        resolve();
      });
      this.process.on("close", resolve);
    }).then(() => {
      running.delete(this);
      this.gone = true;
    });
  }

  // said waits for a line that matches the pattern and returns its group.
  async said(pattern) {
    await until(`${this.process.spawnfile} says ${pattern}`, () => this.gone || pattern.test(this.log), 60_000).catch(() => {});
    const found = this.log.match(pattern);
    if (!found) throw new Error(`${this.process.spawnfile} did not say ${pattern}:\n${this.log}`);
    return found[1];
  }

  async stop(signal) {
    this.process.kill(signal);
    await this.ended;
  }
}

// until waits for a condition and fails after a timeout.
export async function until(what, holds, milliseconds = 20_000) {
  for (const deadline = Date.now() + milliseconds; !(await holds()); ) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

export async function startDatabase() {
  const postgres = new Program(process.env.POSTGRES, []);
  running.delete(postgres); // ends and cleans up when its standard input ends
  const url = await postgres.said(/^ready (\S+)/m);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  return {
    url,
    query: async (statement) => (await client.query(statement)).rows,
    stop: async () => {
      await client.end();
      postgres.process.stdin.end();
      await postgres.ended;
    },
  };
}

// A restarted facilitator keeps its address and wallet.
export async function newFacilitator(chain) {
  const port = await freePort();
  const key = generatePrivateKey();
  await chain.client.setBalance({ address: privateKeyToAccount(key).address, value: parseEther("100") });
  let program;
  let log = "";
  return {
    url: `http://127.0.0.1:${port}`,
    log: () => log + (program?.log ?? ""),
    start: async (environment) => {
      log += program?.log ?? "";
      program = new Program(process.execPath, [here("facilitator.mjs")], {
        ...{ RPC_URL: chain.url, PRIVATE_KEY: key, PORT: String(port) },
        ...environment,
      });
      await program.said(/^ready (\d+)/m);
    },
    kill: () => program.stop("SIGKILL"),
  };
}

const parley = process.env.PARLEY;

// command runs a parley command and returns its output.
export function command(...args) {
  const done = spawnSync(parley, args, { encoding: "utf8", timeout: 60_000 });
  assert.equal(done.status, 0, `parley ${args[0]}: ${done.error ?? ""}${done.stdout}${done.stderr}`);
  return done.stdout;
}

// A restarted server keeps its address.
export async function newServer(settings) {
  const address = `127.0.0.1:${await freePort()}`;
  let program;
  let log = "";
  const server = {
    url: `http://${address}`,
    log: () => log + (program?.log ?? ""),
    start: async (...more) => {
      program = new Program(parley, ["serve", "--listen", address, ...settings, ...more]);
      await program.said(/^ready (\S+)/m);
    },
    stop: async () => {
      const stopped = program;
      await stopped.stop("SIGTERM");
      assert.equal(stopped.process.exitCode, 0, "the server ends well");
      [log, program] = [log + stopped.log, undefined];
    },
    restart: async (...more) => {
      await server.stop();
      await server.start(...more);
    },
  };
  return server;
}
