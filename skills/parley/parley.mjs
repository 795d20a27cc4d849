// One paid call:  node parley.mjs GET PATH [FIELD]  or  node parley.mjs POST PATH [JSON] [FIELD]
// Prints the response or one field of it. Prints an error to standard error and exits with 1. With IDEMPOTENCY_KEY in the environment,
// the call is the same one whenever it has the same key, also after its response was printed.
//
// Several processes of one agent may share FOLDER. A file exists for each call, from before its payment is sent until its response
// was used. Whoever makes the same call meanwhile sends the same payment and gets the same response. Files are replaced as a whole. A
// new API key is a new file, and the highest number counts.
import { createHash, randomBytes } from "node:crypto";
import fs from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { x402Client, x402HTTPClient } from "@x402/fetch";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { privateKeyToAccount } from "viem/accounts";

const LIMIT = 1_000_000n; // maximum price of a call, in millionths of a dollar
const FOLDER = "parley-state"; // keep it: it contains your API key and open payments
const DAY = 86_400; // seconds
if (!/^0x[0-9a-fA-F]{64}$/.test(process.env.WALLET_KEY)) {
  console.error("set WALLET_KEY to the private key of the wallet: 0x and 64 hex digits");
  process.exit(1);
}
const wallet = new x402Client();
registerExactEvmScheme(wallet, { signer: privateKeyToAccount(process.env.WALLET_KEY) });
const x402 = new x402HTTPClient(wallet);

fs.mkdirSync(FOLDER, { recursive: true, mode: 0o700 });
const folder = process.platform !== "win32" && fs.openSync(FOLDER);
const random = () => randomBytes(32).toString("hex");
const at = (name) => `${FOLDER}/${name}`;
function ifPresent(action) { // undefined if the file does not exist
  try {
    return action() ?? true;
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
  }
}
const read = (name) => ifPresent(() => JSON.parse(fs.readFileSync(at(name), "utf8")));
const remove = (name) => ifPresent(() => fs.unlinkSync(at(name)));
const rename = (from, to) => ifPresent(() => fs.renameSync(at(from), at(to)));
const age = (name) => ifPresent(() => (Date.now() - fs.statSync(at(name)).mtimeMs) / 1000);
const files = (start, end = ".json") => fs.readdirSync(FOLDER).filter((name) => name.startsWith(start) && name.endsWith(end));
function write(name, value, place = fs.renameSync) { // a reader sees the old file or the new one, also after a crash
  const part = `${name}.${random()}.part`;
  fs.writeFileSync(at(part), JSON.stringify(value), { mode: 0o600, flush: true });
  place(at(part), at(name));
  remove(part); // if it is not renamed
  if (folder) fs.fsyncSync(folder);
}
function placeNew(part, name) {
  try {
    fs.linkSync(part, name);
  } catch (error) {
    if (error.code !== "EEXIST") fs.renameSync(part, name); // there are no links here
  }
}
const newestKey = () => Math.max(0, ...files("key-").map((name) => parseInt(name.slice(4))));
const creditOf = ({ method, path }) => `-${method}${path.split("?")[0].replaceAll("/", "-")}.json`;

async function sign(response, result) {
  const required = x402.getPaymentRequiredResponse((name) => response.headers.get(name), result);
  if (required.accepts.some((offer) => BigInt(offer.amount) > LIMIT)) throw new Error("the call costs more than LIMIT");
  const payment = await x402.createPaymentPayload(required);
  // The identifier proves that the payment is yours; keep it secret, like the folder.
  payment.extensions = { ...payment.extensions, "payment-identifier": { info: { required: false, id: random() } } };
  return x402.encodePaymentSignatureHeader(payment);
}

const isStored = ({ file, id }) => read(file)?.id === id; // otherwise the file is gone, or that of a later call
function store(request) {
  if (request.payment && isStored(request)) write(request.file, request);
}
function forget(request) {
  if (isStored(request)) remove(request.file);
  request.payment = request.credit = undefined;
}

