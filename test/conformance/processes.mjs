// Child processes, ports and folders that end with this process: PostgreSQL, and Parley's server as an operator starts it. It imports no
// packages: checks with other packages share it.
import { strict as assert } from "node:assert";
import { spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const running = new Set();
process.on("exit", () => running.forEach((program) => program.process.kill("SIGKILL"))); // runs also after an exception
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));

// Program is a child process whose output is kept.
export class Program {
  log = "";

  constructor(command, args, environment = {}) {
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

  // said waits for a line that matches the pattern and returns its group. By default it waits until the program is ready.
  async said(pattern = /^ready (\S+)/m) {
    await until(`${this.process.spawnfile} says ${pattern}`, () => this.gone || pattern.test(this.log), 60_000).catch(() => {});
    const found = this.log.match(pattern);
    if (!found) throw new Error(`${this.process.spawnfile} did not say ${pattern}:\n${this.log}`);
    return found[1];
  }

  async stop(signal = "SIGTERM") {
    this.process.kill(signal);
    await this.ended;
  }
}

// startPostgres returns a PostgreSQL with an empty database. It cleans up and ends when its standard input ends, so it is not killed.
export async function startPostgres() {
  const postgres = new Program(process.env.POSTGRES, []);
  running.delete(postgres);
  const stop = () => {
    postgres.process.stdin.end();
    return postgres.ended;
  };
  return { url: await postgres.said(), stop };
}

// command runs a command of the program PARLEY and returns its output.
export function command(args, environment = {}) {
  const { status, error, stdout, stderr } = spawnSync(process.env.PARLEY, args, {
    encoding: "utf8",
    timeout: 60_000,
    env: { ...process.env, ...environment },
  });
  assert.equal(status, 0, `parley ${args[0]}: ${error ?? ""}${stdout}${stderr}`);
  return stdout;
}

// newServer returns a server that is not started. A restarted server keeps its address.
export async function newServer(settings) {
  const address = `127.0.0.1:${await freePort()}`;
  let program;
  let log = "";
  const server = {
    url: `http://${address}`,
    log: () => log + (program?.log ?? ""),
    start: async (...more) => {
      program = new Program(process.env.PARLEY, ["serve", "--listen", address, ...settings, ...more]);
      await program.said();
    },
    stop: async () => {
      const stopped = program;
      await stopped.stop();
      assert.equal(stopped.process.exitCode, 0, "the server ends well");
      [log, program] = [log + stopped.log, undefined];
    },
    kill: async () => {
      await program.stop("SIGKILL");
      [log, program] = [log + program.log, undefined];
    },
    restart: async (...more) => {
      await server.stop();
      await server.start(...more);
    },
  };
  return server;
}

// newSecret writes 32 random bytes as a setting file:PATH has them, and returns this setting.
export function newSecret() {
  const file = join(newFolder(), "secret");
  writeFileSync(file, randomBytes(32).toString("hex"), { mode: 0o600 });
  return `file:${file}`;
}

// until waits for a condition and fails after a timeout.
export async function until(what, holds, milliseconds = 20_000) {
  for (const deadline = Date.now() + milliseconds; !(await holds()); ) {
    if (Date.now() > deadline) throw new Error(`waited in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

// freePort returns a port on which nobody listens. The system gives those below 32,768 to no outgoing connection.
export async function freePort() {
  for (;;) {
    const port = 27_500 + Math.floor(Math.random() * 5_000);
    const server = createServer();
    const free = await new Promise((resolve) => server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true)));
    if (free) return new Promise((resolve) => server.close(() => resolve(port)));
  }
}

// newFolder returns a folder that is removed at the end of this process.
export function newFolder() {
  const folder = mkdtempSync(join(tmpdir(), "parley-conformance-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}
