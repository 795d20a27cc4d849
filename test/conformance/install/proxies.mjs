// Caddy and nginx with the files of deploy/, in front of a server on the machine: what reaches the limits, what callers get while the server
// is unavailable, and paid calls through nginx. Caddy listens on 443, nginx on 8443 with a certificate of its own.
import { strict as assert } from "node:assert";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

// The program that runs with the network of the machine. Addresses of the loopback network are callers.
const program = (agent) => `
import { request, globalAgent } from "node:https";
import { readFileSync } from "node:fs";
import { Agent } from ${JSON.stringify(agent)};
const certificates = JSON.parse(readFileSync(process.env.CERTIFICATES));
const call = (port, caller, headers = {}) => new Promise((done, failed) => {
  const options = { host: "127.0.0.1", servername: "localhost", port, ca: certificates[port], localAddress: caller, method: "POST",
    path: "/chat/private/send", headers: { Host: "localhost:" + port, ...headers } };
  request(options, (response) => {
    let body = "";
    response.on("data", (data) => (body += data)).on("end", () => done({ status: response.statusCode, headers: response.headers, body }));
  }).on("error", failed).end();
});
const [task] = process.argv.slice(2);
const ports = Object.keys(certificates);
const result = {};
if (task === "forge") {
  for (const port of ports) {
    const caller = "127.0.1." + ports.indexOf(port), statuses = [];
    for (let i = 1; i <= 60; i++) {
      const forged = "198.51.100." + i;
      statuses.push((await call(port, caller, { "X-Forwarded-For": forged, "X-Real-IP": forged, Forwarded: "for=" + forged })).status);
    }
    result[port] = { forging: statuses, other: (await call(port, "127.0.2." + ports.indexOf(port))).status };
  }
}
if (task === "away") await Promise.all(ports.map(async (port) => (result[port] = await call(port, "127.0.3.1"))));
if (task === "pay") {
  globalAgent.options.ca = certificates[8443];
  const wallets = await (await fetch(process.env.PARLEY_FACILITATOR + "/accounts")).json();
  await new Agent("https://localhost:8443", wallets[5]).register("behind_nginx", "An agent that calls through nginx.");
}
console.log(JSON.stringify(result));
`;

// proxies checks both. node runs a program of the host with the network of the machine and returns its output.
export async function proxies(machine, { repository, work, node }) {
  const file = join(work, "proxies.mjs");
  writeFileSync(file, program(join(repository, "test/conformance/agent.mjs")));
  startNginx(machine, repository);
  machine.get("/etc/ssl/parley/fullchain.pem", join(work, "nginx.crt"));
  const certificates = { 443: readFileSync(join(work, "root.crt"), "utf8"), 8443: readFileSync(join(work, "nginx.crt"), "utf8") };
  writeFileSync(join(work, "certificates.json"), JSON.stringify(certificates));
  const task = async (name) => JSON.parse(await node([file, name], join(work, "nginx.crt"), { CERTIFICATES: join(work, "certificates.json") }));

  await task("pay");
  machine.sh(`printf 'PARLEY_LIMIT_ADDRESS_RATE=2\\n' >/etc/parley/environment && systemctl restart parley`);
  for (const [port, { forging, other }] of Object.entries(await task("forge"))) {
    assert.deepEqual([forging[0], forging.at(-1)], [402, 429], `a forged X-Forwarded-For reaches the limits through port ${port}: ${forging}`);
    assert.equal(other, 402, `two callers share one limit through port ${port}`);
  }
  machine.sh("systemctl stop parley");
  for (const [port, { status, headers, body }] of Object.entries(await task("away"))) {
    const said = [status, headers["retry-after"], JSON.parse(body).code];
    assert.deepEqual(said, [503, "2", "payment_unknown"], `port ${port} without a server: ${body}`);
    assert.equal(headers["x-request-id"], JSON.parse(body).request_id);
  }
  machine.sh("systemctl disable --now nginx && rm -r /etc/nginx/conf.d/parley.conf /etc/ssl/parley /etc/parley/environment");
  machine.sh("systemctl start parley");
}

// startNginx starts nginx with deploy/nginx.conf, another port, another name and a certificate of its own.
function startNginx(machine, repository) {
  let configuration = readFileSync(join(repository, "deploy/nginx.conf"), "utf8");
  for (const [from, to] of Object.entries({ "parley.example": "localhost", "listen 443": "listen 8443", "[::]:443": "[::]:8443" })) {
    assert.ok(configuration.includes(from), `deploy/nginx.conf has no ${from}`);
    configuration = configuration.replaceAll(from, to);
  }
  machine.sh("apt-get install -y nginx && rm /etc/nginx/sites-enabled/default && install -d -m 700 /etc/ssl/parley");
  machine.sh(`openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout /etc/ssl/parley/privkey.pem -out /etc/ssl/parley/fullchain.pem`);
  machine.sh(`cat >/etc/nginx/conf.d/parley.conf <<'END'\n${configuration}\nEND\nnginx -t && systemctl restart nginx`);
}
