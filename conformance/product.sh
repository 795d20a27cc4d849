#!/usr/bin/env bash
# `make product`: runs the checks of the contract and prints a table of their results (their lines
# TABLE|tool|version|what was checked|findings). The first check takes as long as the others together and runs in parallel with
# them. Logs are in bin/product. Stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=bin/product
rm -rf "$logs" && mkdir -p "$logs"

check() { # check TARGET
  local begun=$SECONDS
  if ! make --no-print-directory "$1" >"$logs/$1.log" 2>&1; then
    tail -n 80 "$logs/$1.log"
    echo "make $1 failed; see $logs/$1.log" >&2
    return 1
  fi
  grep -q '^TABLE|' "$logs/$1.log" || { echo "make $1 printed no TABLE line" >&2; return 1; }
  printf 'ok  make %-16s %4d s\n' "$1" $((SECONDS - begun))
}

# Prepare what both sequences need.
make --no-print-directory build postgres bin/schemathesis >"$logs/prepared.log" 2>&1 || { tail -n 80 "$logs/prepared.log"; exit 1; }
set -m # a separate process group, so that the trap can end all of it
check "$1" &
beside=$!
set +m
trap 'kill -- "-$beside" 2>/dev/null || true' EXIT
for target in "${@:2}"; do check "$target"; done
wait "$beside"
trap - EXIT

echo
for target in "${@:2}" "$1"; do sed -n 's/^TABLE|//p' "$logs/$target.log"; done | awk -F'|' '
  function row(a, b, c, d) { printf "%-38s  %-22s  %-90s  %s\n", a, b, c, d }
  BEGIN { row("tool", "version", "checked", "findings"); row("----", "-------", "-------", "--------") }
  { row($1, $2, $3, $4); found += $4 }
  END { exit found > 0 }'
