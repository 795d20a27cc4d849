import { defineConfig } from "@hey-api/openapi-ts";

export default defineConfig({
  input: "../../../../bin/published/openapi.json",
  // The extension lets Node run the SDK as it is, without a build.
  output: { path: "../../../../bin/sdk/typescript/hey-api", module: { extension: ".ts" } },
  plugins: ["@hey-api/client-fetch", "@hey-api/typescript", "@hey-api/sdk"],
});
