#!/usr/bin/env bash
# Fetches what the machine lab runs on from the distribution's archive and unpacks it below one folder; nothing is installed.
# Usage: fetch.sh <folder>. Done once: the stamp names the packages, and another list is fetched again.
set -euo pipefail

root="${1:?usage: fetch.sh <folder>}"
packages=(qemu-system-x86 qemu-system-common qemu-system-data seabios ipxe-qemu ovmf ipxe systemd-boot-efi)
kernel=linux-image-cloud-amd64 # a metapackage: the name of what it stands for changes with every update
stamp="$root/stamp"

if [[ "$(cat "$stamp" 2>/dev/null)" == "${packages[*]} $kernel" ]]; then
	exit 0
fi
command -v apt-get >/dev/null || { echo "the machine lab is made of Debian packages, and apt-get is missing" >&2; exit 1; }
if [[ "$(id -u)" == 0 ]]; then apt-get update -qq; fi # old lists name versions that are gone from the archive

real="$(apt-cache depends "$kernel" | awk '/Depends: linux-image-/ {print $2; exit}')"
# The libraries of QEMU that this system has not installed, as apt would install them.
mapfile -t libraries < <(apt-get install -s --no-install-recommends qemu-system-x86 | awk '/^Inst lib/ {print $2}')

rm -rf "$root/debs" "$root/root.new"
mkdir -p "$root/debs" "$root/root.new"
chmod 777 "$root/debs" # apt downloads as a user of its own
(cd "$root/debs" && apt-get download -qq "${packages[@]}" "${libraries[@]}" "$real")
for deb in "$root"/debs/*.deb; do dpkg-deb -x "$deb" "$root/root.new"; done
rm -rf "$root/debs" "$root/root"
mv "$root/root.new" "$root/root"
echo "${packages[*]} $kernel" >"$stamp"
