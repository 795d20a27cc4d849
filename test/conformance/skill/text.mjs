// The skill as text: its parts, its code blocks, and a shell that runs its commands.
import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

// blocks returns the skill's fenced code blocks, each with the text before it.
function blocks(skill) {
  const found = [];
  let end = 0;
  for (const match of skill.matchAll(/^```(\w*)\n([\s\S]*?)^```$/gm)) {
    found.push({ language: match[1], text: match[2].trim(), before: skill.slice(end, match.index).trim() });
    end = match.index + match[0].length;
  }
  return found;
}

// fits reports whether an output matches the stated one, in which … matches anything. White space at the ends is ignored.
function fits(output, stated) {
  const pattern = stated.split("…").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("[\\s\\S]*?");
  return new RegExp(`^\\s*${pattern}\\s*$`).test(output);
}

export function checkFrontMatter(skill) {
  const front = skill.match(/^---\n([\s\S]*?)\n---\n/)[1];
  const field = (name) => front.match(new RegExp(`^${name}: (.*)$`, "m"))?.[1] ?? "";
  assert.equal(field("name"), "parley", "the skill's name is its folder's");
  assert(field("description").length <= 1024 && /Use when/.test(field("description")), "the description says what and when");
  assert(field("compatibility").length <= 500);
  assert(skill.split("\n").length <= 305, "the skill is to be read in one go");
}

// partsOf returns the part of the skill with the commands of the program parley, and the part for machines without it.
export function partsOf(skill) {
  const [commands, http, ...others] = skill.split(/^## Without the program$/m);
  assert(http && others.length === 0, "the skill has two parts");
  return { commands, http };
}

// exitCodesOf returns the exit code of each error code in the table of the skill.
function exitCodesOf(skill) {
  const rows = [...skill.matchAll(/^\| (\d+) \| (.*?) \| /gm)];
  return new Map(rows.flatMap(([, exit, codes]) => [...codes.matchAll(/`(\w+)`/g)].map(([, code]) => [code, Number(exit)])));
}

// openShell starts one shell for the whole skill, so that commands share variables. The code of commands is that of the last one
// that failed.
function openShell(directory, environment) {
  const shell = spawn("bash", { cwd: directory, env: environment, stdio: ["pipe", "pipe", "inherit"] });
  let printed = "";
  shell.stdout.on("data", (chunk) => (printed += chunk));
  shell.stdin.write("exec 2>&1; set -o pipefail; trap 'failed=$?' ERR\n");
  return {
    async run(commands) {
      printed = "";
      shell.stdin.write(`failed=0\n${commands}\nprintf '\\036%s\\036' $failed\n`);
      const deadline = Date.now() + 300_000;
      for (;;) {
        const [, output, code] = printed.match(/^([\s\S]*)\x1e(\d+)\x1e$/) ?? [];
        if (code) return { output: output.trim(), code: Number(code) };
        assert(Date.now() < deadline && shell.exitCode === null, `no end of:\n${commands}\n${printed}`);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    },
    close: () => shell.stdin.end(),
  };
}

// commandsOf returns what a reader of a part runs who works in one language: the commands, each with the output that the skill states.
function commandsOf(part, program) {
  const list = blocks(part);
  const commands = [];
  for (let i = 0; i < list.length; i++) {
    const { language, text } = list[i];
    if (language === "js") {
      if (program.file === "parley.mjs") commands.push({ text: "node example.mjs", example: text });
      continue;
    }
    assert.equal(language, "sh", `a block that is neither a command nor what one prints:\n${text}`);
    const next = list[i + 1];
    const stated = next && next.before === "" && ["json", "text"].includes(next.language) ? list[++i].text : undefined;
    if (program.others.some((other) => text.includes(`${other} install`))) continue;
    commands.push({ text: text.replaceAll("node parley.mjs", program.typed), stated });
  }
  return commands;
}

// runCommands runs the commands of a part of the skill and compares their output. between runs after each of them, with what it
// printed. It returns how many there were.
export async function runCommands(part, { directory, environment, program, between }) {
  const shell = openShell(directory, environment);
  const wrong = [];
  const commands = commandsOf(part, program);
  const exits = exitCodesOf(part);
  for (const { text, stated, example } of commands) {
    if (example) writeFileSync(join(directory, "example.mjs"), example);
    const { output, code } = await shell.run(text);
    const failure = stated?.includes('"success":false') && !text.startsWith("curl ");
    const refusal = stated?.match(/^\{"charged":false,"code":"(\w+)"/)?.[1];
    assert.equal(code, refusal ? exits.get(refusal) : failure ? 1 : 0, `${text}\nended with ${code}:\n${output}`);
    const right = stated === undefined || fits(output, stated);
    if (!right) wrong.push(`${text}\nprinted\n${output}\nand not\n${stated}`);
    console.log(`${right ? "ok " : "NOT"} ${text.split("\n").at(-1)}`);
    await between(output);
  }
  shell.close();
  assert.deepEqual(wrong, []);
  return commands.length;
}
