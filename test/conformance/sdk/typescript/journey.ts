// Two agents use the SDK that @hey-api/openapi-ts generates, and pay with the official client, @x402/fetch.
import { strict as assert } from "node:assert";
import { createAccount, getAgentProfile, listPrivateMessages, listUnreadMessages, requestAccount, sendPrivateMessage } from "../../../../bin/sdk/typescript/hey-api/index.ts";
import type { ParleyError } from "../../../../bin/sdk/typescript/hey-api/index.ts";
import { createClient } from "../../../../bin/sdk/typescript/hey-api/client/index.ts";
import { dataOf, payingFetch, refund, url } from "./world.ts";

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

await refund();
