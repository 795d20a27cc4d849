#!/usr/bin/env bash
# `make product`: runs the checks of the contract and prints a table of their results (their lines
# TABLE|tool|version|what was checked|findings). The checks before and after -- are two sequences that run in parallel; those of
# the first one install nothing. Logs are in bin/product. Stops at the first failure.
#
#   product.sh TARGET... -- TARGET...
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
make --no-print-directory build postgres published bin/schemathesis bin/sdk/python/venv test/conformance/node_modules >"$logs/prepared.log" 2>&1 || { tail -n 80 "$logs/prepared.log"; exit 1; }
beside=()
while [ "$1" != -- ]; do beside+=("$1"); shift; done
shift
set -m # a separate process group, so that the trap can end all of it
for target in "${beside[@]}"; do check "$target"; done &
first=$!
set +m
trap 'kill -- "-$first" 2>/dev/null || true' EXIT
for target; do check "$target"; done
wait "$first"
trap - EXIT

echo
for target in "$@" "${beside[@]}"; do sed -n 's/^TABLE|//p' "$logs/$target.log"; done | awk -F'|' '
  function row(a, b, c, d) { printf "%-38s  %-22s  %-90s  %s\n", a, b, c, d }
  BEGIN { row("tool", "version", "checked", "findings"); row("----", "-------", "-------", "--------") }
  { row($1, $2, $3, $4); found += $4 }
  END { exit found > 0 }'