async function pay(request, waits) { // sends the request until it has a response
  let last = "none";
  const wait = async (seconds) => {
    if (waits === 30) console.error(`no final response yet (the last: ${last}); sending the same again for up to a minute`);
    if (waits-- <= 0) throw new Error(`no final response (the last: ${last}); run this again later, it continues with the same payment`);
    await sleep(1000 * Math.min(60, seconds));
  };
  for (let signed = 0; !request.response; ) {
    const key = read(`key-${request.number}.json`);
    const headers = { ...(request.body && { "Content-Type": "application/json" }), ...(request.job && { "Idempotency-Key": request.job }),
      ...(key && { "X-API-KEY": key }), ...request.payment };
    const options = { method: request.method, headers, body: request.body || undefined, signal: AbortSignal.timeout(120_000) };
    let response, result;
    try {
      response = await fetch(process.env.PARLEY_URL.replace(/\/+$/, "") + request.path, options);
      result = await response.json();
      last = [response.status, result.code, result.request_id, result.message].filter(Boolean).join(" ");
    } catch (error) { // no response, or an incomplete one
      last = [response?.status, error.cause?.code, error.cause?.message || error.message].filter(Boolean).join(" ");
    }
    if (!result || response.status >= 500 || [408, 429].includes(response.status) || result.code === "payment_in_progress") {
      await wait(response?.headers.get("Retry-After") ?? 2); // then send the same request with the same payment
    } else if (result.code === "invalid_api_key" && (await isReplaced(request, wait))) {
      request.number = newestKey(); // the same payment is good with the new key
      store(request);
    } else if (response.status === 402 && signed++ < 2) { // nothing was charged, so a new payment is safe
      forget(request);
      const paid = { ...request, id: random(), payment: await sign(response, result) };
      write(request.file, paid, placeNew); // before sending
      Object.assign(request, read(request.file)); // of the process that was first
    } else if (request.payment && (result.code === "proof_required" || (request.credit && result.code === "payment_reused"))) {
      forget(request); // after proof_required, a new payment by the same wallet is not charged
    } else {
      request.response = { status: response.status, result };
    }
  }
}

async function isReplaced({ file, number }, wait) { // tells whether there is a new key, or may be one soon
  const others = files("call-").filter((name) => name !== file).map(read);
  const rotations = others.filter((other) => other?.path === "/agent/rotate_key" && other.number === number);
  for (const rotation of rotations) { // its process may have been killed
    await settle(rotation, 0).then(() => forget(rotation)).catch(() => {});
  }
  if (rotations.length && newestKey() === number) await wait(0.5);
  return rotations.length > 0 || newestKey() > number;
}

async function settle(request, waits) { // stores the response and what it contains
  await pay(request, waits);
  const { status, result } = request.response;
  store(request);
  if (result.api_key) write(`key-${request.number + 1}.json`, result.api_key);
  // An error with "charged" was paid, then rejected. The payment pays for a corrected request of the same operation.
  if (status !== 200 && (result.charged || request.credit)) {
    const { id, payment } = request;
    write(`credit-${id}${creditOf(request)}`, { id, payment, credit: true });
  }
  return request.response;
}

function check(method, path, body) { // mistakes that no response shows
  if (!/^https?:\/\/./.test(process.env.PARLEY_URL)) throw new Error("set PARLEY_URL to the server's address, such as https://parley.example");
  if (method !== "GET" && method !== "POST") throw new Error(`the method is GET or POST, not ${method}`);
  if (!path?.startsWith("/")) throw new Error("the path begins with /, such as /agent/me");
  if (method === "GET" && body) throw new Error("a GET has no body; put parameters into the path: /agent/unread?page_size=5");
}

// call returns { status, result }. If the process is killed before use (a function) ends, the same call gets the response again. Calls
// with the same job (an Idempotency-Key) are one call.
export async function call(method, path, body = "", use = () => {}, job = "") {
  check(method, path, body);
  for (const name of [...files("call-"), ...files("", ".part")]) if (age(name) > DAY) remove(name);
  const hash = createHash("sha256").update(JSON.stringify([method, path, body, job])).digest("hex");
  const file = `call-${hash}.json`;
  const request = { method, path, body, job, file, number: newestKey(), ...read(file) };
  for (const credit of request.payment ? [] : files("credit-", creditOf(request))) {
    if (!rename(credit, file)) continue; // another process was faster
    Object.assign(request, read(file));
    break;
  }
  const response = await settle(request, 30);
  await use(response);
  forget(request);
  return response;
}

async function main([method, path, body, field, ...more]) {
  if (!path || more.length) throw new Error("usage: node parley.mjs GET PATH [FIELD] or POST PATH [JSON] [FIELD]");
  if (method === "GET" && !field && /^\w+$/.test(body ?? "")) [body, field] = ["", body]; // a GET has no body
  await call(method, path, body, ({ status, result }) => {
    if (status === 200 && (!field || field in result)) {
      const value = field ? result[field] : result.api_key ? { ...result, api_key: `(stored in ${FOLDER})` } : result;
      return console.log(typeof value === "string" ? value : JSON.stringify(value));
    }
    if (status === 200) console.error(`the response has no field ${field}:`);
    console.error(JSON.stringify(result));
    process.exitCode = 1;
  }, process.env.IDEMPOTENCY_KEY ?? "");
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  await main(process.argv.slice(2)).catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
  });
  process.stdout.write("", () => process.exit()); // at once: a program that is killed after it has printed would be run again
}
