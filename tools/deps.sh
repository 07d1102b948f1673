#!/bin/sh
# deps.sh GROUP... - installs the Debian packages of these groups of packages.txt that are missing.
#
# Prints the list first, and removes nothing: a package that conflicts with an installed one is refused (gcc-multilib
# and the cross compilers are such a pair). Needs root or sudo; without either it names the command to run and exits 3.
# FLAMELAB_NO_INSTALL=1 only checks.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
missing=""
for group in "$@"; do
	for p in $(awk -v g="$group" '$1 == g { print $2 }' "$here/packages.txt"); do
		case " $missing " in *" $p "*) continue ;; esac
		if [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null || true)" != installed ]; then
			missing="$missing $p"
		fi
	done
done
[ -n "$missing" ] || exit 0
command -v apt-get >/dev/null 2>&1 || {
	echo "deps: this is not a Debian system (no apt-get); please install what corresponds to:$missing" >&2
	exit 3
}
count=$(echo $missing | wc -w)
echo "deps: $count Debian packages are missing:$missing"
if [ "${FLAMELAB_NO_INSTALL:-}" = 1 ]; then
	echo "deps: FLAMELAB_NO_INSTALL=1, nothing installed" >&2
	exit 3
fi
if [ "$(id -u)" = 0 ]; then
	sudo=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
	sudo="sudo"
elif command -v sudo >/dev/null 2>&1 && [ -t 0 ]; then
	sudo="sudo"
else
	echo "deps: installing needs root. Run: sudo apt-get install --no-install-recommends$missing" >&2
	exit 3
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
	if ! "$@" >"$log" 2>&1; then
		echo "deps: '$*' failed; its last lines:" >&2
		tail -n 15 "$log" >&2
		exit 3
	fi
}
echo "deps: refreshing the package lists"
run $sudo apt-get -q update
echo "deps: installing (one to three minutes)"
run $sudo env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-remove --no-install-recommends $missing
echo "deps: done"
