// Values and fields of a newer server do not break a generated SDK, neither its types nor the mappers of typescript-fetch. A
// charge that is unknown is not a false.
import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";
import { ParleyErrorFromJSON, UnreadPageFromJSON } from "../../../../bin/generators/typescript/typescript-fetch/index.ts";
import type * as Kubb from "../../../../bin/generators/typescript/kubb/index.ts";
import type * as Codegen from "../../../../bin/generators/typescript/openapi-typescript-codegen/index.ts";
import type * as Orval from "../../../../bin/generators/typescript/orval/index.ts";

const literal = { success: false, message: "a rule of a newer server", code: "code_of_a_newer_server", request_id: "req_1" };
const typed: [Kubb.ParleyError, Codegen.ParleyError, Orval.ParleyError] = [literal, literal, literal];

const newer = JSON.parse(readFileSync("test/conformance/newer.json", "utf8"));
const error = ParleyErrorFromJSON(newer.error);
assert.deepEqual([error.code, error.charged], [typed[0].code, undefined]);
const unread = UnreadPageFromJSON(newer.unread);
assert.deepEqual([unread.notices[0]?.type, unread.messages[0]?.about?.type], ["type_of_a_newer_server", "type_of_a_newer_server"]);
