#!/bin/bash
# build-kernel.sh [--refresh-lock] [--print-dir] - the VM image of build.sh with the kernel of Debian's next release.
#
# What loads on one kernel's verifier may be refused by another's, so the lab boots both. Only vmlinux and modules.cpio
# differ; root.ext4 is build.sh's own (a hard link). An image is under
# ${XDG_CACHE_HOME:-~/.cache}/flamelab/images-kernel/HASH/; HASH covers kernels.lock, this script, debs.sh, image.sh and the image
# that the root is of. The package comes from flamelab/debs/SHA256, else from suite "trixie" of the archive that this
# machine's apt is set up for.
#
#   --refresh-lock  write kernels.lock anew from what the archive serves today, then build
#   --print-dir     print the image's directory on stdout as the last thing
#
# Exit codes: 0 done, 2 usage, 3 could not build (the reason is the last line on stderr).
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022
here=$(cd "$(dirname "$0")" && pwd)
lock=$here/kernels.lock
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flamelab
debs_arch=amd64 tag=image-kernel
suite=trixie
. "$here/debs.sh"
. "$here/image.sh"
files=(modules.cpio vmlinux)

debs_options "$@"

# The same archive's next suite.
debs_sources() {
	local uri key=/usr/share/keyrings/debian-archive-keyring.gpg
	uri=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(COMPONENT) $(CODENAME)' 'Created-By: Packages' |
		awk '$2 == "Debian" && $3 == "main" && $4 !~ /-/ { print $1; exit }')
	[ -n "$uri" ] || fail "this machine's apt has read no list of Debian's main archive; run: apt-get update"
	mkdir -p "$work/apt/sources"
	{
		printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n' "$uri" "$suite"
		[ ! -e "$key" ] || printf 'Signed-By: %s\n' "$key"
	} >"$work/apt/sources/kernel.sources"
	apt_opts+=(-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/apt/sources")
}

write_lock() {
	local kernel
	debs_set_up
	kernel=$(debs_newest_kernel)
	[ -n "$kernel" ] || fail "linux-image-amd64 of $suite depends on no kernel"
	debs_served "$kernel" | sort -k2,2V | tail -n1 >"$work/resolved"
	debs_write_lock "$work/resolved"
}

# build.sh has just looked at the root's bytes.
is_whole() {
	[ "$1/root.ext4" -ef "$base/root.ext4" ] && image_is_whole "$1" "${files[@]}"
}

debs_need dpkg-deb tar xz sha256sum flock
base=$("$here/build.sh" --print-dir)
debs_hold_cache "$cache/images-kernel"
work=$(mktemp -d "${TMPDIR:-/tmp}/flamelab-image.XXXXXX")
[ -z "$refresh" ] || write_lock
[ -s "$lock" ] || fail "no kernels.lock; run: vm-images/build-kernel.sh --refresh-lock"
hash=$({ cat "$lock" "$here/build-kernel.sh" "$here/debs.sh" "$here/image.sh"; echo "${base##*/}"; } | sha256sum | cut -d' ' -f1)
final=$cache/images-kernel/$hash
if [ -f "$final/manifest.json" ] && ! is_whole "$final"; then
	echo "$tag: the copy in the cache is damaged, building it anew: $final" >&2
	rm -f "$final/manifest.json"
fi
if [ ! -f "$final/manifest.json" ]; then
	rm -rf "$cache/images-kernel"/.new.* "$final"
	new=$(mktemp -d "$cache/images-kernel/.new.XXXXXX")
	chmod 755 "$new"
	debs_take
	kernel_unpack "${modules[@]}"
	kernel_modules "$work/modules" "${modules[@]}"
	kernel_write "$new"
	ln "$base/root.ext4" "$new/root.ext4" || fail "cannot link the root of $base"
	drifted=false
	[ ! -s "$work/drift" ] && grep -q '"drifted": false' "$base/manifest.json" || drifted=true
	image_manifest "$new" "$(image_identity "$hash")" $drifted "${files[@]}"
	mv "$new" "$final"
	debs_prune "$cache/images-kernel" 3
	echo "$tag: ready in $(seconds_since "$started") s: $final" >&2
fi
[ -z "$print_dir" ] || echo "$final"
