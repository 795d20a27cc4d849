// The payment identifier proves who made a payment, also after the payment is public on the chain.

// identified puts a payment identifier into every payment of an official client: what identify returns, a random one without
// identify, or none if identify returns nothing.
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
