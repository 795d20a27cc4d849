#!/usr/bin/env bash
# `make product`: each check of the contract, one after the other; then a table of what each says of itself (its lines
# TABLE|tool|version|what it checked|findings). All that the checks print is in bin/product. The first failure ends it.
set -euo pipefail
cd "$(dirname "$0")/.."

logs=bin/product
rm -rf "$logs" && mkdir -p "$logs"
for check in "$@"; do
  begun=$SECONDS
  if ! make --no-print-directory "$check" >"$logs/$check.log" 2>&1; then
    tail -n 80 "$logs/$check.log"
    echo "make $check failed; all of it is in $logs/$check.log" >&2
    exit 1
  fi
  grep -q '^TABLE|' "$logs/$check.log" || { echo "make $check does not say what it checked" >&2; exit 1; }
  printf 'ok  make %-16s %4d s\n' "$check" $((SECONDS - begun))
done
echo
for check in "$@"; do sed -n 's/^TABLE|//p' "$logs/$check.log"; done | awk -F'|' '
  function row(a, b, c, d) { printf "%-38s  %-22s  %-90s  %s\n", a, b, c, d }
  BEGIN { row("tool", "version", "checked", "findings"); row("----", "-------", "-------", "--------") }
  { row($1, $2, $3, $4); found += $4 }
  END { exit found > 0 }'
