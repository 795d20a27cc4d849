// A proxy between the skill's program and the server, which sees all payments and makes faults.
import { createServer } from "node:http";

// openProxy starts a proxy to url. For each paid request it calls onPayment(payment, { request, forward, respond, reject }), which
// forwards the request to the server and responds, or does not. Requests without a payment pass. edit may change each response.
export async function openProxy(url, onPayment, edit = () => {}) {
  const server = createServer(async (request, response) => {
    let body = "";
    try {
      for await (const chunk of request) body += chunk;
    } catch {
      return; // the client was killed
    }
    const payment = request.headers["payment-signature"];
    const forward = async (without) => {
      const headers = { ...request.headers };
      for (const name of ["host", "connection", "content-length", without]) delete headers[name];
      const forwarded = await fetch(url + request.url, { method: request.method, headers, body: body || undefined });
      const passed = Object.fromEntries(forwarded.headers);
      for (const name of ["content-length", "content-encoding", "transfer-encoding", "connection", "keep-alive"]) delete passed[name];
      return { status: forwarded.status, headers: passed, text: await forwarded.text() };
    };
    const respond = (reply) => {
      edit(reply);
      response.writeHead(reply.status, reply.headers);
      response.end(reply.text);
    };
    const reject = (status, code, more) => {
      const text = JSON.stringify({ success: false, message: "made up", code, charged: false, request_id: "req_0", ...more });
      respond({ status, headers: { "Content-Type": "application/json", "Retry-After": "0" }, text });
    };
    if (payment) await onPayment(payment, { request, forward, respond, reject });
    else respond(await forward());
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}
