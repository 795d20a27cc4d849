// Starts the server that openapi-mcp-generator makes, as an MCP client does, and checks its tools: one per operation, named like it;
// the description has the price; each field of the request is a parameter.
import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const contract = JSON.parse(readFileSync("bin/published/openapi.json", "utf8"));
const operations: any[] = Object.values(contract.paths).flatMap((path: any) => Object.values(path));
const fieldsOf = (operation: any): string[] => {
  const [, , , name] = operation.requestBody?.content["application/json"].schema.$ref.split("/") ?? [];
  return name ? Object.keys(contract.components.schemas[name].properties) : (operation.parameters ?? []).map((parameter: any) => parameter.name);
};

const client = new Client({ name: "generators", version: "1" });
await client.connect(new StdioClientTransport({ command: process.execPath, args: ["bin/generators/typescript/js/server.mjs"], stderr: "ignore" }));
const { tools } = await client.listTools();
await client.close();

assert.deepEqual(tools.map((tool) => tool.name), operations.map((operation) => operation.operationId));
for (const [i, tool] of tools.entries()) {
  const operation = operations[i];
  const price = operation["x-payment-info"]?.price.amount;
  assert(tool.description?.includes(price ? `Costs ${price} USD.` : "Free."), `${tool.name} is described without its price: ${tool.description}`);
  const { requestBody, ...query }: Record<string, any> = tool.inputSchema.properties ?? {};
  const parameters = requestBody?.properties ?? query;
  assert.deepEqual(Object.keys(parameters), fieldsOf(operation), tool.name);
  for (const [name, schema] of Object.entries<any>(parameters)) assert(schema.description, `${tool.name}: ${name} is not described`);
}
console.log(`openapi-mcp-generator: ${tools.length} tools`);
