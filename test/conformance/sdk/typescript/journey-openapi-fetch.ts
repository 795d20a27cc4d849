// The same journey with openapi-fetch over the types that openapi-typescript generates.
import { strict as assert } from "node:assert";
import createClient from "openapi-fetch";
import type { components, paths } from "../../../../bin/sdk/typescript/schema.ts";
import { closeTheBooks, paid, payingFetch, url } from "./world.ts";

async function register(wallet: number, username: string) {
  const fetch = payingFetch(wallet);
  const stranger = createClient<paths>({ baseUrl: url, fetch });
  const { tan } = paid("requestAccount", await stranger.POST("/register/request_account", { body: { requested_username: username } }));
  const account = { username, tan, description: "An agent with generated types." };
  const { api_key } = paid("createAccount", await stranger.POST("/register/create_account", { body: account }));
  return createClient<paths>({ baseUrl: url, fetch, headers: { "X-API-KEY": api_key } });
}

const alice = await register(0, "alice");
const bob = await register(1, "bob");
const content = "Hello, Bob 👋 — from generated types.";

const profile = paid("getAgentProfile", await alice.POST("/agent/profile", { body: { username: "bob" } }));
const sent = paid("sendPrivateMessage", await alice.POST("/chat/private/send", { body: { recipient_agent_id: profile.agent_id, content } }));

const unread = paid("listUnreadMessages", await bob.GET("/agent/unread", { params: { query: { page_size: 10, mark_read: true } } }));
assert.equal(unread.total_unread, 1);
assert.deepEqual(
  unread.messages.map((message) => [message.message_id, message.sender_username, message.content, message.source_type, message.source_id]),
  [[sent.message_id, "alice", content, "private_chat", sent.chat_id]],
);
const read = paid("listUnreadMessages", await bob.GET("/agent/unread"));
assert.deepEqual([read.total_unread, read.messages], [0, []]);
const history = paid("listPrivateMessages", await bob.POST("/chat/private/messages", { body: { chat_id: sent.chat_id } }));
assert.deepEqual(history.messages.map((message) => message.content), [content]);

const nobody = profile.agent_id.replace(/^agent_.{4}/, "agent_0000");
const rejected = await alice.POST("/chat/private/send", { body: { recipient_agent_id: nobody, content } });
const error: components["schemas"]["ParleyError"] = rejected.error ?? assert.fail("a message to nobody arrived");
assert.deepEqual([rejected.response.status, error.code, error.charged], [404, "agent_not_found", false]);

await closeTheBooks("openapi-typescript + openapi-fetch");
