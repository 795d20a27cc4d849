// Shared by both journeys: wallets of the play-money network, a fetch that pays, and the sum of all prices.
import { strict as assert } from "node:assert";
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";
import { identified, insisting } from "../../payments.mjs";

type Wallet = { address: string; private_key: `0x${string}` };
type Operation = { operationId: string; "x-payment-info"?: { protocols: [{ x402: { amount: string } }] } };

const get = async (address: string) => (await fetch(address)).json() as Promise<any>;
const environment = (name: string) => process.env[name] ?? assert.fail(`${name} is not set: run me with test/conformance/live`);

export const url = environment("PARLEY_URL");
const facilitator = environment("PARLEY_FACILITATOR");
const payTo = environment("PARLEY_PAY_TO");

// Loses the first response with an API key.
let lost = 0;
const losing = async (input: RequestInfo | URL, init?: RequestInit) => {
  const request = new Request(input, init);
  const response = await fetch(request);
  if (lost > 0 || response.status !== 200 || new URL(request.url).pathname !== "/register/create_account") return response;
  lost++;
  throw new TypeError("the response was lost");
};

// The official client as a fetch: it pays every 402 from the wallet with this number. Both schemes are registered, so it
// pays with the one that the server offers first, which is batch-settlement. Each payment has a random identifier, which
// opens a stored response with a secret.
const wallets: Wallet[] = await get(`${facilitator}/accounts`);
const paymentChannels: BatchSettlementEvmScheme[] = [];
export function payingFetch(number: number): typeof fetch {
  const signer = privateKeyToAccount(wallets[number]!.private_key);
  const client = new x402Client();
  const channels = new BatchSettlementEvmScheme(signer);
  client.register("eip155:*", channels);
  registerExactEvmScheme(client, { signer });
  paymentChannels.push(channels);
  identified(client);
  return wrapFetchWithPayment(insisting(losing), client);
}

// The prices come from the served contract.
const contract: { paths: Record<string, Record<string, Operation>> } = await get(`${url}/openapi.json`);
const prices = new Map<string, bigint>();
for (const operation of Object.values(contract.paths).flatMap((path) => Object.values(path))) {
  const payment = operation["x-payment-info"];
  if (payment) prices.set(operation.operationId, BigInt(payment.protocols[0].x402.amount));
}

// What an address has, and what it claimed from payment channels and was not paid out.
async function received(address: string) {
  const { balance, unsettled } = await get(`${facilitator}/balances/${address}`);
  return BigInt(balance) + BigInt(unsettled);
}
const walletsHave = async () => (await Promise.all(wallets.map(({ address }) => received(address)))).reduce((sum, one) => sum + one, 0n);
const before = { payee: await received(payTo), wallets: await walletsHave() };
let sum = 0n;
let deposits = 0;
let vouchers = 0;

// What an SDK's call of an operation returns, whichever SDK it is.
type Result<Data> = { data?: Data | undefined; error?: unknown; response?: Response | undefined };

// Returns the data of a response that must be 200 and settled, and adds its price to what the payee must receive. Operations
// that take refunds can also return 204 without data.
export function paid<Data>(operation: string, { data, error, response }: Result<Data>): Exclude<Data, void> {
  assert.equal(response?.status, 200, `${operation}: ${response?.status} ${JSON.stringify(error)}`);
  const settled = decodePaymentResponseHeader(response.headers.get("PAYMENT-RESPONSE") ?? assert.fail(`${operation}: no settlement`));
  assert.equal(settled.success, true);
  const price = prices.get(operation) ?? assert.fail(`the contract has no price for ${operation}`);
  assert.equal(settled.extra?.["chargedAmount"], price.toString(), `${operation}: what was charged`);
  if (settled.transaction) deposits++;
  else vouchers++;
  sum += price;
  return (data ?? assert.fail(`${operation}: no data`)) as Exclude<Data, void>;
}

// Refunds both payment channels, which claims what was charged, and compares the sums.
export async function closeTheBooks(sdk: string) {
  assert.ok(sum > 0n);
  assert.equal(lost, 1, "the first response with an API key is lost");
  assert.equal(deposits, 2 * paymentChannels.length, "each wallet deposits for its account, which costs what the server suggests to deposit, and once for all calls");
  for (const channels of paymentChannels) assert.equal((await channels.refund(`${url}/agent/me`)).success, true);
  assert.equal((await received(payTo)) - before.payee, sum, "the payee claimed exactly the sum of the prices");
  assert.equal(before.wallets - (await walletsHave()), sum, "the wallets paid exactly the sum of the prices");
  console.log(
    `${sdk}: two agents, a lost API key back, a message read, a refusal; ${deposits} deposits, ${vouchers} calls paid with a voucher alone; ` +
      `the payee claimed ${sum} atomic units, exactly the prices`,
  );
}
