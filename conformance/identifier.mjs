// The payment identifier: what makes a payment its payer's own, also after it stands on the chain.

// identified puts a payment identifier into every payment of an official client: what identify returns, a random one if it
// is not given, or none where it returns nothing.
export function identified(client, identify = () => crypto.randomUUID()) {
  client.registerExtension({
    key: "payment-identifier",
    enrichPaymentPayload: async (payload) => {
      const id = identify();
      if (!id) return payload;
      return { ...payload, extensions: { ...payload.extensions, "payment-identifier": { info: { required: false, id } } } };
    },
  });
}
