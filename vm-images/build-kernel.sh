#!/bin/bash
# build-kernel.sh [--refresh-lock] [--print-dir] - the VM image of build.sh with the kernel of Debian's next release.
#
# What loads on one kernel's verifier may be refused by another's, so the lab boots both. Only vmlinux and modules.cpio
# differ; root.ext4 is build.sh's own (a hard link). An image is under
# ${XDG_CACHE_HOME:-~/.cache}/flamelab/images-kernel/HASH/; HASH covers kernels.lock, this script, debs.sh and the image
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
tag=image-kernel
suite=trixie
. "$here/debs.sh"
# build.sh's text is part of its images' identity, hence of every baseline's: what both need is taken out of it.
eval "$(sed -n '/^modules=(/p; /^optional_modules=/p; /^cpio_ino=0/p; /^cpio_entry() {/,/^}/p; /^extract_vmlinux() {/,/^}/p' "$here/build.sh")"

refresh="" print_dir=""
for arg; do
	case $arg in
	--refresh-lock) refresh=1 ;;
	--print-dir) print_dir=1 ;;
	*) echo "usage: build-kernel.sh [--refresh-lock] [--print-dir]" >&2; exit 2 ;;
	esac
done

work=""
cleanup() { [ -z "$work" ] || rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 130' INT TERM

# In place of debs.sh's, which is for another architecture and this release: the same archive's next suite.
debs_set_up() {
	local uri key=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -z "${apt_ready:-}" ] || return 0
	command -v apt-get >/dev/null || fail "the kernel is missing from $cache/debs and this machine has no apt-get"
	uri=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(COMPONENT) $(CODENAME)' 'Created-By: Packages' |
		awk '$2 == "Debian" && $3 == "main" && $4 !~ /-/ { print $1; exit }')
	[ -n "$uri" ] || fail "this machine's apt has read no list of Debian's main archive; run: apt-get update"
	mkdir -p "$work/apt/state/lists/partial" "$work/apt/cache/archives/partial" "$work/apt/sources"
	{
		printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n' "$uri" "$suite"
		[ ! -e "$key" ] || printf 'Signed-By: %s\n' "$key"
	} >"$work/apt/sources/kernel.sources"
	apt_opts=(-q -o Dir::State="$work/apt/state" -o Dir::State::status=/dev/null -o Dir::Cache="$work/apt/cache"
		-o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work/apt/sources"
		-o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 -o APT::Architecture=amd64 -o APT::Architectures=amd64
		-o Acquire::Retries=3 -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
	apt-get "${apt_opts[@]}" update >"$work/apt.log" 2>&1 ||
		fail "apt-get update failed: $(grep -m1 '^[EW]:' "$work/apt.log" || tail -n1 "$work/apt.log")"
	apt_ready=1
	phase "package list of $suite read"
}

debs_newest_kernel() {
	debs_set_up
	apt-cache "${apt_opts[@]}" depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }'
}

write_lock() {
	local kernel
	debs_set_up
	kernel=$(debs_newest_kernel)
	[ -n "$kernel" ] || fail "linux-image-amd64 of $suite depends on no kernel"
	debs_served "$kernel" | sort -k2,2V | tail -n1 >"$work/resolved"
	debs_write_lock "$work/resolved"
}

