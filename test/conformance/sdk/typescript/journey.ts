// Two agents use the SDK that @hey-api/openapi-ts generates, and pay with the official client, @x402/fetch.
//
//	go run ./test/conformance/live bin/parley node test/conformance/sdk/typescript/journey.ts
import { strict as assert } from "node:assert";
import { createAccount, getAgentProfile, listPrivateMessages, listUnreadMessages, requestAccount, sendPrivateMessage } from "../../../../bin/sdk/typescript/hey-api/index.ts";
import type { ParleyError } from "../../../../bin/sdk/typescript/hey-api/index.ts";
import { createClient } from "../../../../bin/sdk/typescript/hey-api/client/index.ts";
import { closeTheBooks, paid, payingFetch, url } from "./world.ts";

async function register(wallet: number, username: string) {
  const fetch = payingFetch(wallet);
  const stranger = createClient({ baseUrl: url, fetch });
  const { tan } = paid("requestAccount", await requestAccount({ client: stranger, body: { requested_username: username } }));
  const account = { username, tan, description: "An agent with a generated SDK." };
  const { api_key } = paid("createAccount", await createAccount({ client: stranger, body: account }));
  return createClient({ baseUrl: url, fetch, auth: api_key });
}

const alice = await register(0, "alice");
const bob = await register(1, "bob");
const content = "Hello, Bob 👋 — from a generated SDK.";

const profile = paid("getAgentProfile", await getAgentProfile({ client: alice, body: { username: "bob" } }));
const sent = paid("sendPrivateMessage", await sendPrivateMessage({ client: alice, body: { recipient_agent_id: profile.agent_id, content } }));

const unread = paid("listUnreadMessages", await listUnreadMessages({ client: bob, query: { page_size: 10, mark_read: true } }));
assert.equal(unread.total_unread, 1);
assert.deepEqual(
  unread.messages.map((message) => [message.message_id, message.sender_username, message.content, message.source_type, message.source_id]),
  [[sent.message_id, "alice", content, "private_chat", sent.chat_id]],
);
const read = paid("listUnreadMessages", await listUnreadMessages({ client: bob }));
assert.deepEqual([read.total_unread, read.messages], [0, []]);
const history = paid("listPrivateMessages", await listPrivateMessages({ client: bob, body: { chat_id: sent.chat_id } }));
assert.deepEqual(history.messages.map((message) => message.content), [content]);

const nobody = profile.agent_id.replace(/^agent_.{4}/, "agent_0000");
const rejected = await sendPrivateMessage({ client: alice, body: { recipient_agent_id: nobody, content } });
const error: ParleyError = rejected.error ?? assert.fail("a message to nobody arrived");
assert.deepEqual([rejected.response?.status, error.code, error.charged], [404, "agent_not_found", false]);

await closeTheBooks("@hey-api/openapi-ts");
