// Runs the README: each line of its sh blocks in a shell, against a running server, and its Go block as a program. For a make
// target it only checks that the target exists; CI runs the targets. If a line's comment starts with a status, the line must print it.
// The program parley finds the server in PARLEY_SERVER, because it has another port than `make dev`, and its folders are temporary.
//
//   go run ./test/conformance/live bin/parley node test/conformance/snippets.mjs
import { strict as assert } from "node:assert";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Agent } from "./agent.mjs";
import { newFolder } from "./processes.mjs";

const { PARLEY_URL: url, PARLEY_FACILITATOR: facilitator } = process.env;
const repository = fileURLToPath(new URL("../..", import.meta.url));
const readme = readFileSync(join(repository, "README.md"), "utf8");
const directory = newFolder();
const here = (text) => text.replaceAll("http://127.0.0.1:8402", url).replaceAll("http://127.0.0.1:8403", facilitator);
const blocks = (language) => [...readme.matchAll(new RegExp(`^\`\`\`${language}\\n([\\s\\S]*?)^\`\`\`$`, "gm"))].map((match) => match[1]);

const run = (program, parameters, directory, more) => {
  const options = { cwd: directory, encoding: "utf8", timeout: 300_000, env: { ...process.env, ...more } };
  const { status, stdout, stderr } = spawnSync(program, parameters, options);
  assert.equal(status, 0, `${program} ${parameters.join(" ")}\n${stdout}${stderr}`);
  return stdout;
};

const program = join(repository, "bin", "_readme"); // ./... leaves it out
process.on("exit", () => rmSync(program, { recursive: true, force: true }));
const home = { HOME: directory, XDG_CONFIG_HOME: directory, PARLEY_SERVER: url, PARLEY_SECRETS: "file" };
let lines = 0;
symlinkSync(join(repository, "bin"), join(directory, "bin"));
for (const line of blocks("sh").join("").split("\n").filter(Boolean)) {
  const [command, comment = ""] = line.split(/\s+# /);
  const target = command.match(/^make ([\w-]+)$/)?.[1];
  const output = target ? run("make", ["-n", target], repository) : run("bash", ["-c", here(command)], directory, home);
  const status = comment.match(/^(\d{3})\b/)?.[1];
  if (status) assert.match(output, new RegExp(`^HTTP/1.1 ${status} `), line);
  if (command.includes("parley inbox")) assert.match(output, /"content":"hello".*"sender_username":"alice"/, "the message arrives");
  lines++;
  console.log(`ok  ${command.trim()}`);
}
const wallets = await (await fetch(`${facilitator}/accounts`)).json();
assert.equal(wallets.length, 10, "the README names ten wallets");
const [alice, bob] = wallets.map((wallet) => new Agent(url, wallet));
await alice.register("go_alice", "An agent of the README.");
await bob.register("go_bob", "Another one.");
const snippets = blocks("go");
mkdirSync(program, { recursive: true });
for (const snippet of snippets) {
  writeFileSync(
    join(program, "main.go"),
    `package main

import (
	"context"
	"os"

	"github.com/parley-chat/parley/client"
)

func main() {
	ctx, walletKey, apiKey, to := context.Background(), os.Args[1], os.Args[2], os.Args[3]
	os.Setenv("HOME", os.Args[4]) // the client stores its payment channels in the user's configuration
	os.Setenv("XDG_CONFIG_HOME", os.Args[4])
	${here(snippet)}
	if err != nil || sent.JSON200 == nil {
		panic(string(sent.Body))
	}
}
`,
  );
  run("go", ["run", "./bin/_readme", wallets[0].private_key, alice.key, bob.id, directory], repository);
  console.log(`ok  ${snippet.trim().split("\n").at(-1)}`);
}
const { messages } = await bob.call("GET", "/agent/unread");
assert.equal(messages.length, snippets.length);
assert.ok(lines >= 9, "the README has fewer commands");
console.log(`TABLE|README|-|${lines} commands, ${snippets.length} Go programs|0`);
