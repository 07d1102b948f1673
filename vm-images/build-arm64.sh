#!/bin/bash
# build-arm64.sh [--refresh-lock] [--print-dir] - the VM image for aarch64, as build.sh makes it for x86-64.
#
# An image is vmlinux (Debian's arm64 kernel), modules.cpio and manifest.json under
# ${XDG_CACHE_HOME:-~/.cache}/flamelab/images-arm64/HASH/; HASH covers packages-arm64.lock, packages.list and these scripts.
# QEMU's machine `virt` without firmware has no pmem, so the root is part of the initramfs: modules.cpio holds
# the modules and the root. What the root holds is what packages.list says, only the kernel is another one.
# The same lock gives the same bytes: names are sorted, inodes are positions, there are no times.
#
#   --refresh-lock  write packages-arm64.lock anew from what the archive serves today, then build
#   --print-dir     print the image's directory on stdout as the last thing
#
# Exit codes: 0 done, 2 usage, 3 could not build (the reason is the last line on stderr).
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022
here=$(cd "$(dirname "$0")" && pwd)
list=$here/packages.list
lock=$here/packages-arm64.lock
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flamelab
debs_arch=arm64 tag=image-arm64
. "$here/debs.sh"
. "$here/image.sh"
# In load order; Debian's kernel has neither at present.
modules=(pvpanic pvpanic-pci)
optional_modules=" pvpanic pvpanic-pci "
files=(modules.cpio vmlinux)

debs_options "$@"

write_lock() {
	local roots kernel
	debs_set_up
	# The first of NAME|OTHER: this is the release that packages.list was written for.
	roots=$(awk '$1 == "root" { sub(/\|.*/, "", $2); print $2 }' "$list")
	debs_resolve $roots >"$work/resolved"
	kernel=$(debs_newest_kernel)
	[ -n "$kernel" ] || fail "linux-image-arm64 depends on no kernel"
	debs_served "$kernel" | sort -k2,2V | tail -n1 >>"$work/resolved"
	sort -o "$work/resolved" "$work/resolved"
	debs_write_lock "$work/resolved"
}

# A symbolic link's file is its target's text.
write_tree() { # TREE
	local kind mode path
	(cd "$1" && find . -mindepth 1 -printf '%y %m %P\n' | sort -k3) >"$work/tree"
	while read -r kind mode path; do
		case $kind in
		d) cpio_entry "$path" "4$(printf %04d "$mode")" - ;;
		f) cpio_entry "$path" "10$(printf %04d "$mode")" "$1/$path" ;;
		l) readlink -n "$1/$path" >"$work/target"; cpio_entry "$path" 120777 "$work/target" ;;
		*) fail "neither file, directory nor link: $path" ;;
		esac
	done <"$work/tree"
}

unpack_root() {
	local tree=$1 name sha
	mkdir -p "$tree"/usr/{bin,sbin,lib} "$tree"/{modules,proc,sys,dev,run,tmp,etc,var,root}
	for name in bin sbin lib; do ln -s "usr/$name" "$tree/$name"; done
	while read -r name _ _ sha _; do
		[[ $name == linux-image-* ]] && continue
		dpkg-deb --fsys-tarfile "$cache/debs/$sha" |
			tar -C "$tree" -x --no-same-owner --no-same-permissions --keep-directory-symlink --wildcards \
				--exclude='./usr/share/*' --exclude='./usr/lib/*/gconv' --exclude='./usr/sbin/*' ||
			fail "cannot unpack $name"
	done <"$work/packages"
	[ -e "$tree/usr/bin/sh" ] || ln -s busybox "$tree/usr/bin/sh"
	[ -e "$tree/lib/ld-linux-aarch64.so.1" ] || fail "no dynamic linker came out of the packages"
	echo "root:x:0:0:root:/root:/bin/sh" >"$tree/etc/passwd"
	echo "nobody:x:65534:65534:nobody:/:/bin/false" >>"$tree/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"
	echo "flamelab" >"$tree/etc/hostname"
}

build_kernel() { # DIR TREE
	kernel_unpack "${modules[@]}"
	# An arm64 Image has "ARMd" at byte 56 (Documentation/arm64/booting.rst); QEMU takes it as it is.
	[ "$(od -An -c -j56 -N4 "$kernel_file" | tr -d ' ')" = ARMd ] || fail "the kernel is no plain arm64 Image"
	cp "$kernel_file" "$1/vmlinux"
	kernel_modules "$2/modules" "${modules[@]}"
	phase "kernel $(cat "$work/kernel-version"), $module_count modules"
}

build_into() { # DIR HASH
	local tree=$work/root drifted=false
	debs_take
	unpack_root "$tree"
	build_kernel "$1" "$tree"
	{
		write_tree "$tree"
		cpio_entry 'TRAILER!!!' 0 -
	} >"$1/modules.cpio"
	phase "root packed, $(($(stat -c %s "$1/modules.cpio") / 1024)) KiB"
	[ ! -s "$work/drift" ] || drifted=true
	image_manifest "$1" "$(image_identity "$2")" $drifted "${files[@]}"
}

debs_need dpkg-deb tar xz sha256sum flock
debs_hold_cache "$cache/images-arm64"
work=$(mktemp -d "${TMPDIR:-/tmp}/flamelab-image.XXXXXX")
[ -z "$refresh" ] || write_lock
[ -s "$lock" ] || fail "no packages-arm64.lock; run: vm-images/build-arm64.sh --refresh-lock"
hash=$(cat "$lock" "$list" "$here/build-arm64.sh" "$here/debs.sh" "$here/image.sh" | sha256sum | cut -d' ' -f1)
final=$cache/images-arm64/$hash
if [ -f "$final/manifest.json" ] && ! image_is_whole "$final" "${files[@]}"; then
	echo "$tag: the copy in the cache is damaged, building it anew: $final" >&2
	rm -f "$final/manifest.json"
fi
if [ ! -f "$final/manifest.json" ]; then
	rm -rf "$cache/images-arm64"/.new.* "$final"
	new=$(mktemp -d "$cache/images-arm64/.new.XXXXXX")
	chmod 755 "$new"
	build_into "$new" "$hash"
	mv "$new" "$final"
	debs_prune "$cache/images-arm64" 3
	echo "$tag: ready in $(seconds_since "$started") s: $final" >&2
fi
[ -z "$print_dir" ] || echo "$final"
