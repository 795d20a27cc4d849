#!/usr/bin/env bash
# Packs the npm packages of VERSION: one for each program for agents in PROGRAMS, where GoReleaser built them, and one that finds the
# program of its platform. Writes them and server.json, the entry of the MCP registry, into FOLDER.
#
#   VERSION=1.0.0 SOURCE_DATE_EPOCH=1700000000 pack.sh PROGRAMS FOLDER
#
# It does not use `npm pack`, whose bytes depend on the version of Node.
set -euo pipefail
programs=$1 folder=$2 files=$(dirname "$0") os='' cpu=''
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
package=$work/package

# fill FILE prints a file of this folder with the version and the platform, in npm's words.
fill() { sed "s/@VERSION@/$VERSION/; s/@OS@/$os/g; s/@CPU@/$cpu/g" "$files/$1"; }

# pack NAME packs $package, the same files into the same bytes.
pack() {
  tar --create --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=a=rX,u+w \
    --directory="$work" package | gzip -9 --no-name >"$folder/$1-$VERSION.tgz"
  rm -r "$package"
}

for program in "$programs"/agent_*/parley*; do
  IFS=_ read -r _ os cpu _ <<<"$(basename "$(dirname "$program")")" # agent_windows_amd64_v1
  os=${os/windows/win32} cpu=${cpu/amd64/x64}
  mkdir -p "$package/bin"
  cp LICENSE bin/THIRD_PARTY_LICENSES "$package"
  cp "$files/PLATFORM.md" "$package/README.md"
  fill platform.json >"$package/package.json"
  install -m 755 "$program" "$package/bin"
  pack "parley-chat-parley-$os-$cpu"
done

mkdir -p "$package/bin"
cp LICENSE "$files/README.md" "$package"
fill package.json >"$package/package.json"
cp "$files/parley.js" "$package/bin"
pack parley-chat-parley
fill server.json >"$folder/server.json"
