// One paid call:  node parley.mjs GET PATH [FIELD]  or  node parley.mjs POST PATH [JSON] [FIELD]
// Prints the response or one field of it. Prints an error to standard error and exits with 1. With IDEMPOTENCY_KEY in the environment,
// the call is the same one whenever it has the same key, also after its response was printed.
//
// Several processes of one agent may share FOLDER. A file exists for each call, from before its payment is sent until its response
// was used. Its name contains the process that works on the call; whoever renames the file takes the call over. Files are replaced
// as a whole. A new API key is a new file, and the highest number counts.
import { randomBytes } from "node:crypto";
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
const busy = new Set(); // files of the calls of this process
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
const touch = (name) => ifPresent(() => fs.utimesSync(at(name), new Date(), new Date()));
const age = (name) => ifPresent(() => (Date.now() - fs.statSync(at(name)).mtimeMs) / 1000);
const files = (start, end = ".json") => fs.readdirSync(FOLDER).filter((name) => name.startsWith(start) && name.endsWith(end));
function write(name, value) { // a reader sees the old file or the new one, also after a crash
  const part = `${name}.${random()}.part`;
  fs.writeFileSync(at(part), JSON.stringify(value), { mode: 0o600, flush: true });
  fs.renameSync(at(part), at(name));
  if (folder) fs.fsyncSync(folder);
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

function dropPayment(request) {
  if (request.payment && !remove(request.file)) throw new Error("another process took this call over");
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
    if (request.payment && !touch(request.file)) throw new Error("another process took this call over");
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
      if (request.payment) write(request.file, request);
    } else if (response.status === 402 && signed++ < 2) { // nothing was charged, so a new payment is safe
      dropPayment(request);
      request.payment = await sign(response, result);
      write(request.file, request); // before sending
    } else if (request.payment && (result.code === "proof_required" || (request.credit && result.code === "payment_reused"))) {
      dropPayment(request); // after proof_required, a new payment by the same wallet is not charged
    } else {
      request.response = { status: response.status, result };
    }
  }
}

async function isReplaced({ file, number }, wait) { // tells whether there is a new key, or may be one soon
  const isRotation = (name) => name !== file && read(name)?.path === "/agent/rotate_key";
  const isRotating = () => [...files("call-"), ...files("late-")].some(isRotation);
  if (!isRotating() && (await sleep(200), !isRotating())) return newestKey() > number; // twice: a renamed file may be missed once
  await takeOver({}); // if the process with the new key was killed
  if (newestKey() === number) await wait(0.5);
  return true;
}

async function finish(request, use, waits) {
  busy.add(request.file);
  try {
    await pay(request, waits);
    const { status, result } = request.response;
    if (request.payment) write(request.file, request);
    if (result.api_key) write(`key-${request.number + 1}.json`, result.api_key);
    // An error with "charged" was paid, then rejected. The payment pays for a corrected request of the same operation.
    if (status !== 200 && (result.charged || request.credit)) write(`credit-${request.id}${creditOf(request)}`, request.payment);
    await use(request);
    return request.response;
  } finally {
    busy.delete(request.file);
  }
}

function isAbandoned(name) { // its process ended or did nothing for five minutes: its number may be that of another process now
  const pid = Number(name.split("-")[1]);
  if (busy.has(name)) return false;
  if (pid === 0 || pid === process.pid || age(name) > 300) return true;
  try {
    process.kill(pid, 0);
    return ifPresent(() => fs.readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ")) === true; // killed, and its parent has not noticed
  } catch (error) {
    return error.code === "ESRCH";
  }
}

// takeOver finishes abandoned calls. It returns the response if one of them is the same call. The response of another call (late) is
// kept for a day (done), because its process may be started again and make it again.
async function takeOver({ method, path, body, job }, use) {
  for (const name of [...files("done-"), ...files("", ".part")]) if (age(name) > DAY) remove(name);
  for (let pass = 1; pass <= 2; pass++) { // twice: a file that is renamed while they are listed may be missed
    for (const name of [...files("call-"), ...files("late-"), ...files("done-")]) {
      const request = read(name);
      if (!request) {
        pass = 0; // another process renamed it, maybe to a name that was not listed
        break;
      }
      const state = name.slice(0, 4);
      const abandoned = state !== "done" && isAbandoned(name);
      const same = request.method === method && request.path === path && request.body === body && request.job === job;
      if (!abandoned && (!same || state === "call")) continue;
      request.file = `${same ? "call" : "late"}-${process.pid}-${request.id}.json`;
      if ((state === "late" && !abandoned) || !touch(name) || !rename(name, request.file)) {
        await sleep(100); // another process finishes the call
        pass = 0;
        break;
      }
      if (same) return finish(request, use, 30);
      await finish(request, keep, 0).catch(() => rename(request.file, `call-0-${request.id}.json`)); // without a response it stays open
    }
  }
}

function keep({ id, path, file, response }) {
  if (response.status !== 200 || path === "/agent/rotate_key") remove(file); // the response of a rotation is kept as a key
  else rename(file, `done-${id}.json`);
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
  const id = random();
  const request = { id, method, path, body, job, file: `call-${process.pid}-${id}.json` };
  const done = async ({ file, response }) => (await use(response), remove(file));
  const late = await takeOver(request, done);
  if (late) return late;
  request.number = newestKey();
  for (const credit of files("credit-", creditOf(request))) {
    const paid = { ...request, payment: read(credit), credit: true };
    write(request.file, paid);
    if (remove(credit)) return finish(paid, done, 30);
    remove(request.file); // another process was faster
  }
  return finish(request, done, 30);
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
