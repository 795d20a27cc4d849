// Shared by both journeys: a fetch that pays from wallets of the play-money network. ../books.mjs runs the journeys and adds up.
import { strict as assert } from "node:assert";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";
import { identified, insisting } from "../../payments.mjs";

export const url = process.env["PARLEY_URL"]!;

// The official client as a fetch: it pays every 402 from a wallet. Both schemes are registered, so it
// pays with the one that the server offers first, which is batch-settlement. Each payment has a random identifier, which
// opens a stored response with a secret.
const paymentChannels: BatchSettlementEvmScheme[] = [];
export function payingFetch(privateKey: string): typeof fetch {
  const signer = privateKeyToAccount(privateKey as `0x${string}`);
  const client = new x402Client();
  const channels = new BatchSettlementEvmScheme(signer);
  client.register("eip155:*", channels);
  registerExactEvmScheme(client, { signer });
  paymentChannels.push(channels);
  identified(client);
  return wrapFetchWithPayment(insisting(fetch), client);
}

// What an SDK's call of an operation returns, whichever SDK it is.
type Result<Data> = { data?: Data | undefined; error?: unknown; response?: Response | undefined };

// Returns the data of a response that must be 200. Operations that take refunds can also return 204 without data.
export function dataOf<Data>({ data, error, response }: Result<Data>): Exclude<Data, void> {
  assert.equal(response?.status, 200, `${response?.url}: ${response?.status} ${JSON.stringify(error)}`);
  return (data ?? assert.fail(`${response.url}: no data`)) as Exclude<Data, void>;
}

// Refunds the payment channels of all wallets, which claims what was charged.
export async function refund() {
  for (const channels of paymentChannels) assert.equal((await channels.refund(`${url}/agent/me`)).success, true);
}
