#!/bin/bash
# Builds the image twice from the cache of packages, under another umask, time zone, language and tree, and compares
# every byte. Exit 0 equal, 1 different, 3 could not build.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/flamelab-twice.XXXXXX")
trap 'rm -rf "$dir"' EXIT
(umask 022; TZ=UTC LANG=C "$here/build.sh" --output "$dir/a") || exit 3
(umask 077; unset LC_ALL; TZ=Pacific/Kiritimati LANG=tr_TR.UTF-8 TMPDIR="$dir" "$here/build.sh" --output "$dir/b") || exit 3
bad=0
for f in vmlinux modules.cpio root.ext4 manifest.json; do
	cmp "$dir/a/$f" "$dir/b/$f" || bad=1
done
[ $bad = 0 ] || { echo "image: two builds from one lock differ" >&2; exit 1; }
echo "image: two builds from one lock are the same, $(du -sh --apparent-size "$dir/a" | cut -f1)"
