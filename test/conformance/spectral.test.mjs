// Breaks the contract once for each of our rules, and expects that rule and no other to report it.
//
//   node --test spectral.test.mjs
import { strict as assert } from "node:assert";
import * as fs from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { webcrypto } from "node:crypto";
import spectral from "@stoplight/spectral-core";
import parsers from "@stoplight/spectral-parsers";
import { bundleAndLoadRuleset } from "@stoplight/spectral-ruleset-bundler/with-loader";
import { parse } from "@stoplight/yaml";

globalThis.crypto ??= webcrypto; // Node 18 (Debian 12) does not export it

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const contract = fs.readFileSync(here("../../openapi.yaml"), "utf8");
const written = parse(fs.readFileSync(here(".spectral.yaml"), "utf8")).rules;
const ours = Object.keys(written).filter((rule) => typeof written[rule] === "object");
const ruleset = await bundleAndLoadRuleset(here(".spectral.yaml"), { fs, fetch });
for (const [name, rule] of Object.entries(ruleset.rules)) rule.enabled = ours.includes(name); // the others are slow
const linter = new spectral.Spectral();
linter.setRuleset(ruleset);

const lint = async (document) => {
  const findings = await linter.run(new spectral.Document(JSON.stringify(document), parsers.Json, "contract.json"));
  return findings.map(({ code, path }) => `${code} ${path.join(".")}`);
};

const send = (document) => document.paths["/chat/private/send"].post;
const schemas = (document) => document.components.schemas;

const breaks = {
  "operation-priced-or-free": {
    "a price is forgotten": [
      (d) => delete send(d)["x-payment-info"],
      "paths./chat/private/send.post",
    ],
    "a free operation asks for a key": [(d) => delete d.paths["/health"].get.security, "paths./health.get"],
    "a free operation returns 402": [
      (d) => (d.paths["/health"].get.responses["402"] = { $ref: "#/components/responses/PaymentRequired" }),
      "paths./health.get",
    ],
    "a priced operation has no 402": [(d) => delete send(d).responses["402"], "paths./chat/private/send.post"],
    "402 does not say how to pay": [
      (d) => (send(d).responses["402"] = { $ref: "#/components/responses/Unauthorized" }),
      "paths./chat/private/send.post",
    ],
    "200 does not name the settlement": [
      (d) => delete send(d).responses["200"].headers["PAYMENT-RESPONSE"],
      "paths./chat/private/send.post",
    ],
  },
  "price-six-digits": {
    "three digits": [
      (d) => (send(d)["x-payment-info"].price.amount = "0.005"),
      "paths./chat/private/send.post.x-payment-info.price.amount",
    ],
    "a number": [
      (d) => (send(d)["x-payment-info"].price.amount = 0.005),
      "paths./chat/private/send.post.x-payment-info.price.amount",
    ],
    "another currency": [
      (d) => (send(d)["x-payment-info"].price.currency = "EUR"),
      "paths./chat/private/send.post.x-payment-info.price.currency",
    ],
  },
  "operation-id-words": {
    "one word": [(d) => (send(d).operationId = "send"), "paths./chat/private/send.post.operationId"],
    "snake case": [(d) => (send(d).operationId = "send_message"), "paths./chat/private/send.post.operationId"],
  },
  "request-example": {
    "a request without": [
      (d) => delete send(d).requestBody.content["application/json"].example,
      "paths./chat/private/send.post.requestBody.content.application/json",
    ],
  },
  "response-example": {
    "a 200 without": [
      (d) => delete send(d).responses["200"].content["application/json"].example,
      "paths./chat/private/send.post.responses.200.content.application/json",
    ],
    "an error without": [
      (d) => delete d.components.responses.Deleted.content["application/json"].example,
      "components.responses.Deleted.content.application/json",
    ],
  },
  "parameter-example": {
    "a parameter without": [(d) => delete d.paths["/agent/unread"].get.parameters[0].example, "paths./agent/unread.get.parameters.0"],
  },
  "request-closed": {
    "a body": [
      (d) => delete schemas(d).SendPrivateMessageRequest.additionalProperties,
      "components.schemas.SendPrivateMessageRequest",
    ],
    "an object inside a body": [
      (d) => (schemas(d).SendPrivateMessageRequest.properties.place = { type: "object", description: "Where." }),
      "components.schemas.SendPrivateMessageRequest.properties.place",
    ],
  },
  "request-bounded": {
    "a string": [(d) => delete schemas(d).Content.maxLength, "components.schemas.Content"],
    "an array": [(d) => delete schemas(d).AgentIDs.maxItems, "components.schemas.AgentIDs"],
    "what an array holds": [(d) => (schemas(d).AgentIDs.items = { type: "string" }), "components.schemas.AgentIDs.items"],
    "a number in a query": [
      (d) => (d.paths["/agent/unread"].get.parameters[0].schema = { type: "integer", minimum: 1 }),
      "paths./agent/unread.get.parameters.0.schema",
    ],
  },
  "property-described": {
    "a property": [(d) => delete schemas(d).ActionResult.properties.message.description, "components.schemas.ActionResult.properties.message"],
    "what a property refers to": [(d) => delete schemas(d).SourceType.description, "components.schemas.SourceType"],
    "a schema": [(d) => delete schemas(d).OwnAgent.description, "components.schemas.OwnAgent"],
  },
};

test("the contract as it is", async () => {
  assert.deepEqual(await lint(parse(contract)), []);
});

test("every rule of ours is broken here", () => {
  assert.deepEqual(Object.keys(breaks).sort(), ours.sort());
});

for (const [rule, cases] of Object.entries(breaks)) {
  for (const [name, [breakIt, where]] of Object.entries(cases)) {
    test(`${rule}: ${name}`, async () => {
      const document = parse(contract);
      breakIt(document);
      assert.deepEqual([...new Set(await lint(document))], [`${rule} ${where}`]);
    });
  }
}
