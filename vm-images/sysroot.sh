#!/bin/bash
# sysroot.sh [--refresh-lock] [--print-dir] - the root that the cross compiler for arm64 builds against.
#
# sysroot.lock -> ${XDG_CACHE_HOME:-~/.cache}/flamelab/sysroots/HASH/; HASH covers lock, list and these scripts. Headers
# and libraries of Debian's arm64 packages, unpacked with dpkg-deb: no maintainer script runs, this machine's
# dpkg keeps its one architecture. Absolute links in it are made relative, so that they stay inside.
#
#   --refresh-lock  write sysroot.lock anew from what the archive serves today
#   --print-dir     print the directory on stdout as the last thing
#
# Exit codes: 0 done, 2 usage, 3 could not build (the reason is the last line on stderr).
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022
here=$(cd "$(dirname "$0")" && pwd)
list=$here/sysroot.list
lock=$here/sysroot.lock
cache=${XDG_CACHE_HOME:-$HOME/.cache}/flamelab
debs_arch=arm64 tag=sysroot
. "$here/debs.sh"

debs_options "$@"

write_lock() {
	debs_set_up
	debs_resolve $(awk '!/^#/ && $1 != "without" { print $1 }' "$list") >"$work/resolved"
	awk 'NR == FNR { if ($1 == "without") drop[$2] = 1; next } !drop[$1]' "$list" "$work/resolved" >"$work/kept"
	debs_write_lock "$work/kept"
}

# Links to /PATH would leave the root; usr/lib/ARCH/x -> /lib/ARCH/x is how Debian's -dev packages make them.
relative_links() {
	local root=$1 link target up
	find "$root" -type l -lname '/*' -printf '%P %l\n' | while read -r link target; do
		up=$(dirname "$link" | sed 's,[^/][^/]*,..,g')
		ln -sfn "$up$target" "$root/$link"
	done
}

unpack() {
	local root=$1 name sha
	mkdir -p "$root"/usr/{bin,sbin,lib}
	for name in bin sbin lib; do ln -s "usr/$name" "$root/$name"; done
	while read -r name _ _ sha _; do
		dpkg-deb --fsys-tarfile "$cache/debs/$sha" |
			tar -C "$root" -x --no-same-owner --no-same-permissions --keep-directory-symlink --wildcards \
				--exclude='./usr/share/*' --exclude='./usr/lib/*/gconv' --exclude='./etc/*' --exclude='./var/*' \
				--exclude='./usr/bin/*' --exclude='./usr/sbin/*' ||
			fail "cannot unpack $name"
	done <"$work/packages"
	relative_links "$root"
	[ -e "$root/usr/include/stdio.h" ] || fail "no stdio.h came out of the packages"
}

debs_need dpkg-deb tar sha256sum flock
debs_hold_cache "$cache/sysroots"
work=$(mktemp -d "${TMPDIR:-/tmp}/flamelab-sysroot.XXXXXX")
[ -z "$refresh" ] || write_lock
[ -s "$lock" ] || fail "no sysroot.lock; run: vm-images/sysroot.sh --refresh-lock"
hash=$(cat "$lock" "$list" "$here/sysroot.sh" "$here/debs.sh" | sha256sum | cut -d' ' -f1)
final=$cache/sysroots/$hash
if [ ! -f "$final/.packages" ]; then
	rm -rf "$cache/sysroots"/.new.* "$final"
	new=$(mktemp -d "$cache/sysroots/.new.XXXXXX")
	chmod 755 "$new"
	debs_take
	unpack "$new"
	cp "$work/packages" "$new/.packages"
	mv "$new" "$final"
	debs_prune "$cache/sysroots" 2
	echo "sysroot: ready in $(seconds_since "$started") s: $final" >&2
fi
[ -z "$print_dir" ] || echo "$final"