build_kernel() { # DIR
	local tree=$work/kernel sha name file i=0 patterns=('./boot/vmlinuz-*' '*/modules.builtin')
	sha=$(awk '/^linux-image-/ { print $4; exit }' "$work/packages")
	[ -n "$sha" ] || fail "kernels.lock has no linux-image-*"
	mkdir -p "$tree" "$work/modules"
	for name in "${modules[@]}"; do patterns+=("*/$name.ko" "*/$name.ko.xz"); done
	dpkg-deb --fsys-tarfile "$cache/debs/$sha" | tar -C "$tree" -x --no-same-owner --wildcards "${patterns[@]}" \
		2>"$work/tar.log" || grep -q 'Not found in archive' "$work/tar.log" || fail "cannot unpack the kernel: $(tail -n1 "$work/tar.log")"
	file=$(echo "$tree"/boot/vmlinuz-*)
	[ -f "$file" ] || fail "the kernel package has no vmlinuz"
	echo "${file##*/vmlinuz-}" >"$work/kernel-version"
	set +o pipefail # head ends tail early
	extract_vmlinux "$file" "$1/vmlinux"
	set -o pipefail
	for name in "${modules[@]}"; do
		file=$(find "$tree" -name "$name.ko" -o -name "$name.ko.xz" | head -n1)
		if [ -z "$file" ]; then
			grep -rqs "/$name.ko\$" "$tree" --include=modules.builtin && continue
			[[ $optional_modules == *" $name "* ]] && continue
			fail "kernel $(cat "$work/kernel-version") has no module $name"
		fi
		i=$((i + 1))
		case $file in
		*.xz) xz -dc "$file" >"$work/modules/$(printf %02d $i)-$name.ko" ;;
		*) cp "$file" "$work/modules/$(printf %02d $i)-$name.ko" ;;
		esac
	done
	{
		cpio_entry modules 40755 -
		for file in "$work"/modules/*.ko; do cpio_entry "modules/${file##*/}" 100644 "$file"; done
		cpio_entry 'TRAILER!!!' 0 -
	} >"$1/modules.cpio"
	phase "kernel $(cat "$work/kernel-version") and $i modules"
}

write_manifest() { # DIR HASH
	local drifted=false sep="" f
	[ ! -s "$work/drift" ] && grep -q '"drifted": false' "$base/manifest.json" || drifted=true
	{
		printf '{\n  "schema": "flamelab-image/1",\n  "hash": "%s",\n' "$2"
		printf '  "kernel": "%s (%s)",\n' "$(cat "$work/kernel-version")" "$(awk '/^linux-image-/ { print $2; exit }' "$work/packages")"
		printf '  "drifted": %s,\n  "files": {' $drifted
		for f in modules.cpio vmlinux; do
			printf '%s\n    "%s": "%s"' "$sep" $f "$(sha256sum <"$1/$f" | cut -d' ' -f1)"
			sep=,
		done
		printf '\n  }\n}\n'
	} >"$1/manifest.json"
}

# The cache is as good as its bytes; build.sh has just looked at the root's.
is_whole() {
	local f
	[ "$1/root.ext4" -ef "$base/root.ext4" ] || return 1
	for f in modules.cpio vmlinux; do
		[ -f "$1/$f" ] || return 1
		grep -qF "\"$f\": \"$(sha256sum <"$1/$f" | cut -d' ' -f1)\"" "$1/manifest.json" || return 1
	done
}

for tool in dpkg-deb tar xz sha256sum flock; do
	command -v $tool >/dev/null || fail "needs $tool; run: make deps"
done
base=$("$here/build.sh" --print-dir)
debs_hold_cache "$cache/images-kernel"
work=$(mktemp -d "${TMPDIR:-/tmp}/flamelab-image.XXXXXX")
[ -z "$refresh" ] || write_lock
[ -s "$lock" ] || fail "no kernels.lock; run: vm-images/build-kernel.sh --refresh-lock"
hash=$({ cat "$lock" "$here/build-kernel.sh" "$here/debs.sh"; echo "${base##*/}"; } | sha256sum | cut -d' ' -f1)
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
	# A drifted image is another image: its identity covers what really went in.
	[ ! -s "$work/drift" ] || hash=$({ echo "$hash"; cat "$work/packages"; } | sha256sum | cut -d' ' -f1)
	build_kernel "$new"
	ln "$base/root.ext4" "$new/root.ext4" || fail "cannot link the root of $base"
	write_manifest "$new" "$hash"
	mv "$new" "$final"
	find "$cache/images-kernel" -mindepth 1 -maxdepth 1 -type d -name '[0-9a-f]*' -printf '%T@ %p\n' | sort -rn |
		tail -n +4 | cut -d' ' -f2- | xargs -r -d '\n' rm -rf
	echo "$tag: ready in $(seconds_since "$started") s: $final" >&2
fi
[ -z "$print_dir" ] || echo "$final"
