// Runs the program with mistakes that it finds by itself, and against servers that do not respond: it ends at once, says what to
// change or what came last, and prints no stack trace.
import { strict as assert } from "node:assert";
import { createServer } from "node:http";
import { mkdtempSync } from "node:fs";
import { join } from "node:path";
import { startProgram } from "./faults.mjs";

// misled returns the address of a server that refuses some requests and then does what last says.
async function misled(last, refused = 30) {
  let requests = 0;
  const server = createServer((request, response) => {
    if (++requests > refused) return last(request, response);
    response.writeHead(503, { "Content-Type": "application/json", "Retry-After": "0" }).end('{"success":false,"code":"unavailable","message":"busy","request_id":"req_1"}');
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, server };
}

export async function refuseMistakes({ directory, environment, program, url }) {
  const cwd = mkdtempSync(join(directory, "mistakes-"));
  const file = program.command.with(-1, join(directory, program.command.at(-1)));
  const run = async (says, parameters, changes) => {
    const started = Date.now();
    const { code, output, error } = await startProgram(file, parameters, { cwd, env: { ...environment, PARLEY_URL: url, ...changes } }).finished;
    const what = `${program.file} ${parameters.join(" ")} ${JSON.stringify(changes ?? {})}: ${output}${error}`;
    assert.equal(code, 1, what);
    assert.equal(output, "", what);
    assert.match(error, says, what);
    assert.doesNotMatch(error, /Traceback|^\s+at |^  File /m, what);
    assert.ok(!error.includes(environment.WALLET_KEY.slice(2)), `${what}: the wallet's key`);
    assert.ok(Date.now() - started < 20_000, `${what}: after ${Date.now() - started} ms`);
  };
  await run(/^usage: .* \[FIELD\]\n$/, []);
  await run(/^usage: /, ["GET"]);
  await run(/^usage: /, ["GET", "/health", "", "status", "more"]);
  await run(/^set PARLEY_URL /, ["GET", "/health"], { PARLEY_URL: "" });
  await run(/^set PARLEY_URL /, ["GET", "/health"], { PARLEY_URL: "parley.example" });
  await run(/^set WALLET_KEY /, ["GET", "/health"], { WALLET_KEY: "" });
  await run(/^set WALLET_KEY /, ["GET", "/health"], { WALLET_KEY: `${environment.WALLET_KEY}0` });
  await run(/^a GET has no body/, ["GET", "/agent/unread", '{"page":1}']);
  await run(/^the method is GET or POST, not PUT\n/, ["PUT", "/agent/me"]);
  await run(/^the path begins with \//, ["GET", "agent/me"]);
  await run(/^the response has no field colour:\n\{.*"status":"OK"/, ["GET", "/health", "", "colour"]);
  await run(/^the response has no field colour:\n\{.*"status":"OK"/, ["GET", "/health", "colour"], { PARLEY_URL: `${url}/` });

  for (const [says, last] of [
    [/^no final response yet \(the last: 503 .*\nno final response \(the last: 503 unavailable req_1 busy\); run this again later/, (_, response) =>
      response.writeHead(503, { "Content-Type": "application/json", "Retry-After": "0" })
        .end('{"success":false,"code":"unavailable","message":"busy","request_id":"req_1"}')],
    [/^no final response \(the last: .*(ECONNRESET|RemoteDisconnected|other side closed).*\); run this again later/m, (request) => request.socket.destroy()],
    [/^no final response \(the last: .*JSON.*\); run this again later/m, (_, response) => response.writeHead(502).end("<html>")],
  ]) {
    const { url, server } = await misled(last);
    try {
      await run(says, ["GET", "/agent/me"], { PARLEY_URL: url });
    } finally {
      server.close();
    }
  }

  const { url: rotating, server } = await misled((_, response) =>
    response.writeHead(200, { "Content-Type": "application/json" }).end('{"success":true,"api_key":"parley_new"}'), 0);
  try {
    const env = { ...environment, PARLEY_URL: rotating };
    const { code, output, error } = await startProgram(file, ["POST", "/agent/rotate_key", "{}"], { cwd, env }).finished;
    assert.deepEqual([code, error], [0, ""], `${output}${error}`);
    assert.match(output, /"\(stored in parley-state\)"/);
    assert.doesNotMatch(output, /parley_new/);
  } finally {
    server.close();
  }
  return 16;
}
