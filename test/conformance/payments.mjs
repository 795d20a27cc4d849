// What every payer adds to an official client: a payment identifier, which proves who made a payment also after the payment is public on
// the chain, and the repetition of a payment whose outcome is unknown; and how a test adds up what was paid. It imports no packages.

// identified puts a random payment identifier into every payment of an official client.
export function identified(client) {
  client.registerExtension({
    key: "payment-identifier",
    enrichPaymentPayload: async (payload) => {
      const identifier = { info: { required: false, id: crypto.randomUUID() } };
      return { ...payload, extensions: { ...payload.extensions, "payment-identifier": identifier } };
    },
  });
}

// insisting is a fetch that sends a paid request again with the same payment while its outcome is unknown.
export const insisting = (send) => async (input, init) => {
  const request = new Request(input, init);
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

// received returns what addresses have, and what they claimed from payment channels and was not paid out.
export async function received(facilitator, ...addresses) {
  const accounts = await Promise.all(addresses.map(async (address) => (await fetch(`${facilitator}/balances/${address}`)).json()));
  return accounts.reduce((sum, { balance, unsettled }) => sum + BigInt(balance) + BigInt(unsettled), 0n);
}
