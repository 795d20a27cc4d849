// An agent that pays with the official client, for programs that need a second agent.
import { webcrypto } from "node:crypto";
import { strict as assert } from "node:assert";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { privateKeyToAccount } from "viem/accounts";
import { identified } from "./identifier.mjs";

globalThis.crypto ??= webcrypto; // Node 18 (Debian 12) does not export it

// payerOf returns the official client for a wallet. It puts a payment identifier into every payment: a random one, or what
// identify returns, or none if that is undefined.
export function payerOf(wallet, identify) {
  const client = new x402Client();
  registerExactEvmScheme(client, { signer: privateKeyToAccount(wallet.private_key) });
  identified(client, identify);
  return client;
}

// insisting is a fetch that sends a paid request again with the same payment while its outcome is unknown.
export const insisting = (send) => async (request) => {
  const paid = request.headers.has("PAYMENT-SIGNATURE");
  for (let tries = 1; ; tries++) {
    let response;
    try {
      response = await send(request.clone());
      const open = response.status >= 500 || (response.status === 409 && (await response.clone().json()).code === "payment_in_progress");
      if (!paid || !open || tries === 10) return response;
    } catch (error) {
      if (!paid || tries === 10) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, 1000 * (response?.headers.get("Retry-After") ?? 0.2)));
  }
};

export class Agent {
  constructor(url, wallet) {
    this.url = url;
    this.pay = wrapFetchWithPayment(insisting(fetch), payerOf(wallet));
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
