// Proxies that lose what passes through them. They use loopback.
import { createServer } from "node:http";

async function listen(handle) {
  const server = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    await handle(request, Buffer.concat(chunks), response).catch((error) => response.writeHead(502).end(String(error)));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, stop: () => server.close() };
}

// A proxy to the node that loses every transaction, or, if the node `heard` it, its response.
export async function startNodeProxy(node, { heard }) {
  const proxy = { lost: 0 };
  const listener = await listen(async (request, body, response) => {
    const isTransaction = JSON.parse(body).method === "eth_sendRawTransaction";
    if (isTransaction) proxy.lost++;
    if (isTransaction && !heard) return;
    const reply = await fetch(node, { method: "POST", headers: { "Content-Type": "application/json" }, body });
    const text = await reply.text();
    if (isTransaction) request.socket.destroy();
    else response.writeHead(reply.status, { "Content-Type": "application/json" }).end(text);
  });
  return Object.assign(proxy, listener);
}

// A proxy to Parley's server. After lose() it cuts the connection of the next call that is paid and succeeds, instead of returning its
// response.
export async function startServerProxy(server) {
  const proxy = { armed: false, lost: 0, lose: () => (proxy.armed = true) };
  const listener = await listen(async (request, body, response) => {
    const { host, connection, "content-length": length, ...headers } = request.headers;
    const content = request.method === "GET" ? undefined : body;
    const reply = await fetch(server + request.url, { method: request.method, headers, body: content });
    const text = await reply.text();
    if (proxy.armed && reply.status === 200 && headers["payment-signature"]) {
      proxy.armed = false;
      proxy.lost++;
      request.socket.destroy();
      return;
    }
    const kept = [...reply.headers].filter(([name]) => !["content-length", "content-encoding", "transfer-encoding", "connection"].includes(name));
    response.writeHead(reply.status, Object.fromEntries(kept)).end(text);
  });
  return Object.assign(proxy, listener);
}
