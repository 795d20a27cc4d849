// The processes of the checks: an EVM node with USDC, PostgreSQL, the facilitator and Parley's server as an operator starts it. All of
// them use loopback and free ports and end with this process.
import { spawn, spawnSync } from "node:child_process";
import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";
import { createServer as createHTTPServer } from "node:http";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { createTestClient, http, parseEther, publicActions, walletActions } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";
import pg from "pg";
import solc from "solc";

const require = createRequire(import.meta.url);
const here = (name) => fileURLToPath(new URL(name, import.meta.url));

export const usdc = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"; // on Base Sepolia, where the clients expect it
const multicall = "0xcA11bde05977b3631167028862bE2a173976CA11"; // on every chain

const running = new Set();
// Runs also after an exception. PostgreSQL ends when its standard input ends.
process.on("exit", () => running.forEach((program) => program.process.kill("SIGKILL")));
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => process.exit(1));

// Program is a child process whose output is kept.
class Program {
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

// A proxy to the node that loses every transaction, or, if the node `heard` it, its response.
export async function startProxy(node, { heard }) {
  const proxy = { lost: 0 };
  const server = createHTTPServer(async (request, response) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const isTransaction = JSON.parse(body).method === "eth_sendRawTransaction";
    if (isTransaction) proxy.lost++;
    if (isTransaction && !heard) return;
    const reply = await fetch(node, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    const text = await reply.text();
    if (isTransaction) request.socket.destroy();
    else response.writeHead(reply.status, { "Content-Type": "application/json" }).end(text);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  proxy.url = `http://127.0.0.1:${server.address().port}`;
  proxy.stop = () => server.close();
  return proxy;
}

function compile() {
  const output = JSON.parse(
    solc.compile(
      JSON.stringify({
        language: "Solidity",
        sources: { "contracts.sol": { content: readFileSync(here("contracts.sol"), "utf8") } },
        settings: { evmVersion: "cancun", outputSelection: { "*": { "*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"] } } },
      }),
    ),
  );
  if (output.errors) throw new Error(output.errors.map((error) => error.formattedMessage).join("\n"));
  return output.contracts["contracts.sol"];
}

export async function startChain() {
  const { Token, Wallet, Multicall } = compile();
  const anvil = new Program(process.env.ANVIL || require.resolve("@foundry-rs/anvil-linux-amd64/bin/anvil"), [
    ...["--host", "127.0.0.1", "--port", "0", "--chain-id", String(baseSepolia.id), "--accounts", "0"],
  ]);
  const url = `http://${await anvil.said(/Listening on (\S+)/)}`;
  const funder = privateKeyToAccount(generatePrivateKey());
  const client = createTestClient({ mode: "anvil", chain: baseSepolia, account: funder, transport: http(url), pollingInterval: 50 })
    .extend(publicActions)
    .extend(walletActions);
  await client.setBalance({ address: funder.address, value: parseEther("100") });
  await client.setCode({ address: usdc, bytecode: `0x${Token.evm.deployedBytecode.object}` });
  await client.setCode({ address: multicall, bytecode: `0x${Multicall.evm.deployedBytecode.object}` });
  const mined = async (hash) => {
    const receipt = await client.waitForTransactionReceipt({ hash });
    assert.equal(receipt.status, "success");
    return receipt;
  };
  const read = (functionName, ...args) => client.readContract({ address: usdc, abi: Token.abi, functionName, args });
  const simulate = (functionName, ...args) => client.simulateContract({ address: usdc, abi: Token.abi, functionName, args });
  const write = async (functionName, ...args) => mined(await client.writeContract({ address: usdc, abi: Token.abi, functionName, args }));
  return {
    url,
    client,
    read,
    simulate,
    write,
    balance: (of) => read("balanceOf", of),
    transfers: (from, to) =>
      client.getContractEvents({ address: usdc, abi: Token.abi, eventName: "Transfer", args: { from, to }, fromBlock: 0n }),
    // wallet returns a new wallet with this amount, in atomic units.
    wallet: async (money) => {
      const key = generatePrivateKey();
      const account = privateKeyToAccount(key);
      await write("mint", account.address, money);
      return { key, account, address: account.address };
    },
    // smartWallet returns a contract that pays if this many owners have signed.
    smartWallet: async (money, count) => {
      const owners = Array.from({ length: count }, () => privateKeyToAccount(generatePrivateKey()));
      const hash = await client.deployContract({
        abi: Wallet.abi,
        bytecode: `0x${Wallet.evm.bytecode.object}`,
        args: [owners.map((owner) => owner.address)],
      });
      const address = (await mined(hash)).contractAddress;
      await write("mint", address, money);
      const signTypedData = async (message) => {
        const signatures = await Promise.all(owners.map((owner) => owner.signTypedData(message)));
        return `0x${signatures.map((signature) => signature.slice(2)).join("")}`;
      };
      return { address, account: { address, signTypedData } };
    },
    everySecond: async () => {
      await client.setAutomine(false);
      await client.setIntervalMining({ interval: 1 });
    },
    atOnce: async () => {
      await client.setIntervalMining({ interval: 0 });
      await client.setAutomine(true);
      await client.mine({ blocks: 1 });
    },
    byHand: () => client.setAutomine(false),
    mine: () => client.mine({ blocks: 1 }),
    waiting: async () => (await client.getTxpoolStatus()).pending,
    stop: () => anvil.stop("SIGTERM"),
  };
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

export async function startServer(settings) {
  const program = new Program(parley, ["serve", "--listen", `127.0.0.1:${await freePort()}`, ...settings]);
  return {
    url: await program.said(/^ready (\S+)/m),
    log: () => program.log,
    stop: async () => {
      await program.stop("SIGTERM");
      assert.equal(program.process.exitCode, 0, "the server ends well");
    },
  };
}
