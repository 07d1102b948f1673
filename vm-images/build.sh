#!/bin/bash
# build.sh [--refresh-lock] [--print-dir] [--output DIR] - builds the VM image, or finds it in the cache.
#
# An image is vmlinux, modules.cpio, root.ext4 and manifest.json under
# ${XDG_CACHE_HOME:-~/.cache}/flamelab/images/HASH/; HASH covers packages.lock, packages.list and this script.
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
format=1
# The time stamps inside the image: of no meaning, but fixed.
image_time=1735689600
# In load order. A kernel that has one built in says so in modules.builtin.
modules=(libnvdimm nd_btt nd_pmem nfit crc32c_generic jbd2 mbcache crc16 ext4 pvpanic pvpanic-mmio)
optional_modules=" pvpanic pvpanic-mmio "
# Not loaded at boot: they lie in the root under /usr/lib/flamelab, with an empty ext4, for the play power_cut.
late_modules=(loop dm-mod dm-log-writes)
late_dir=usr/lib/flamelab

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

work=""
cleanup() { [ -z "$work" ] || rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 130' INT TERM
fail() { echo "image: $*" >&2; exit 3; }

started=$EPOCHREALTIME phase_started=$EPOCHREALTIME
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }
phase() { echo "image: $1 ($(seconds_since "$phase_started") s)" >&2; phase_started=$EPOCHREALTIME; }

# --- packages -------------------------------------------------------------------------------------------------

# apt with a state of its own: what this machine has installed does not matter, and no root is needed.
apt_set_up() {
	[ -z "${apt_ready:-}" ] || return 0
	command -v apt-get >/dev/null || fail "packages are missing from $cache/debs and this machine has no apt-get"
	mkdir -p "$work/apt/state/lists/partial" "$work/apt/cache/archives/partial"
	apt_opts=(-q -o Dir::State="$work/apt/state" -o Dir::State::status=/dev/null -o Dir::Cache="$work/apt/cache"
		-o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 -o APT::Architecture=amd64 -o APT::Architectures=amd64
		-o Acquire::Retries=3 -o Acquire::Languages=none)
	apt-get "${apt_opts[@]}" update >"$work/apt.log" 2>&1 ||
		fail "apt-get update failed: $(grep -m1 '^[EW]:' "$work/apt.log" || tail -n1 "$work/apt.log")"
	apt_ready=1
	phase "package lists read"
}

# The records of NAME...: "name version arch sha256 size path".
served() {
	apt-cache "${apt_opts[@]}" show "$@" 2>/dev/null | awk '
		/^Package: / { p = $2 } /^Version: / { v = $2 } /^Architecture: / { a = $2 }
		/^SHA256: / { h = $2 } /^Size: / { s = $2 } /^Filename: / { f = $2 }
		/^$/ && p != "" { print p, v, a, h, s, f; p = "" }
		END { if (p != "") print p, v, a, h, s, f }' | sort -u
}

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
	apt-get "${apt_opts[@]}" -qq install --print-uris --no-install-recommends "${roots[@]}" >"$work/uris" 2>"$work/apt.log" ||
		fail "apt cannot resolve the packages: $(grep -m1 '^E:' "$work/apt.log" || true)"
	{
		# The second word is NAME_VERSION_ARCH.deb with %3a for the epoch's colon.
		awk '{ n = split($2, part, "_"); v = part[2]; gsub(/%3a/, ":", v); print part[1], v }' "$work/uris"
		apt-cache "${apt_opts[@]}" policy "$kernel" | awk -v k="$kernel" '/Candidate:/ { print k, $2 }'
	} | sort >"$work/wanted"
	served $(cut -d' ' -f1 "$work/wanted") >"$work/served"
	awk 'NR == FNR { want[$1 " " $2] = 1; next } want[$1 " " $2] && !seen[$1]++' "$work/wanted" "$work/served"
}

write_lock() {
	apt_set_up
	resolve >"$work/resolved"
	{
		echo "# name version architecture sha256 size path-in-the-archive; written by build.sh --refresh-lock"
		cat "$work/resolved"
	} >"$work/lock"
	cp "$work/lock" "$lock"
	phase "packages.lock written: $(wc -l <"$work/resolved") packages"
}

have_deb() { [ -s "$cache/debs/$1" ]; }

