// The image runs on the machine with crun: as its user, with a read-only root, and without capabilities, against the database of the
// machine. The bundle for crun has what the image's configuration says.
import { strict as assert } from "node:assert";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { run } from "./machine.mjs";

const read = (file) => JSON.parse(readFileSync(file, "utf8"));

// unpack unpacks the image, an archive for Docker, into a folder and returns its configuration.
function unpack(archive, folder) {
  mkdirSync(join(folder, "rootfs"), { recursive: true });
  run("tar", ["-xf", archive, "-C", folder]);
  const [{ Config, Layers }] = read(join(folder, "manifest.json"));
  for (const layer of Layers) run("tar", ["-xf", join(folder, layer), "-C", join(folder, "rootfs")]);
  return read(join(folder, Config));
}

// bundle is a configuration for crun: the image's, on the network of the machine.
function bundle({ config }, args, environment) {
  const [uid, gid] = config.User.split(":").map(Number);
  return {
    ociVersion: "1.0.2",
    process: { user: { uid, gid }, args, env: [...config.Env, ...environment], cwd: "/", noNewPrivileges: true, capabilities: {} },
    root: { path: "/srv/image/rootfs", readonly: true },
    mounts: [{ destination: "/proc", type: "proc", source: "proc" }],
    linux: { namespaces: ["pid", "mount", "ipc", "uts"].map((type) => ({ type })) },
  };
}

export function image(machine, { archive, work, settings }) {
  const configuration = unpack(archive, join(work, "image"));
  const { config } = configuration;
  assert.equal(config.User, "65532:65532");
  assert.equal(config.Labels["org.opencontainers.image.licenses"], "Apache-2.0");
  machine.sh("apt-get install -y --no-install-recommends crun && mkdir -p /srv/image/{migrate,serve}");
  run("tar", ["-cf", join(work, "rootfs.tar"), "-C", join(work, "image"), "rootfs"]);
  machine.put(join(work, "rootfs.tar"), "/srv/image/rootfs.tar");
  // containerd and podman make folders for what they mount; crun alone wants them to exist.
  machine.sh("tar -xf /srv/image/rootfs.tar -C /srv/image && mkdir /srv/image/rootfs/{proc,dev}");
  machine.sh("openssl rand -hex 32 >/srv/image/rootfs/server-secret && chown 65532 /srv/image/rootfs/server-secret");
  const commands = { migrate: [...config.Entrypoint, "migrate"], serve: [...config.Entrypoint, ...config.Cmd] };
  for (const [name, args] of Object.entries(commands)) {
    writeFileSync(join(work, "config.json"), JSON.stringify(bundle(configuration, args, settings)));
    machine.put(join(work, "config.json"), `/srv/image/${name}/config.json`);
  }
  const crun = "crun --cgroup-manager=disabled";
  const start = `${crun} run --no-new-keyring --bundle /srv/image`; // systemd-nspawn allows no keyrings
  machine.sh(`${start}/migrate migrate`);
  machine.sh(`systemd-run --quiet --unit=image ${start}/serve parley`);
  const environment = [...config.Env, ...settings].map((one) => `--env '${one}'`).join(" ");
  const healthy = `${crun} exec --user 65532:65532 ${environment} parley /parley healthcheck`;
  machine.sh(`for i in $(seq 60); do if ${healthy}; then exit; fi; sleep 0.5; done; journalctl --unit image --output cat; exit 1`);
  const pid = machine.sh(`${crun} state parley | sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p'`);
  assert.equal(machine.sh(`stat -c %u:%g /proc/${pid}`), "65532:65532");
  assert.match(machine.sh(`cat /proc/${pid}/status`), /CapEff:\s0+\n[^]*NoNewPrivs:\s1/);
  assert.match(machine.sh(`awk '$5 == "/"' /proc/${pid}/mountinfo`), / ro,| ro /);
  machine.sh("systemctl stop image && rm -r /srv/image");
}
