#!/bin/bash
# build.sh [--refresh-lock] [--print-dir] [--output DIR] - builds the VM image, or finds it in the cache.
#
# An image is vmlinux, modules.cpio, root.ext4 and manifest.json under
# ${XDG_CACHE_HOME:-~/.cache}/flamelab/images/HASH/; HASH covers packages.lock, packages.list, this script, debs.sh and image.sh.
# The .deb files come from flamelab/debs/SHA256, else from whatever archive this machine's apt is set up for; a
# version that is served no longer is replaced by the newest one, and manifest.json says "drifted": true.
# The same lock gives the same bytes (test-reproducible.sh).
#
# Root is not needed: nothing is mounted, no maintainer script runs, owners are written as 0:0 by debugfs.
#
#   --refresh-lock  write packages.lock anew from what the archive serves today, then build
#   --print-dir     print the image's directory on stdout as the last thing
#   --output DIR    build into DIR, neither using nor filling the cache of images (the test does this)
#
# Exit codes: 0 done, 2 usage, 3 could not build (the reason is the last line on stderr).
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022
here=$(cd "$(dirname "$0")" && pwd)
list=$here/packages.list
lock=$here/packages.lock
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flamelab
debs_arch=amd64 tag=image
. "$here/debs.sh"
. "$here/image.sh"
format=1
# The time stamps inside the image: of no meaning, but fixed.
image_time=1735689600
# Not loaded at boot: they lie in the root under /usr/lib/flamelab, with an empty ext4, for the play power_cut.
late_modules=(loop dm-mod dm-log-writes)
late_dir=usr/lib/flamelab
files=(modules.cpio root.ext4 vmlinux)

refresh="" print_dir="" output=""
while [ $# -gt 0 ]; do
	case $1 in
	--refresh-lock) refresh=1 ;;
	--print-dir) print_dir=1 ;;
	--output) output=${2:?--output needs a directory}; shift ;;
	*) echo "usage: build.sh [--refresh-lock] [--print-dir] [--output DIR]" >&2; exit 2 ;;
	esac
	shift
done

# --- packages -------------------------------------------------------------------------------------------------

# What packages.list means today, as lock lines.
resolve() {
	local role names name found roots=() kernel=""
	# One apt-cache call for all names: each costs half a second of reading lists.
	grep -v '^#' "$list" | awk '{ print $2 }' | tr '|' '\n' | xargs apt-cache "${apt_opts[@]}" policy |
		awk '/^[^ ]/ { sub(/:$/, "", $1); name = $1 } /Candidate:/ && $2 != "(none)" { print name }' >"$work/candidates"
	while read -r role names; do
		found=""
		for name in ${names//|/ }; do
			if grep -qx "$name" "$work/candidates"; then
				found=$name
				break
			fi
		done
		[ -n "$found" ] || fail "the archive has no package $names"
		case $role in
		root) roots+=("$found") ;;
		kernel) kernel=$(apt-cache "${apt_opts[@]}" depends "$found" | awk '/Depends: linux-image-/ { print $2; exit }')
			[ -n "$kernel" ] || fail "$found depends on no kernel" ;;
		*) fail "$list: unknown role $role" ;;
		esac
	done < <(grep -v '^#' "$list")
	{
		debs_resolve "${roots[@]}"
		debs_served "$kernel" | sort -k2,2V | tail -n1
	} | sort
}

write_lock() {
	debs_set_up
	resolve >"$work/resolved"
	debs_write_lock "$work/resolved"
}

have_deb() { [ -s "$cache/debs/$1" ]; }

# Fills $work/packages (lock lines that are in the cache of .debs) and $work/drift (name locked got).
take_packages() {
	local name version arch sha size path missing=0
	: >"$work/packages"; : >"$work/drift"
	mkdir -p "$cache/debs"
	while read -r name version arch sha size path; do
		have_deb "$sha" || missing=$((missing + 1))
	done < <(grep -v '^#' "$lock")
	if [ $missing = 0 ]; then
		grep -v '^#' "$lock" >"$work/packages"
		phase "$(wc -l <"$work/packages") packages, all in the cache"
		return
	fi
	debs_set_up
	debs_served $(grep -v '^#' "$lock" | cut -d' ' -f1) >"$work/served-locked"
	: >"$work/fetch-locked"; : >"$work/gone"
	while read -r name version arch sha size path; do
		if ! have_deb "$sha"; then
			if ! grep -qF "$name $version $arch $sha " "$work/served-locked"; then
				echo "$name $version" >>"$work/gone"
				continue
			fi
			echo "$name $version $arch $sha $size $path" >>"$work/fetch-locked"
		fi
		echo "$name $version $arch $sha $size $path" >>"$work/packages"
	done < <(grep -v '^#' "$lock")
	debs_fetch <"$work/fetch-locked"
	[ ! -s "$work/gone" ] || take_newer
	sort -o "$work/packages" "$work/packages"
	phase "$(wc -l <"$work/packages") packages, $missing of them fetched"
}

