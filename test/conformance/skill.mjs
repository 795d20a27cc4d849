// Follows the agent skill like an agent that has nothing but the server's address: finds the skill, runs every command of a part in one
// shell, and compares the output with the skill. It does so with the program parley, and with a wallet in JavaScript and in Python.
// Then it loses the responses of the two wallets and kills them, alone and several at the same time.
//
//   PATH=bin/sdk/python/venv/bin:$PATH go run ./test/conformance/live bin/parley node test/conformance/skill.mjs
import { strict as assert } from "node:assert";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Agent } from "./agent.mjs";
import { followCommands } from "./skill/commands.mjs";
import { surviveFaults } from "./skill/faults.mjs";
import { refuseMistakes } from "./skill/mistakes.mjs";
import { checkFrontMatter, partsOf, runCommands } from "./skill/text.mjs";
import { surviveTogether } from "./skill/together.mjs";

const { PARLEY_URL: url, PARLEY_FACILITATOR: facilitator, PARLEY_PAY_TO: payTo } = process.env;
const [guidesWallet, ...wallets] = await (await fetch(`${facilitator}/accounts`)).json();
const balance = async (address) => BigInt((await (await fetch(`${facilitator}/balances/${address}`)).json()).balance);
const revenue = () => balance(payTo);

const kills = Number(process.env.SKILL_KILLS || 200);

// The programs: how the skill is told to use them, which installers are for the others, and how often their processes are killed.
const programs = [
  { name: "javascript", file: "parley.mjs", typed: "node parley.mjs", command: [process.execPath, "parley.mjs"], others: ["pip"], rounds: kills },
  { name: "python", file: "parley.py", typed: "python parley.py", command: ["python", "parley.py"], others: ["npm"], rounds: kills },
];

// environmentOf returns the environment of an agent, which does not contain the server's address: the skill sets it.
function environmentOf(wallet) {
  const { PARLEY_URL, PARLEY_FACILITATOR, PARLEY_PAY_TO, ...environment } = process.env;
  const old = Number(process.versions.node.split(".")[0]) < 20;
  return {
    ...environment,
    WALLET_KEY: wallet.private_key,
    PIP_NO_INDEX: "1", // the packages of our lock file are installed; pip fails if the skill names others
    ...(old && { NODE_OPTIONS: "--experimental-global-webcrypto" }),
  };
}

// findSkill finds the skill from the server's address alone.
async function findSkill() {
  const root = await fetch(url);
  assert.equal(root.status, 200);
  const named = await root.json();
  const llms = await (await fetch(named.llms_txt)).text();
  const [, skillURL] = llms.match(/\[skill\.md\]\((\S+)\)/) ?? assert.fail("llms.txt does not link the skill");
  assert.equal(skillURL, named.skill, "/ and llms.txt name one skill");
  const { message } = await (await fetch(`${url}/nothing`)).json();
  for (const link of [named.llms_txt, named.skill]) assert.ok(message.includes(`GET ${new URL(link).pathname}`), "a 404 names what / names");
  return (await fetch(skillURL)).text();
}

// checkVersions checks that the skill names the versions with which its programs are tested.
function checkVersions(skill) {
  const { dependencies } = JSON.parse(readFileSync(new URL("package.json", import.meta.url)));
  const [, npm] = skill.match(/^npm install (.*)$/m);
  for (const named of npm.split(" ")) {
    const [, name, version] = named.match(/^(.+)@([\d.]+)$/);
    assert.equal(version, dependencies[name], `the version of ${name}`);
  }
  const [, version] = skill.match(/^pip install .*"x402\[evm\]==([\d.]+)"$/m);
  const locked = readFileSync(new URL("sdk/python/requirements.txt", import.meta.url), "utf8");
  assert.equal(version, locked.match(/^x402(?:\[\S+\])?==([\d.]+) /m)?.[1], "the version of x402");
  const [, module] = skill.match(/`go install -tags noserver (\S+)\/cmd\/parley@latest`/);
  assert.equal(module, readFileSync(new URL("../../go.mod", import.meta.url), "utf8").match(/^module (\S+)$/m)[1], "the module of the program");
  return { javascript: npm.match(/@x402\/fetch@([\d.]+)/)[1], python: version };
}

// city_guide is the other agent of the skill. Between the commands it replies to questions about museums.
const guide = new Agent(url, guidesWallet);
async function guideReplies() {
  const { messages } = await guide.call("GET", "/agent/unread");
  for (const message of messages.filter(({ content }) => content.includes("museum"))) {
    await guide.call("POST", "/chat/private/send", { recipient_agent_id: message.sender_id, content: "The tile museum." });
  }
  return messages.map(({ content }) => content);
}

const temporary = mkdtempSync(join(tmpdir(), "parley-skill-"));
try {
  const skill = await findSkill();
  checkFrontMatter(skill);
  const versions = checkVersions(skill);
  await guide.register("city_guide", "I know every museum in Lisbon.");
  const { commands: withProgram, http } = partsOf(skill);
  const lines = [await followCommands(withProgram, { temporary, guide, guideReplies })];
  for (const [i, program] of programs.entries()) {
    const directory = mkdtempSync(join(temporary, "agent-"));
    const wallet = wallets[i];
    const shared = { url, directory, wallet, environment: environmentOf(wallet), program, guide, guideReplies, revenue, balance };
    if (program.name === "javascript") shared.other = programs[1]; // this folder has the packages of both
    const told = http.replaceAll("weather_oracle", `weather_oracle_${program.name}`);
    const commands = await runCommands(told, { ...shared, between: guideReplies });
    const mistakes = await refuseMistakes(shared);
    const faults = await surviveFaults(shared);
    const together = await surviveTogether(shared);
    const checked = `skills/parley: ${commands} code blocks run, ${mistakes} mistakes explained, ${faults} faults survived, ${together}`;
    lines.push(`TABLE|${program.file} of the skill|${versions[program.name]}|${checked}|0`);
  }
  console.log(lines.join("\n"));
} finally {
  rmSync(temporary, { recursive: true, force: true });
}
