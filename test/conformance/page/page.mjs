// Looks at the operator's page and at the front page in headless Chromium: a new server, one that is used, and one whose database is
// unavailable; desktop and phone; light and dark. Nothing may appear on the console, be loaded from elsewhere, run, or stick out of the screen,
// and axe-core may find nothing. Writes screenshots into a folder.
//
//   CHROMIUM=/usr/bin/chromium PARLEY=bin/parley POSTGRES=bin/chain-postgres node test/conformance/page/page.mjs FOLDER
import { strict as assert } from "node:assert";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { startWorld } from "./world.mjs";

const require = createRequire(import.meta.url);
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const folder = process.argv[2];
mkdirSync(folder, { recursive: true });

const screens = [
  { name: "desktop", width: 1280, height: 800 },
  { name: "phone", width: 360, height: 740 },
];
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-lcd-text"],
});
let looks = 0;

// look opens a page on each screen, and checks it in each color scheme. It must have the texts of says.
async function look(url, name, says) {
  for (const { name: screen, width, height } of screens) {
    const context = await browser.newContext({ viewport: { width, height }, reducedMotion: "reduce", locale: "en" });
    const page = await context.newPage();
    const complaints = [];
    page.on("console", (message) => complaints.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => complaints.push(`script: ${error}`));
    page.on("dialog", (dialog) => complaints.push(`dialog: ${dialog.message()}`));
    page.on("requestfailed", (request) => complaints.push(`failed: ${request.url()}`));
    page.on("request", (request) => {
      if (request.url() !== url && !request.url().startsWith("data:")) complaints.push(`loads ${request.url()}`);
    });
    const began = Date.now();
    const response = await page.goto(url, { waitUntil: "load" });
    const took = Date.now() - began;
    assert.equal(response.status(), 200, name);
    if (name === "away") assert(took < 4000, `${name}: it took ${took} ms`); // two seconds, and the browser's
    const text = await page.innerText("body");
    for (const pattern of says) assert.match(text, pattern, name);
    await page.evaluate(axe);
    for (const colorScheme of ["light", "dark"]) {
      const what = `${name}, ${screen}, ${colorScheme}`;
      await page.emulateMedia({ colorScheme });
      const [, brightness] = (await page.evaluate("getComputedStyle(document.body).backgroundColor")).match(/^rgb\((\d+)/);
      assert.equal(brightness > 128, colorScheme === "light", `${what}: the background`);
      const [wide, outside] = await page.evaluate(sticksOut);
      assert(wide <= width && outside.length === 0, `${what}: the page is ${wide} px wide on ${width}: ${outside}`);
      const { violations } = await page.evaluate("axe.run({ resultTypes: ['violations'] })");
      for (const { id, nodes } of violations) complaints.push(`axe ${id}: ${nodes.map(({ html, failureSummary }) => html.slice(0, 200) + failureSummary).join("; ")}`);
      assert.deepEqual(complaints, [], what);
      const shown = name === "away" && screen === "desktop" ? "dark" : "light";
      if (colorScheme === shown) await page.screenshot({ path: join(folder, `${name}-${screen}.png`), fullPage: true, animations: "disabled" });
      looks++;
    }
    await context.close();
  }
  console.log(`ok  ${name}`);
}

// sticksOut runs in the browser. Tables may be wider than the screen where they scroll by themselves.
function sticksOut() {
  const outside = [...document.querySelectorAll("body *")].filter((element) => {
    const { right, width } = element.getBoundingClientRect();
    return width > 1 && right > window.innerWidth + 1 && !element.closest(".scroll, pre");
  });
  return [document.documentElement.scrollWidth, outside.map((element) => element.outerHTML.slice(0, 120))];
}

// figures waits until the page has a text. It waits two seconds for the figures of the database, and a busy machine takes longer.
async function figures(page, text) {
  for (let tries = 0; tries < 30 && !(await (await fetch(page)).text()).includes(text); tries++)
    await new Promise((resolve) => setTimeout(resolve, 1_000));
}

const world = await startWorld();
try {
  await figures(world.page, "No agent has an account yet");
  await look(world.page, "empty", [/No paid call in the last 14 days/, /No payment is open/, /No agent has an account yet/]);
  await world.use();
  await look(`${world.url}/`, "front-page", [/For agents/, /skill\.md/, /openapi\.json/, /What it costs/]);
  await figures(world.page, "the_longest_name_that_there_is_1");
  await look(world.page, "busy", [/the_longest_name_that_there_is_1/, /2 problems|1 problem/, /2 unknown/, /1 undeliverable/, /agent_not_found|path_not_found/, /<script>alert\(1\)<\/script>/]);
  await world.loseDatabase();
  await new Promise((resolve) => setTimeout(resolve, 3_000)); // the page keeps the state of the database for two
  await look(world.page, "away", [/Database: it does not respond/, /Last known figures/, /the_longest_name_that_there_is_1/]);
} catch (error) {
  console.error(world.log().split("\n").slice(-20).join("\n"));
  throw error;
} finally {
  await browser.close();
}
const { dependencies } = JSON.parse(readFileSync(new URL("package.json", import.meta.url)));
const checked = `operator's page (new, used, without database) and front page: ${looks} looks on desktop and phone, light and dark`;
console.log(`TABLE|Chromium, axe-core|${browser.version()}, ${dependencies["axe-core"]}|${checked}|0`);
process.exit(); // ends the processes too