# Something locked is gone: what is new in the resolution stands in for it. A kernel's name has its ABI in it.
take_newer() {
	local name version arch sha size path locked
	[ -s "$work/resolved" ] || resolve >"$work/resolved"
	while read -r name version arch sha size path; do
		if [[ $name == linux-image-* ]] && grep -q '^linux-image-' "$work/packages"; then
			continue
		fi
		if grep -q "^$name " "$work/packages"; then
			continue
		fi
		have_deb "$sha" || echo "$name $version $arch $sha $size $path" >>"$work/fetch-newer"
		echo "$name $version $arch $sha $size $path" >>"$work/packages-newer"
		if [[ $name == linux-image-* ]]; then
			locked=$(awk '/^linux-image-/ { print $1 "=" $2; exit }' "$work/gone")
			version=$name=$version
		else
			locked=$(awk -v n="$name" '$1 == n { print $2 }' "$work/gone")
		fi
		echo "$name ${locked:-none} $version" >>"$work/drift"
		echo "image: $name ${locked:-(not locked)} is served no longer, taking $version" >&2
	done <"$work/resolved"
	[ ! -s "$work/fetch-newer" ] || debs_fetch <"$work/fetch-newer"
	[ ! -s "$work/packages-newer" ] || cat "$work/packages-newer" >>"$work/packages"
	# Whatever the resolution no longer has (a renamed library) has drifted too.
	while read -r name version; do
		[[ $name == linux-image-* ]] || grep -q "^$name " "$work/drift" || echo "$name $version none" >>"$work/drift"
	done <"$work/gone"
}

# --- the three files ------------------------------------------------------------------------------------------

# An empty file system for the guest, which has no mke2fs. Everything that mke2fs.conf could decide is said here.
build_empty_ext4() {
	E2FSPROGS_FAKE_TIME=$image_time mke2fs -q -F -t ext4 -b 4096 -m 0 -N 256 -I 256 -J size=4 \
		-O none,has_journal,ext_attr,dir_index,filetype,extent,64bit,flex_bg,sparse_super,large_file,huge_file,dir_nlink,extra_isize,metadata_csum \
		-U 00000000-0000-4000-8000-000000000003 -L flamelab-empty \
		-E hash_seed=00000000-0000-4000-8000-000000000004,lazy_itable_init=0,lazy_journal_init=0,root_owner=0:0 "$1" 64M \
		>"$work/mke2fs.log" 2>&1 || fail "mke2fs: $(tail -n1 "$work/mke2fs.log")"
}