# Takes the lock lines on stdin from the archive into the cache.
fetch() {
	local dir=$work/fetch name version arch sha size path deb
	rm -rf "$dir"; mkdir -p "$dir"
	cat >"$work/fetch.list"
	[ -s "$work/fetch.list" ] || return 0
	awk '{ print $1 "=" $2 }' "$work/fetch.list" | (cd "$dir" && xargs apt-get "${apt_opts[@]}" download) >"$work/apt.log" 2>&1 ||
		fail "download failed: $(grep -m1 '^[EW]:' "$work/apt.log" || tail -n1 "$work/apt.log")"
	(cd "$dir" && sha256sum -- *.deb) | awk '{ print $1, $2 }' >"$work/fetch.sums"
	while read -r name version arch sha size path; do
		deb=$(awk -v h="$sha" '$1 == h { print $2; exit }' "$work/fetch.sums")
		[ -n "$deb" ] || fail "what came for $name $version does not have the sha256 $sha"
		mv "$dir/$deb" "$cache/debs/$sha.part.$$" && mv "$cache/debs/$sha.part.$$" "$cache/debs/$sha"
	done <"$work/fetch.list"
}

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
	apt_set_up
	served $(grep -v '^#' "$lock" | cut -d' ' -f1) >"$work/served-locked"
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
	fetch <"$work/fetch-locked"
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
	[ ! -s "$work/fetch-newer" ] || fetch <"$work/fetch-newer"
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

