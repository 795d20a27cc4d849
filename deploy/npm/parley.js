#!/usr/bin/env node
// Runs the program in the package of this platform, with the same arguments, input and output.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const platform = `${process.platform}-${process.arch}`;
let program;
try {
  program = require.resolve(`@parley-chat/parley-${platform}/bin/parley${process.platform === "win32" ? ".exe" : ""}`);
} catch {
  console.error(
    `parley: the package @parley-chat/parley-${platform} is not installed. npm leaves it out with --omit=optional, and in a folder that ` +
      "another system installed: install again here. If there is no such package, build from https://github.com/parley-chat/parley",
  );
  process.exit(1);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends SIGINT to the program too, and a second one would end it at once.
process.on("SIGINT", () => process.stdin.isTTY || child.kill("SIGINT"));
process.on("SIGTERM", () => child.kill("SIGTERM"));
process.on("SIGHUP", () => child.kill("SIGHUP"));
child.on("error", (error) => {
  console.error(`parley: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
