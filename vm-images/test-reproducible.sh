#!/bin/bash
# Builds the image twice from the cache of packages, under another umask, time zone, language and tree, and compares
# every byte; then has a copy in the cache with one flipped byte rebuilt. Exit 0 equal, 1 different, 3 could not build.
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
packages=${XDG_CACHE_HOME:-$HOME/.cache}/flamelab/debs
hash=$(sed -n 's/.*"lock_hash": "\([0-9a-f]*\)".*/\1/p' "$dir/a/manifest.json")
copy=$dir/cache/flamelab/images/$hash
mkdir -p "$copy"
ln -s "$packages" "$dir/cache/flamelab/debs"
cp "$dir"/a/* "$copy/"
printf '\377' | dd of="$copy/root.ext4" bs=1 seek=5000000 conv=notrunc status=none
cmp -s "$dir/a/root.ext4" "$copy/root.ext4" && { echo "image: the byte was 0xff already, flip another" >&2; exit 1; }
XDG_CACHE_HOME=$dir/cache "$here/build.sh" || exit 3
cmp "$dir/a/root.ext4" "$copy/root.ext4" || { echo "image: a damaged copy in the cache was used" >&2; exit 1; }
echo "image: two builds from one lock are the same, $(du -sh --apparent-size "$dir/a" | cut -f1)"