# newc, by hand: sorted names, inodes by position, no times, owner 0. A hundred bytes of header need no cpio package.
cpio_ino=0
cpio_entry() { # NAME MODE FILE|-
	local size=0
	cpio_ino=$((cpio_ino + 1))
	[ "$3" = - ] || size=$(stat -Lc %s "$3")
	printf '070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%s\0' \
		$cpio_ino $((0$2)) 0 0 1 0 "$size" 0 0 0 0 $((${#1} + 1)) 0 "$1"
	head -c $(((4 - (110 + ${#1} + 1) % 4) % 4)) /dev/zero
	[ "$3" = - ] || cat "$3"
	head -c $(((4 - size % 4) % 4)) /dev/zero
}

# The kernel proper out of a bzImage: QEMU enters an uncompressed one by its PVH note, which spares every boot the
# emulated decompression, 4 of 11 CPU seconds. Offsets: Documentation/x86/boot.rst.
extract_vmlinux() { # BZIMAGE OUT
	local sectors offset size magic
	sectors=$(od -An -tu1 -j497 -N1 "$1")
	offset=$(od -An -tu4 -j584 -N4 "$1")
	size=$(od -An -tu4 -j588 -N4 "$1")
	offset=$((offset + (sectors + 1) * 512))
	magic=$(od -An -tx1 -j$offset -N4 "$1" | tr -d ' ')
	# Behind xz and zstd streams the kernel's build leaves four bytes with the unpacked size.
	case $magic in
	fd377a58) tail -c +$((offset + 1)) "$1" | head -c $((size - 4)) | xz -dc >"$2" ;;
	28b52ffd) tail -c +$((offset + 1)) "$1" | head -c $((size - 4)) | zstd -dcq >"$2" ;;
	1f8b*) tail -c +$((offset + 1)) "$1" | head -c "$size" | gzip -dc >"$2" ;;
	*) fail "the kernel is compressed in an unknown way ($magic)" ;;
	esac
	[ "$(od -An -tx1 -N4 "$2" | tr -d ' ')" = 7f454c46 ] || fail "no ELF file came out of the kernel image"
}

build_kernel() {
	local dir=$1 tree=$work/kernel sha version name file to i=0
	sha=$(awk '/^linux-image-/ { print $4; exit }' "$work/packages")
	[ -n "$sha" ] || fail "packages.lock has no linux-image-*"
	mkdir -p "$tree"
	local patterns=('./boot/vmlinuz-*' '*/modules.builtin')
	for name in "${modules[@]}" "${late_modules[@]}"; do patterns+=("*/$name.ko" "*/$name.ko.xz"); done
	dpkg-deb --fsys-tarfile "$cache/debs/$sha" | tar -C "$tree" -x --no-same-owner --wildcards "${patterns[@]}" \
		2>"$work/tar.log" || grep -q 'Not found in archive' "$work/tar.log" || fail "cannot unpack the kernel: $(tail -n1 "$work/tar.log")"
	file=$(echo "$tree"/boot/vmlinuz-*)
	[ -f "$file" ] || fail "the kernel package has no vmlinuz"
	version=${file##*/vmlinuz-}
	set +o pipefail # head ends tail early
	extract_vmlinux "$file" "$dir/vmlinux"
	set -o pipefail
	echo "$version" >"$work/kernel-version"
	mkdir -p "$work/modules" "$work/late"
	for name in "${modules[@]}" "${late_modules[@]}"; do
		file=$(find "$tree" -name "$name.ko" -o -name "$name.ko.xz" | head -n1)
		if [ -z "$file" ]; then
			grep -rqs "/$name.ko\$" "$tree" --include=modules.builtin && continue
			[[ $optional_modules == *" $name "* ]] && continue
			fail "kernel $version has no module $name"
		fi
		i=$((i + 1))
		to=$work/modules
		[[ " ${late_modules[*]} " != *" $name "* ]] || to=$work/late
		case $file in
		*.xz) xz -dc "$file" >"$to/$(printf %02d $i)-$name.ko" ;;
		*) cp "$file" "$to/$(printf %02d $i)-$name.ko" ;;
		esac
	done
	{
		cpio_entry modules 40755 -
		for file in "$work"/modules/*.ko; do cpio_entry "modules/${file##*/}" 100644 "$file"; done
		cpio_entry 'TRAILER!!!' 0 -
	} >"$dir/modules.cpio"
	phase "kernel $version and $i modules"
}

write_manifest() {
	local dir=$1 hash=$2 drifted=false sep="" f
	[ -s "$work/drift" ] && drifted=true
	{
		printf '{\n  "schema": "flamelab-image/1",\n  "hash": "%s",\n  "lock_hash": "%s",\n' "$hash" "$lock_hash"
		printf '  "kernel": "%s (%s)",\n' "$(cat "$work/kernel-version")" "$(awk '/^linux-image-/ { print $2; exit }' "$work/packages")"
		printf '  "drifted": %s,\n  "drift": [' $drifted
		while read -r name locked got; do
			printf '%s\n    { "name": "%s", "locked": "%s", "got": "%s" }' "$sep" "$name" "$locked" "$got"
			sep=,
		done <"$work/drift"
		printf '],\n  "packages": %d,\n  "files": {' "$(wc -l <"$work/packages")"
		sep=""
		for f in modules.cpio root.ext4 vmlinux; do
			printf '%s\n    "%s": "%s"' "$sep" $f "$(sha256sum <"$dir/$f" | cut -d' ' -f1)"
			sep=,
		done
		printf '\n  }\n}\n'
	} >"$dir/manifest.json"
}

build_into() {
	local dir=$1 hash
	mkdir -p "$dir"
	take_packages
	hash=$lock_hash
	# A drifted image is another image: its identity covers what really went in.
	[ ! -s "$work/drift" ] || hash=$({ echo "$lock_hash"; cat "$work/packages"; } | sha256sum | cut -d' ' -f1)
	build_kernel "$dir"
	build_root "$dir/root.ext4"
	write_manifest "$dir" "$hash"
	phase "files hashed"
}

# The cache is as good as its bytes: a cut or flipped file would be judged under the name of the whole one.
is_whole() {
	local f
	for f in modules.cpio root.ext4 vmlinux; do
		[ -f "$1/$f" ] || return 1
		grep -qF "\"$f\": \"$(sha256sum <"$1/$f" | cut -d' ' -f1)\"" "$1/manifest.json" || return 1
	done
}

# --- main -----------------------------------------------------------------------------------------------------

for tool in dpkg-deb mke2fs debugfs e2fsck sha256sum flock; do
	PATH=$PATH:/usr/sbin:/sbin command -v $tool >/dev/null || fail "needs $tool; run: make deps"
done
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$cache/images" || fail "cannot write to $cache"
work=$(mktemp -d "${TMPDIR:-/tmp}/flamelab-image.XXXXXX")
exec 9>"$cache/images/.lock"
if ! flock -n 9; then
	echo "image: another run holds the cache, waiting for it" >&2
	flock -w 1800 9 || fail "waited 30 minutes for another build"
fi
[ -z "$refresh" ] || write_lock
[ -s "$lock" ] || fail "no packages.lock; run: make image-refresh"
lock_hash=$({ echo "format $format"; cat "$lock" "$list" "$here/build.sh"; } | sha256sum | cut -d' ' -f1)
if [ -n "$output" ]; then
	build_into "$output"
	[ -z "$print_dir" ] || echo "$output"
	exit 0
fi
final=$cache/images/$lock_hash
if [ -f "$final/manifest.json" ] && ! is_whole "$final"; then
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
	# Each change of lock or script leaves an image of some 100 MB behind; what runs keeps its open files.
	find "$cache/images" -mindepth 1 -maxdepth 1 -type d -name '[0-9a-f]*' -printf '%T@ %p\n' | sort -rn | tail -n +6 |
		cut -d' ' -f2- | xargs -r -d '\n' rm -rf
	echo "image: ready in $(seconds_since "$started") s: $final" >&2
fi
[ -z "$print_dir" ] || echo "$final"
