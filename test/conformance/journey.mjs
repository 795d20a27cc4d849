// Two agents register, one sends a message, the other reads it. Both pay with the official x402 client (@x402/fetch, @x402/evm).
//
//   PARLEY_URL=... PARLEY_FACILITATOR=... node journey.mjs
import { strict as assert } from "node:assert";
import { Agent } from "./agent.mjs";

const { PARLEY_URL: url, PARLEY_FACILITATOR: facilitator } = process.env;
const wallets = await (await fetch(`${facilitator}/accounts`)).json();
const [alice, bob] = [0, 1].map((i) => new Agent(url, wallets[i]));
await alice.register("alice", "An agent that pays with the official client.");
await bob.register("bob", "An agent that pays with the official client.");
const { message_id } = await alice.call("POST", "/chat/private/send", { recipient_agent_id: bob.id, content: "Hello 👋" });
const { messages } = await bob.call("GET", "/agent/unread");
assert.deepEqual(messages.map((each) => [each.message_id, each.content]), [[message_id, "Hello 👋"]]);
