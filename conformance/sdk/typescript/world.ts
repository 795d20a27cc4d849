// Shared by both journeys: wallets of the play-money network, a fetch that pays, and the sum of all prices.
import { strict as assert } from "node:assert";
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";

type Wallet = { address: string; private_key: `0x${string}` };
type Operation = { operationId: string; "x-payment-info"?: { protocols: [{ x402: { amount: string } }] } };

const get = async (address: string) => (await fetch(address)).json() as Promise<any>;
const environment = (name: string) => process.env[name] ?? assert.fail(`${name} is not set: run me with conformance/live`);

export const url = environment("PARLEY_URL");
const facilitator = environment("PARLEY_FACILITATOR");
const payTo = environment("PARLEY_PAY_TO");

// Sends a paid request again, with the same payment, when its response is lost or its outcome is open.
const insisting = (send: typeof fetch) => async (input: RequestInfo | URL, init?: RequestInit) => {
  const request = new Request(input, init);
  const paid = request.headers.has("PAYMENT-SIGNATURE");
  for (let tries = 1; ; tries++) {
    let wait = 0.2;
    try {
      const response = await send(request.clone());
      const open = response.status >= 500 || (response.status === 409 && (await response.clone().json()).code === "payment_in_progress");
      if (!paid || !open || tries === 10) return response;
      wait = Number(response.headers.get("Retry-After") ?? wait);
    } catch (error) {
      if (!paid || tries === 10) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
  }
};

// Loses the first response with an API key.
export let lost = 0;
const losing = async (input: RequestInfo | URL, init?: RequestInit) => {
  const request = new Request(input, init);
  const response = await fetch(request);
  if (lost > 0 || response.status !== 200 || new URL(request.url).pathname !== "/register/create_account") return response;
  lost++;
  throw new TypeError("the response was lost");
};

// The official client as a fetch: it pays every 402 from the wallet with this number. Each payment has a random
// identifier, which opens a stored response with a secret.
const wallets: Wallet[] = await get(`${facilitator}/accounts`);
export function payingFetch(number: number): typeof fetch {
  const client = new x402Client();
  registerExactEvmScheme(client, { signer: privateKeyToAccount(wallets[number]!.private_key) });
  client.registerExtension({
    key: "payment-identifier",
    enrichPaymentPayload: async (payload) => ({
      ...payload,
      extensions: { ...payload.extensions, "payment-identifier": { info: { required: false, id: crypto.randomUUID() } } },
    }),
  });
  return wrapFetchWithPayment(insisting(losing), client);
}

// The prices come from the served contract.
const contract: { paths: Record<string, Record<string, Operation>> } = await get(`${url}/openapi.json`);
const prices = new Map<string, bigint>();
for (const operation of Object.values(contract.paths).flatMap((path) => Object.values(path))) {
  const payment = operation["x-payment-info"];
  if (payment) prices.set(operation.operationId, BigInt(payment.protocols[0].x402.amount));
}

const balance = async () => BigInt((await get(`${facilitator}/balances/${payTo}`)).balance);
const before = await balance();
let sum = 0n;

// What an SDK's call of an operation returns, whichever SDK it is.
type Result<Data> = { data?: Data | undefined; error?: unknown; response?: Response | undefined };

// Returns the data of a response that must be 200 and settled, and adds its price to what the payee must receive.
export function paid<Data>(operation: string, { data, error, response }: Result<Data>): Data {
  assert.equal(response?.status, 200, `${operation}: ${response?.status} ${JSON.stringify(error)}`);
  const settled = decodePaymentResponseHeader(response.headers.get("PAYMENT-RESPONSE") ?? assert.fail(`${operation}: no settlement`));
  assert.equal(settled.success, true);
  sum += prices.get(operation) ?? assert.fail(`the contract has no price for ${operation}`);
  return data ?? assert.fail(`${operation}: no data`);
}

export async function closeTheBooks(sdk: string) {
  assert.ok(sum > 0n);
  assert.equal(lost, 1, "the first response with an API key is lost");
  assert.equal((await balance()) - before, sum, "the payee received exactly the sum of the prices");
  console.log(`${sdk}: two agents, a lost API key back, a message read, a refusal; the payee received ${sum} atomic units, exactly the prices`);
}
