// The conformance package speaks HTTP only. The bridge gives each of its sessions a `parley mcp` of its own and passes messages on.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

async function session(sessions, parley, env) {
  const http = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, http),
  });
  const stdio = new StdioClientTransport({ command: parley, args: ["mcp"], env, stderr: "inherit" });
  http.onmessage = (message) => stdio.send(message);
  stdio.onmessage = (message) => http.send(message);
  http.onclose = () => stdio.close();
  await stdio.start();
  await http.start();
  return http;
}

export async function serve(parley, env) {
  const sessions = new Map();
  const server = createServer(async (request, response) => {
    const http = sessions.get(request.headers["mcp-session-id"]) ?? (await session(sessions, parley, env));
    await http.handleRequest(request, response);
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  return {
    url: `http://127.0.0.1:${server.address().port}/mcp`,
    close: async () => {
      for (const http of sessions.values()) await http.close();
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}
