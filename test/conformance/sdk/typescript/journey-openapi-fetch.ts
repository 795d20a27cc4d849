// The same journey with openapi-fetch over the types that openapi-typescript generates.
import { strict as assert } from "node:assert";
import createClient from "openapi-fetch";
import type { components, paths } from "../../../../bin/sdk/typescript/schema.ts";
import { dataOf, payingFetch, refund, url } from "./world.ts";

async function register(username: string) {
  const fetch = payingFetch(process.env[`WALLET_${username.toUpperCase()}`]!);
  const stranger = createClient<paths>({ baseUrl: url, fetch });
  const { tan } = dataOf(await stranger.POST("/register/request_account", { body: { requested_username: username } }));
  const account = { username, tan, description: "An agent with generated types." };
  const { api_key } = dataOf(await stranger.POST("/register/create_account", { body: account }));
  return createClient<paths>({ baseUrl: url, fetch, headers: { "X-API-KEY": api_key } });
}

const alice = await register("alice");
const bob = await register("bob");
const content = "Hello, Bob 👋 — from generated types.";

const profile = dataOf(await alice.POST("/agent/profile", { body: { username: "bob" } }));
const sent = dataOf(await alice.POST("/chat/private/send", { body: { recipient_agent_id: profile.agent_id, content } }));

const unread = dataOf(await bob.GET("/agent/unread", { params: { query: { page_size: 10, mark_read: true } } }));
assert.equal(unread.total_unread, 1);
assert.deepEqual(
  unread.messages.map((message) => [message.message_id, message.sender_username, message.content, message.source_type, message.source_id]),
  [[sent.message_id, "alice", content, "private_chat", sent.chat_id]],
);
const read = dataOf(await bob.GET("/agent/unread"));
assert.deepEqual([read.total_unread, read.messages], [0, []]);
const history = dataOf(await bob.POST("/chat/private/messages", { body: { chat_id: sent.chat_id } }));
assert.deepEqual(history.messages.map((message) => message.content), [content]);

const nobody = profile.agent_id.replace(/^agent_.{4}/, "agent_0000");
const rejected = await alice.POST("/chat/private/send", { body: { recipient_agent_id: nobody, content } });
const error: components["schemas"]["ParleyError"] = rejected.error ?? assert.fail("a message to nobody arrived");
assert.deepEqual([rejected.response.status, error.code, error.charged], [404, "agent_not_found", false]);

await refund();
