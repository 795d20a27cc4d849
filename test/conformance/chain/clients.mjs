// The official clients with payment channels, TypeScript and Python, behind one interface:
//
//   start({ rpc, exactOnly, channelsOnly, insist })   a new client, as after a restart of its program: what the old one had in memory is lost
//   call({ method, url, headers, body })   { status, reply, receipt, payments } or { error, payments }
//   refund(url, amount)   the receipt
//
// The schemes batch-settlement and exact are registered, or only one of them. With `rpc` a client reads the chain. With
// `insist` (TypeScript only) it repeats a payment whose outcome is unknown. `payments` are the kinds of payments that a call sent.
//
// Both schemes are registered for the same network: in a client with schemes for "eip155:84532", those for "eip155:*" have no effect.
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { toClientEvmSigner } from "@x402/evm";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { decodePaymentResponseHeader } from "@x402/core/http";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { createPublicClient, http } from "viem";
import { baseSepolia } from "viem/chains";
import { createSigner, decodeXPaymentResponse, wrapFetchWithPayment as wrapFetchWithPaymentV1 } from "x402-fetch";
import { insisting } from "../payments.mjs";
import { Program } from "../processes.mjs";

const network = "eip155:84532";

class TypeScriptClient {
  decode = decodePaymentResponseHeader;

  constructor(wallet) {
    this.wallet = wallet;
  }

  async start({ rpc, exactOnly, channelsOnly, insist }) {
    const signer = rpc
      ? toClientEvmSigner(this.wallet.account, createPublicClient({ chain: baseSepolia, transport: http(rpc) }))
      : this.wallet.account;
    const client = new x402Client();
    this.scheme = new BatchSettlementEvmScheme(signer);
    if (!exactOnly) client.register(network, this.scheme);
    if (!channelsOnly) registerExactEvmScheme(client, { signer, networks: [network] });
    const watched = (request) => {
      const header = request.headers.get("PAYMENT-SIGNATURE");
      if (header) {
        const { payload, accepted } = JSON.parse(Buffer.from(header, "base64"));
        this.payments.push(payload.type ?? accepted.scheme);
      }
      return fetch(request);
    };
    this.fetch = wrapFetchWithPayment(insist ? insisting(watched) : watched, client);
  }

  async call({ method, url, headers, body }) {
    const payments = (this.payments = []);
    try {
      const response = await this.fetch(url, { method, headers, body: body && JSON.stringify(body) });
      const receipt = response.headers.get("PAYMENT-RESPONSE") ?? response.headers.get("X-PAYMENT-RESPONSE");
      return { status: response.status, reply: await response.json(), receipt: receipt && this.decode(receipt), payments };
    } catch (error) {
      return { error: `${error} ${error.cause ?? ""}`, payments };
    }
  }

  refund(url, amount) {
    return this.scheme.refund(url, { amount });
  }
}

// VersionOneClient is the client of the first protocol version, which has exact only.
class VersionOneClient extends TypeScriptClient {
  decode = decodeXPaymentResponse;

  async start() {
    const signer = await createSigner("base-sepolia", this.wallet.key);
    this.fetch = wrapFetchWithPaymentV1(fetch, signer, 1_000_000n); // its default limit is 0.10 USD
  }
}

// All Python clients are in one process (agent.py).
let python;
function startPython() {
  const program = new Program(process.env.PYTHON, ["-u", fileURLToPath(new URL("agent.py", import.meta.url))]);
  const waiting = []; // for results, which come in the order of the calls
  createInterface({ input: program.process.stdout }).on("line", (line) => {
    const { result, failed } = JSON.parse(line);
    const { resolve, reject } = waiting.shift();
    if (failed) reject(new Error(failed));
    else resolve(result);
  });
  program.ended.then(() => waiting.forEach(({ reject }) => reject(new Error(`Python ended:\n${program.log}`))));
  return (client, action, args) =>
    new Promise((resolve, reject) => {
      waiting.push({ resolve, reject });
      program.process.stdin.write(`${JSON.stringify({ client, do: action, arguments: args })}\n`);
    });
}

class PythonClient {
  refunds = 0;

  constructor(wallet) {
    this.wallet = wallet;
    python ??= startPython();
  }

  start(options) {
    return python(this.wallet.address, "start", { key: this.wallet.key, ...options });
  }

  call(request) {
    return python(this.wallet.address, "call", request);
  }

  // The client keeps one payment channel for each URL that it asked for a refund; the fragment makes it another URL.
  refund(url, amount) {
    return python(this.wallet.address, "refund", { url: `${url}#${this.refunds++}`, amount });
  }
}

// kinds are the clients with payment channels.
export const kinds = { TypeScript: TypeScriptClient, Python: PythonClient };
export const clients = { ...kinds, "version 1": VersionOneClient };
