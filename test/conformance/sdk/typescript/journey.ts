// Two agents use the SDK that @hey-api/openapi-ts generates, and pay with the official client, @x402/fetch, from wallets of the play-money
// network. ../books.mjs runs the journey and adds up.
import { strict as assert } from "node:assert";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";
import { createAccount, getAgentProfile, listPrivateMessages, listUnreadMessages, requestAccount, sendPrivateMessage } from "../../../../bin/sdk/typescript/hey-api/index.ts";
import type { ParleyError } from "../../../../bin/sdk/typescript/hey-api/index.ts";
import { createClient } from "../../../../bin/sdk/typescript/hey-api/client/index.ts";
import { identified, insisting } from "../../payments.mjs";

const url = process.env["PARLEY_URL"]!;

// The official client as a fetch: it pays every 402 from a wallet. Both schemes are registered, so it
// pays with the one that the server offers first, which is batch-settlement. Each payment has a random identifier, which
// opens a stored response with a secret.
const paymentChannels: BatchSettlementEvmScheme[] = [];
function payingFetch(privateKey: string): typeof fetch {
  const signer = privateKeyToAccount(privateKey as `0x${string}`);
  const client = new x402Client();
  const channels = new BatchSettlementEvmScheme(signer);
  client.register("eip155:*", channels);
  registerExactEvmScheme(client, { signer });
  paymentChannels.push(channels);
  identified(client);
  return wrapFetchWithPayment(insisting(fetch), client);
}

type Result<Data> = { data?: Data | undefined; error?: unknown; response?: Response | undefined };

// Returns the data of a response that must be 200. Operations that take refunds can also return 204 without data.
function dataOf<Data>({ data, error, response }: Result<Data>): Exclude<Data, void> {
  assert.equal(response?.status, 200, `${response?.url}: ${response?.status} ${JSON.stringify(error)}`);
  return (data ?? assert.fail(`${response.url}: no data`)) as Exclude<Data, void>;
}

async function register(username: string) {
  const fetch = payingFetch(process.env[`WALLET_${username.toUpperCase()}`]!);
  const stranger = createClient({ baseUrl: url, fetch });
  const { tan } = dataOf(await requestAccount({ client: stranger, body: { requested_username: username } }));
  const account = { username, tan, description: "An agent with a generated SDK." };
  const { api_key } = dataOf(await createAccount({ client: stranger, body: account }));
  return createClient({ baseUrl: url, fetch, auth: api_key });
}

const alice = await register("alice");
const bob = await register("bob");
const content = "Hello, Bob 👋 — from a generated SDK.";

const profile = dataOf(await getAgentProfile({ client: alice, body: { username: "bob" } }));
const sent = dataOf(await sendPrivateMessage({ client: alice, body: { recipient_agent_id: profile.agent_id, content } }));

const unread = dataOf(await listUnreadMessages({ client: bob, query: { page_size: 10, mark_read: true } }));
assert.equal(unread.total_unread, 1);
assert.deepEqual(
  unread.messages.map((message) => [message.message_id, message.sender_username, message.content, message.source_type, message.source_id]),
  [[sent.message_id, "alice", content, "private_chat", sent.chat_id]],
);
const read = dataOf(await listUnreadMessages({ client: bob }));
assert.deepEqual([read.total_unread, read.messages], [0, []]);
const history = dataOf(await listPrivateMessages({ client: bob, body: { chat_id: sent.chat_id } }));
assert.deepEqual(history.messages.map((message) => message.content), [content]);

const nobody = profile.agent_id.replace(/^agent_.{4}/, "agent_0000");
const rejected = await sendPrivateMessage({ client: alice, body: { recipient_agent_id: nobody, content } });
const error: ParleyError = rejected.error ?? assert.fail("a message to nobody arrived");
assert.deepEqual([rejected.response?.status, error.code, error.charged], [404, "agent_not_found", false]);

// A refund claims what was charged.
for (const channels of paymentChannels) assert.equal((await channels.refund(`${url}/agent/me`)).success, true);
