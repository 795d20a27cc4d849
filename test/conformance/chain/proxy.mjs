// A proxy to Parley's server that loses responses. It uses loopback.
import { createServer } from "node:http";

// startServerProxy: after lose() the proxy cuts the connection of the next call that is paid and succeeds, instead of returning its
// response.
export async function startServerProxy(server) {
  const proxy = { armed: false, lost: 0, lose: () => (proxy.armed = true) };
  const listener = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const { host, connection, "content-length": length, ...headers } = request.headers;
    const content = request.method === "GET" ? undefined : Buffer.concat(chunks);
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
  await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
  return Object.assign(proxy, { url: `http://127.0.0.1:${listener.address().port}`, stop: () => listener.close() });
}
