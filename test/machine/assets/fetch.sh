#!/usr/bin/env bash
# Fetches what the machine lab runs on from the distribution's archive and unpacks it below one folder; nothing is installed.
# Usage: fetch.sh <folder> [--generic]. With --generic the distribution's kernel for any machine comes, too, which only the full
# suite needs. Each is done once: a stamp names the packages, and another list is fetched again.
set -euo pipefail

folder="${1:?usage: fetch.sh <folder> [--generic]}"
packages=(qemu-system-x86 qemu-system-common qemu-system-data seabios ipxe-qemu ovmf ipxe systemd-boot-efi swtpm swtpm-libs)
updated=""

# unpack <name> <metapackage of a kernel> <package>... puts kernel and packages into <folder>/<name>.
unpack() {
	local name="$1" kernel="$2" stamp="$folder/$1.stamp" debs="$folder/debs" new="$folder/new" real
	shift 2
	if [[ "$(cat "$stamp" 2>/dev/null)" == "$* $kernel" ]]; then
		return
	fi
	command -v apt-get >/dev/null || { echo "the machine lab is made of Debian packages, and apt-get is missing" >&2; exit 1; }
	if [[ -z "$updated" && "$(id -u)" == 0 ]]; then apt-get update -qq; fi # old lists name versions that are gone from the archive
	updated=yes
	real="$(apt-cache depends "$kernel" | awk '/Depends: linux-image-/ {print $2; exit}')" # its name changes with every update
	local libraries=()
	if [[ $# -gt 0 ]]; then # those that this system has not installed, as apt would install them
		mapfile -t libraries < <(apt-get install -s --no-install-recommends qemu-system-x86 swtpm | awk '/^Inst lib/ {print $2}')
	fi
	rm -rf "$debs" "$new"
	mkdir -p "$debs" "$new"
	chmod 777 "$debs" # apt downloads as a user of its own
	(cd "$debs" && apt-get download -qq "$@" "${libraries[@]}" "$real")
	for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$new"; done
	rm -rf "$debs" "${folder:?}/$name"
	mv "$new" "$folder/$name"
	echo "$* $kernel" >"$stamp"
}

unpack root linux-image-cloud-amd64 "${packages[@]}"
if [[ "${2:-}" == --generic ]]; then unpack generic linux-image-amd64; fi
