// Agents that pay with payment channels, and the books of what they bought.
import { strict as assert } from "node:assert";
import { clients } from "./clients.mjs";

export const sendPath = "/chat/private/send";
export const historyPath = "/chat/private/messages";

// The books: what wallets paid, by scheme. They are kept from the prices and the responses alone.
export class Books {
  exact = 0n;
  vouchers = new Map(); // by wallet, in lower case

  add(wallet, scheme, amount) {
    if (scheme === "exact") this.exact += amount;
    else this.vouchers.set(wallet.toLowerCase(), (this.vouchers.get(wallet.toLowerCase()) ?? 0n) + amount);
  }

  get charged() {
    return [...this.vouchers.values()].reduce((sum, amount) => sum + amount, 0n);
  }
}

export class Agent {
  constructor(world, wallet, kind, options = {}) {
    Object.assign(this, { world, wallet, options, kind, url: world.server.url });
    this.client = new clients[kind](wallet);
  }

  // restart makes a new client. The old one's state is lost.
  restart(options = this.options) {
    return this.client.start((this.options = options));
  }

  // attempt makes one call. What a 200 cost is in the books.
  async attempt(path, body, method = "POST") {
    const headers = { ...(body && { "Content-Type": "application/json" }), ...(this.key && { "X-API-KEY": this.key }) };
    const result = await this.client.call({ method, url: this.url + path, headers, ...(body && { body }) });
    if (result.status === 200) this.paid(path, result);
    return result;
  }

  paid(path, { receipt }) {
    assert.equal(receipt.success, true);
    assert.equal(receipt.payer.toLowerCase(), this.wallet.address.toLowerCase());
    const scheme = receipt.extra?.chargedAmount === undefined ? "exact" : "batch-settlement";
    if (scheme === "batch-settlement") assert.equal(BigInt(receipt.extra.chargedAmount), this.world.price(path), `${path}: what is charged`);
    this.world.books.add(this.wallet.address, scheme, this.world.price(path));
  }

  // call makes a call that must succeed at the first attempt.
  async call(path, body, method) {
    const result = await this.attempt(path, body, method);
    assert.equal(result.status, 200, `${this.kind}, ${path}: ${JSON.stringify(result)}`);
    return result;
  }

  // persist makes a call that must succeed within two tries, and returns the number of tries.
  async persist(path, body) {
    if ((await this.attempt(path, body)).status === 200) return 1;
    await this.call(path, body);
    return 2;
  }

  // get returns the response body of a call.
  async get(path, body, method) {
    return (await this.call(path, body, method)).reply;
  }

  async register(username) {
    this.username = username;
    const { tan } = await this.get("/register/request_account", { requested_username: username });
    this.key = (await this.get("/register/create_account", { username, tan, description: "An agent with a payment channel." })).api_key;
    return this;
  }

  send(to, content) {
    return this.call(sendPath, { recipient_agent_id: to.id, content });
  }

  async identify() {
    this.id = (await this.get("/agent/me", undefined, "GET")).agent_id;
    return this;
  }
}

// newAgent returns a new agent with money and a running client. Its account is bought by register.
export async function newAgent(world, kind, options) {
  const agent = new Agent(world, await world.chain.wallet(20_000_000n), kind, options);
  await agent.restart();
  return agent;
}

// newAccount returns a new agent whose account is bought.
export const newAccount = async (world, kind, username, options) => (await newAgent(world, kind, options)).register(username);

// friendOf returns the agent of the first journey with the other kind of client.
export const friendOf = ({ agents }, kind) => agents[kind === "Python" ? "TypeScript" : "Python"];

// timesSent returns how many messages have this content.
export const timesSent = async ({ query }, content) =>
  Number((await query(`SELECT count(*) AS count FROM messages WHERE content = '${content}'`))[0].count);