build_root() {
	local tree=$work/root out=$1 name sha
	mkdir -p "$tree"/usr/{bin,sbin,lib,lib64} "$tree"/{proc,sys,dev,run,tmp,etc,var,root,payload}
	# Merged /usr as every installed Debian has it, so that paths in profiles look as they do there.
	for name in bin sbin lib lib64; do ln -s "usr/$name" "$tree/$name"; done
	while read -r name _ _ sha _; do
		[[ $name == linux-image-* ]] && continue
		dpkg-deb --fsys-tarfile "$cache/debs/$sha" |
			tar -C "$tree" -x --no-same-owner --no-same-permissions --keep-directory-symlink \
				--exclude=./usr/share/doc --exclude=./usr/share/man --exclude=./usr/share/locale --exclude=./usr/share/lintian \
				--exclude=./usr/share/info --exclude=./usr/share/initramfs-tools --exclude='./usr/lib/*/gconv' ||
			fail "cannot unpack $name"
	done <"$work/packages"
	[ -e "$tree/usr/bin/sh" ] || ln -s busybox "$tree/usr/bin/sh"
	echo "root:x:0:0:root:/root:/bin/sh" >"$tree/etc/passwd"
	echo "nobody:x:65534:65534:nobody:/:/bin/false" >>"$tree/etc/passwd"
	printf 'root:x:0:\nnogroup:x:65534:\n' >"$tree/etc/group"
	echo "flamelab" >"$tree/etc/hostname"
	find "$tree" -type f -printf '%m\n' | grep -q . || fail "the root is empty"
	mkdir -p "$tree/$late_dir"
	cp "$work"/late/*.ko "$tree/$late_dir/"
	build_empty_ext4 "$tree/$late_dir/empty.ext4"
	phase "root unpacked"

	# mke2fs -d of e2fsprogs 1.47.0 follows the order of readdir and copies the tree's times, so the tree goes in by
	# a sorted debugfs script, under a fixed clock. -d could replace it from 1.47.1 on, which knows SOURCE_DATE_EPOCH.
	(cd "$tree" && find . -mindepth 1 -printf '%y %m %P %l\n' | sort -k3,3) | awk -v tree="$tree" '
		{ dir = $3; if (!sub(/\/[^\/]*$/, "", dir)) dir = ""; base = $3; sub(/.*\//, "", base)
			if (dir != at) { print "cd /" dir; at = dir } }
		$1 == "d" { print "mkdir " base; print "sif " base " mode 04" sprintf("%04d", $2 % 10000) }
		$1 == "f" { print "write " tree "/" $3 " " base; print "sif " base " mode 010" sprintf("%04d", $2 % 10000) }
		$1 == "l" { print "symlink " base " " $4 }
		$1 !~ /[dfl]/ { print "image: neither file, directory nor link: " $3 >"/dev/stderr"; exit 1 }' >"$work/debugfs.cmd" ||
		fail "the root holds something that is not a file, directory or link"
	local kib inodes
	# By the files alone: what a directory takes differs between file systems. The empty file system is mostly a hole.
	kib=$(find "$tree" -type f ! -name empty.ext4 -printf '%s\n' | awk '{ n += int(($1 + 4095) / 4096) * 4 } END { print n + 0 }')
	inodes=$(find "$tree" | wc -l)
	# A multiple of 128 MiB is what the pmem driver maps without rounding; holes cost nothing in the cache.
	local mib=$(((kib * 5 / 4 / 1024 + 16 + 127) / 128 * 128))
	rm -f "$out"
	truncate -s "${mib}M" "$out"
	export E2FSPROGS_FAKE_TIME=$image_time
	mke2fs -q -F -t ext4 -b 4096 -m 0 -N $((inodes + 256)) -O '^has_journal,^dir_index,^metadata_csum,^resize_inode,^orphan_file' \
		-U 00000000-0000-4000-8000-000000000001 -L flamelab-root \
		-E hash_seed=00000000-0000-4000-8000-000000000002,lazy_itable_init=0,root_owner=0:0,no_copy_xattrs "$out" \
		>"$work/mke2fs.log" 2>&1 || fail "mke2fs: $(tail -n1 "$work/mke2fs.log")"
	debugfs -w -f "$work/debugfs.cmd" "$out" >"$work/debugfs.log" 2>&1 || fail "debugfs: $(tail -n1 "$work/debugfs.log")"
	# debugfs goes on after a failed command and exits 0; its echo of the commands aside, it must have said nothing.
	if grep -v -e '^debugfs' -e '^Allocated inode' -e '^$' "$work/debugfs.log" >"$work/debugfs.err"; then
		fail "debugfs: $(head -n1 "$work/debugfs.err")"
	fi
	e2fsck -fn "$out" >"$work/fsck.log" 2>&1 || fail "the file system is not clean: $(tail -n1 "$work/fsck.log")"
	unset E2FSPROGS_FAKE_TIME
	phase "root.ext4 written, $kib KiB in it"
}

build_kernel() { # DIR
	kernel_unpack "${modules[@]}" "${late_modules[@]}"
	kernel_modules "$work/modules" "${modules[@]}"
	kernel_modules "$work/late" "${late_modules[@]}"
	kernel_write "$1"
}

write_manifest() { # DIR HASH
	local drifted=false sep=""
	[ -s "$work/drift" ] && drifted=true
	{
		printf '{\n  "schema": "flamelab-image/1",\n  "hash": "%s",\n  "lock_hash": "%s",\n' "$2" "$lock_hash"
		image_kernel
		printf '  "drifted": %s,\n  "drift": [' $drifted
		while read -r name locked got; do
			printf '%s\n    { "name": "%s", "locked": "%s", "got": "%s" }' "$sep" "$name" "$locked" "$got"
			sep=,
		done <"$work/drift"
		printf '],\n  "packages": %d,\n' "$(wc -l <"$work/packages")"
		image_files "$1" "${files[@]}"
	} >"$1/manifest.json"
}

build_into() {
	local dir=$1
	mkdir -p "$dir"
	take_packages
	build_kernel "$dir"
	build_root "$dir/root.ext4"
	write_manifest "$dir" "$(image_identity "$lock_hash")"
	phase "files hashed"
}

# --- main -----------------------------------------------------------------------------------------------------

PATH=$PATH:/usr/sbin:/sbin
debs_need dpkg-deb mke2fs debugfs e2fsck sha256sum flock
work=$(mktemp -d "${TMPDIR:-/tmp}/flamelab-image.XXXXXX")
debs_hold_cache "$cache/images"
[ -z "$refresh" ] || write_lock
[ -s "$lock" ] || fail "no packages.lock; run: make image-refresh"
lock_hash=$({ echo "format $format"; cat "$lock" "$list" "$here/build.sh" "$here/debs.sh" "$here/image.sh"; } | sha256sum | cut -d' ' -f1)
if [ -n "$output" ]; then
	build_into "$output"
	[ -z "$print_dir" ] || echo "$output"
	exit 0
fi
final=$cache/images/$lock_hash
if [ -f "$final/manifest.json" ] && ! image_is_whole "$final" "${files[@]}"; then
	echo "image: the copy in the cache is damaged, building it anew: $final" >&2
	rm -f "$final/manifest.json"
fi
if [ ! -f "$final/manifest.json" ]; then
	rm -rf "$cache/images"/.new.*
	new=$(mktemp -d "$cache/images/.new.XXXXXX")
	chmod 755 "$new"
	build_into "$new"
	rm -rf "$final"
	mv "$new" "$final"
	debs_prune "$cache/images" 5
	echo "image: ready in $(seconds_since "$started") s: $final" >&2
fi
[ -z "$print_dir" ] || echo "$final"
