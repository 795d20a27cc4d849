// A Debian machine in a container of systemd-nspawn: systemd is process 1, the network is only its own loopback, and what it writes is
// gone afterwards. It needs root and Linux with cgroup 2. The Debian packages that a test installs are downloaded once, into the cache.
import { strict as assert } from "node:assert";
import { spawn, spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, renameSync, rmSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";

const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "parley", "debian");

// run runs a program and returns its output. It must succeed.
export function run(program, parameters, options = {}) {
  const { status, stdout, stderr, error } = spawnSync(program, parameters, { encoding: "utf8", maxBuffer: 1 << 26, timeout: 900_000, ...options });
  assert.equal(status, 0, `${program} ${parameters.join(" ")}: ${error ?? ""}\n${stdout}${stderr}`);
  return stdout;
}

// base returns the folder with a bare Debian, as debootstrap makes it, and the packages to install in its cache.
function base(suite, packages) {
  const folder = join(cache, [suite, ...packages].join("+"));
  if (existsSync(folder)) return folder;
  console.log(`making a Debian ${suite} in ${folder}`);
  mkdirSync(cache, { recursive: true });
  rmSync(`${folder}.new`, { recursive: true, force: true });
  run("debootstrap", [suite, `${folder}.new`]);
  const download = `apt-get update -qq && apt-get install -y -qq --download-only ${packages.join(" ")}`;
  run("chroot", [`${folder}.new`, "sh", "-c", download], { env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" } });
  renameSync(`${folder}.new`, folder);
  return folder;
}

// Of the host's control groups the container gets version 2 only, also if the host has both.
const boot = `
mount --make-rprivate / && mount -t tmpfs tmpfs "$1" && mkdir "$1/upper" "$1/work" "$1/root" &&
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root" &&
umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup &&
mkdir -p "/sys/fs/cgroup/$3" && echo $$ >"/sys/fs/cgroup/$3/cgroup.procs" &&
exec systemd-nspawn --quiet --boot --directory="$1/root" --machine="$3" --private-network --register=no --keep-unit --console=pipe`;

export class Machine {
  constructor(suite, packages) {
    this.suite = suite;
    this.folder = mkdtempSync(join(tmpdir(), "parley-machine-"));
    this.name = `parley-${suite}-${process.pid}`;
    const log = openSync(join(this.folder, "..", `${this.name}.log`), "w");
    const parameters = ["--mount", "sh", "-c", boot, "sh", this.folder, base(suite, packages), this.name];
    this.process = spawn("unshare", parameters, { stdio: ["ignore", log, log] });
    closeSync(log);
    this.ended = new Promise((done) => this.process.once("exit", done));
  }

  // boot waits until systemd has started everything.
  async boot() {
    for (let tries = 0; ; tries++) {
      // The process is nspawn, whose child is the container's systemd.
      const leader = spawnSync("ps", ["-o", "pid=", "--ppid", `${this.process.pid}`], { encoding: "utf8" }).stdout.trim();
      if (leader && this.process.exitCode === null) {
        this.leader = leader;
        const state = this.try("systemctl is-system-running").stdout.trim();
        if (["running", "degraded"].includes(state)) return;
      }
      assert.ok(tries < 120 && this.process.exitCode === null, `the machine does not start:\n${this.log()}`);
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }

  log() {
    return readFileSync(join(this.folder, "..", `${this.name}.log`), "utf8");
  }

  // try runs a command in a shell of root and returns status and output.
  try(command) {
    const environment = ["-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"];
    const inside = ["-t", this.leader, "-m", "-u", "-i", "-n", "-p", "-C", "env", ...environment, "DEBIAN_FRONTEND=noninteractive"];
    const shell = [...inside, "bash", "--norc", "-euo", "pipefail", "-c", `cd /root\n${command}`];
    return spawnSync("nsenter", shell, { encoding: "utf8", maxBuffer: 1 << 26, timeout: 600_000 });
  }

  // sh returns the output of a command that must succeed.
  sh(command) {
    const { status, stdout, stderr } = this.try(command);
    assert.equal(status, 0, `${this.suite}: ${command}\n${stdout}${stderr}`);
    return stdout.trim();
  }

  // beside starts a program of the host that has the machine's network.
  beside(program, parameters, env) {
    const inside = ["-t", this.leader, "-n", program, ...parameters];
    return spawn("nsenter", inside, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  }

  // put copies a file of the host into the machine, and get the other way.
  put(from, to) {
    run("sh", ["-c", `nsenter -t ${this.leader} -m sh -c 'cat >"$0"' "$1" <"$0"`, from, to]);
  }

  get(from, to) {
    run("sh", ["-c", `nsenter -t ${this.leader} -m cat "$0" >"$1"`, from, to]);
  }

  async stop() {
    if (this.process.exitCode === null) {
      if (this.leader) this.try("systemctl --no-block poweroff");
      const late = setTimeout(() => process.kill(this.leader ?? this.process.pid, "SIGKILL"), 30_000);
      await this.ended;
      clearTimeout(late);
    }
    rmSync(this.folder, { recursive: true, force: true });
    rmSync(`${this.folder}/../${this.name}.log`, { force: true });
  }
}
