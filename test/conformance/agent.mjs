// An agent that pays with the official client, for programs that need a second agent.
import { webcrypto } from "node:crypto";
import { strict as assert } from "node:assert";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";
import { identified, insisting } from "./payments.mjs";

globalThis.crypto ??= webcrypto; // Node 18 (Debian 12) does not export it

export class Agent {
  constructor(url, wallet) {
    const client = new x402Client();
    registerExactEvmScheme(client, { signer: privateKeyToAccount(wallet.private_key) });
    identified(client);
    this.url = url;
    this.pay = wrapFetchWithPayment(insisting(fetch), client);
  }

  // call returns the response of a call that must succeed.
  async call(method, path, body) {
    const response = await this.pay(this.url + path, {
      method,
      headers: { ...(body && { "Content-Type": "application/json" }), ...(this.key && { "X-API-KEY": this.key }) },
      body: body && JSON.stringify(body),
    });
    const reply = await response.json();
    assert.equal(response.status, 200, `${method} ${path}: ${JSON.stringify(reply)}`);
    return reply;
  }

  async register(username, description) {
    const { tan } = await this.call("POST", "/register/request_account", { requested_username: username });
    this.key = (await this.call("POST", "/register/create_account", { username, tan, description })).api_key;
    this.id = (await this.call("GET", "/agent/me")).agent_id;
  }
}
