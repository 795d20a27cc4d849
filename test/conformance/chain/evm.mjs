// The chain of the checks: an EVM node with USDC and the payment channels of x402 at the addresses that they have on Base Sepolia. The
// contracts are ours (contracts.sol, channels.sol), with the interfaces of the real ones.
import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createTestClient, http, nonceManager, parseEther, publicActions, walletActions } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { baseSepolia } from "viem/chains";
import solc from "solc";
import { Program } from "../processes.mjs";

const require = createRequire(import.meta.url);

export const usdc = "0x036CbD53842c5426634e7929541eC2318f3dCF7e"; // on Base Sepolia, where the clients expect it
export const paymentChannels = "0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003"; // these three are on every chain
const depositCollector = "0x4020806089470a89826cB9fB1f4059150b550004";
const multicall = "0xcA11bde05977b3631167028862bE2a173976CA11";

function compile() {
  const files = ["contracts.sol", "channels.sol"];
  const settings = {
    evmVersion: "cancun",
    optimizer: { enabled: true, runs: 200 }, // as the real payment channels: the gas is measured
    outputSelection: { "*": { "*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object"] } },
  };
  const sources = Object.fromEntries(files.map((file) => [file, { content: readFileSync(new URL(file, import.meta.url), "utf8") }]));
  const output = JSON.parse(solc.compile(JSON.stringify({ language: "Solidity", sources, settings })));
  if (output.errors) throw new Error(output.errors.map((error) => error.formattedMessage).join("\n"));
  return Object.assign({}, ...files.map((file) => output.contracts[file]));
}

export async function startChain() {
  const { Token, Multicall, Channels, Collector } = compile();
  const anvil = new Program(process.env.ANVIL || require.resolve("@foundry-rs/anvil-linux-amd64/bin/anvil"), [
    ...["--host", "127.0.0.1", "--port", "0", "--chain-id", String(baseSepolia.id), "--accounts", "0"],
  ]);
  const url = `http://${await anvil.said(/Listening on (\S+)/)}`;
  const funder = privateKeyToAccount(generatePrivateKey(), { nonceManager }); // for transactions at the same time
  const client = createTestClient({ mode: "anvil", chain: baseSepolia, account: funder, transport: http(url), pollingInterval: 50 })
    .extend(publicActions)
    .extend(walletActions);
  await client.setBalance({ address: funder.address, value: parseEther("100") });
  const code = { [usdc]: Token, [multicall]: Multicall, [paymentChannels]: Channels, [depositCollector]: Collector };
  for (const [address, { evm }] of Object.entries(code)) await client.setCode({ address, bytecode: `0x${evm.deployedBytecode.object}` });
  const mined = async (hash) => {
    const receipt = await client.waitForTransactionReceipt({ hash });
    assert.equal(receipt.status, "success");
    return receipt;
  };
  // at returns functions that use the contract at an address.
  const at = (address, { abi }) => ({
    address,
    abi,
    read: (functionName, ...args) => client.readContract({ address, abi, functionName, args }),
    write: async (functionName, ...args) => mined(await client.writeContract({ address, abi, functionName, args })),
    events: (eventName, args) => client.getContractEvents({ address, abi, eventName, args, fromBlock: 0n }),
  });
  const token = at(usdc, Token);
  return {
    url,
    client,
    token,
    channels: at(paymentChannels, Channels),
    balance: (of) => token.read("balanceOf", of),
    transfers: (from, to) => token.events("Transfer", { from, to }),
    // wallet returns a new wallet with this amount, in atomic units.
    wallet: async (money) => {
      const key = generatePrivateKey();
      const account = privateKeyToAccount(key);
      await token.write("mint", account.address, money);
      return { key, account, address: account.address };
    },
    atOnce: async () => {
      await client.setAutomine(true);
      await client.mine({ blocks: 1 });
    },
    byHand: () => client.setAutomine(false),
    waiting: async () => (await client.getTxpoolStatus()).pending,
    stop: () => anvil.stop("SIGTERM"),
  };
}
