// Reads a contract with JavaScript libraries, and prints what each of them read as JSON.
//
//   node readers.mjs openapi.yaml

import SwaggerParser from "@apidevtools/swagger-parser";
import { load } from "js-yaml";
import { readFile } from "node:fs/promises";
import { parse } from "yaml";

const path = process.argv[2];
const text = await readFile(path, "utf8");
await SwaggerParser.validate(path);
console.log(JSON.stringify({
  yaml: parse(text),
  "js-yaml": load(text),
  "@apidevtools/swagger-parser": await SwaggerParser.parse(path),
}));
