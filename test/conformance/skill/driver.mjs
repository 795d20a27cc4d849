// A process of an agent: node driver.mjs poller|sender|rotator, beside parley.mjs. driver.py is the same in Python. It works until it
// is killed, and appends to ROLE.log what it begins and what it got. RECIPIENT is the agent that gets the sender's messages.
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { call } from "./parley.mjs";

const role = process.argv[2];
const log = `${role}.log`;
const note = (...words) => appendFileSync(log, `${words.join(" ")}\n`);

// A number is begun again until it has ended: the next process repeats the call that was interrupted.
let number = 1;
for (const line of existsSync(log) ? readFileSync(log, "utf8").split("\n") : []) {
  if (line.startsWith("end ")) number = Number(line.split(" ")[1]) + 1;
}

const message = () => JSON.stringify({ recipient_agent_id: process.env.RECIPIENT, content: `message ${number}` });
const calls = {
  poller: () => ["GET", "/agent/unread", ""],
  sender: () => ["POST", "/chat/private/send", message()],
  rotator: () => ["POST", "/agent/rotate_key", "{}"],
};

for (; ; number++) {
  note("begin", number);
  await call(...calls[role](), ({ status, result }) => {
    if (status !== 200) note("error", number, status, result.code);
    for (const { message_id, content } of result.messages ?? []) note("got", message_id, content);
    note("end", number);
  });
  await sleep(role === "rotator" ? 250 : 25);
}
