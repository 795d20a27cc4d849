// The official facilitator (@x402/core, @x402/evm, unmodified) with its HTTP API of three paths. It is a library; an operator adds the
// HTTP server and the wallet, as below.
//
//   RPC_URL=http://127.0.0.1:8545 PRIVATE_KEY=0x… PORT=8403 [GAS=200000] node facilitator.mjs
//
// With GAS the node does not estimate the gas, so the facilitator does not know in advance that a transfer will fail.
import { createServer } from "node:http";
import { webcrypto } from "node:crypto";
import { x402Facilitator } from "@x402/core/facilitator";
import { toFacilitatorEvmSigner } from "@x402/evm";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/facilitator";
import { registerExactEvmScheme } from "@x402/evm/exact/facilitator";
import { createWalletClient, http, publicActions } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";

globalThis.crypto ??= webcrypto; // Node 18 does not export it

const gas = process.env.GAS && BigInt(process.env.GAS);
// Without the chain the library leaves a rejected promise unhandled, which would end the process.
process.on("unhandledRejection", (error) => console.log("unhandled:", error.message.split("\n")[0]));

const account = privateKeyToAccount(process.env.PRIVATE_KEY);
const wallet = createWalletClient({
  account,
  chain: baseSepolia,
  transport: http(process.env.RPC_URL, { retryCount: 0 }),
  pollingInterval: 100,
}).extend(publicActions);

// Transactions are sent in sequence: two concurrent ones would get the same nonce.
let last = Promise.resolve();
const inTurn = (send) => (args) => (last = last.then(() => send(args), () => send(args)));
const signer = toFacilitatorEvmSigner({
  ...wallet,
  address: account.address,
  writeContract: inTurn((args) => wallet.writeContract({ gas, ...args })),
  sendTransaction: inTurn((args) => wallet.sendTransaction(args)),
});
const facilitator = registerExactEvmScheme(new x402Facilitator(), { signer, networks: "eip155:84532" });
facilitator.register("eip155:84532", new BatchSettlementEvmScheme(signer));

const routes = {
  "GET /supported": () => facilitator.getSupported(),
  "POST /verify": (body) => facilitator.verify(body.paymentPayload, body.paymentRequirements),
  "POST /settle": (body) => facilitator.settle(body.paymentPayload, body.paymentRequirements),
};

const server = createServer(async (request, response) => {
  let text = "";
  for await (const chunk of request) text += chunk;
  let status, content;
  try {
    [status, content] = [200, await routes[`${request.method} ${request.url}`](text && JSON.parse(text))];
  } catch (error) {
    [status, content] = [500, { error: String(error) }];
  }
  const { isValid, invalidReason, success, errorReason, errorMessage } = content;
  if (request.method === "POST") console.log(request.url, status, JSON.stringify({ isValid, invalidReason, success, errorReason, errorMessage }));
  response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(content));
});
server.listen(Number(process.env.PORT), "127.0.0.1", () => console.log("ready", server.address().port));
