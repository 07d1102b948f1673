# debs.sh - sourced by the scripts here: locked .deb packages, of whatever architecture, and the caches of what is
# made of them.
#
# A lock has "name version architecture sha256 size path" a line. Files come from flamelab/debs/SHA256, else from
# the archive that this machine's apt is set up for, through an apt state of our own: what this machine has
# installed and which architectures its dpkg knows do not matter, and neither changes.
#
# The caller sets: debs_arch (amd64, arm64), cache, work, tag (for messages), lock; and $work exists.

started=$EPOCHREALTIME phase_started=$EPOCHREALTIME
seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }
phase() { echo "$tag: $1 ($(seconds_since "$phase_started") s)" >&2; phase_started=$EPOCHREALTIME; }
fail() { echo "$tag: $*" >&2; exit 3; }

work=""
debs_cleanup() { [ -z "$work" ] || rm -rf "$work"; }
trap debs_cleanup EXIT
trap 'exit 130' INT TERM

# The options that scripts have which take no others: sets refresh and print_dir.
debs_options() {
	local arg
	refresh="" print_dir=""
	for arg; do
		case $arg in
		--refresh-lock) refresh=1 ;;
		--print-dir) print_dir=1 ;;
		*) echo "usage: ${0##*/} [--refresh-lock] [--print-dir]" >&2; exit 2 ;;
		esac
	done
}

debs_need() { # TOOL...
	local tool
	for tool; do
		command -v "$tool" >/dev/null || fail "needs $tool; run: make deps"
	done
}

# For a caller that takes packages from elsewhere than this machine's sources: adds to apt_opts.
debs_sources() { :; }

debs_set_up() {
	[ -z "${apt_ready:-}" ] || return 0
	command -v apt-get >/dev/null || fail "packages are missing from $cache/debs and this machine has no apt-get"
	mkdir -p "$work/apt/state/lists/partial" "$work/apt/cache/archives/partial"
	apt_opts=(-q -o Dir::State="$work/apt/state" -o Dir::State::status=/dev/null -o Dir::Cache="$work/apt/cache"
		-o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1 -o APT::Architecture="$debs_arch" -o APT::Architectures="$debs_arch"
		-o Acquire::Retries=3 -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
	debs_sources
	apt-get "${apt_opts[@]}" update >"$work/apt.log" 2>&1 ||
		fail "apt-get update failed: $(grep -m1 '^[EW]:' "$work/apt.log" || tail -n1 "$work/apt.log")"
	apt_ready=1
	phase "package lists of $debs_arch read"
}

# The records of NAME...: lock lines of every version that is served.
debs_served() {
	apt-cache "${apt_opts[@]}" show "$@" 2>/dev/null | awk '
		/^Package: / { p = $2 } /^Version: / { v = $2 } /^Architecture: / { a = $2 }
		/^SHA256: / { h = $2 } /^Size: / { s = $2 } /^Filename: / { f = $2 }
		/^$/ && p != "" { print p, v, a, h, s, f; p = "" }
		END { if (p != "") print p, v, a, h, s, f }' | sort -u
}

# What NAME... and their dependencies are today, as lock lines.
debs_resolve() {
	apt-get "${apt_opts[@]}" -qq install --print-uris --no-install-recommends "$@" >"$work/uris" 2>"$work/apt.log" ||
		fail "apt cannot resolve the packages: $(grep -m1 '^E:' "$work/apt.log" || true)"
	# The second word is NAME_VERSION_ARCH.deb with %3a for the epoch's colon.
	awk '{ n = split($2, part, "_"); v = part[2]; gsub(/%3a/, ":", v); print part[1], v }' "$work/uris" | sort >"$work/wanted"
	debs_served $(cut -d' ' -f1 "$work/wanted") >"$work/served"
	awk 'NR == FNR { want[$1 " " $2] = 1; next } want[$1 " " $2] && !seen[$1]++' "$work/wanted" "$work/served"
}

# Takes the lock lines on stdin from the archive into the cache.
debs_fetch() {
	local dir=$work/fetch name version arch sha size path deb
	rm -rf "$dir"; mkdir -p "$dir"
	cat >"$work/fetch.list"
	[ -s "$work/fetch.list" ] || return 0
	awk '{ print $1 "=" $2 }' "$work/fetch.list" | (cd "$dir" && xargs apt-get "${apt_opts[@]}" download) >"$work/apt.log" 2>&1 ||
		fail "download failed: $(grep -m1 '^[EW]:' "$work/apt.log" || tail -n1 "$work/apt.log")"
	(cd "$dir" && sha256sum -- *.deb) >"$work/fetch.sums"
	while read -r name version arch sha size path; do
		deb=$(awk -v h="$sha" '$1 == h { print $2; exit }' "$work/fetch.sums")
		[ -n "$deb" ] || fail "what came for $name $version does not have the sha256 $sha"
		mv "$dir/$deb" "$cache/debs/$sha.part.$$" && mv "$cache/debs/$sha.part.$$" "$cache/debs/$sha"
	done <"$work/fetch.list"
}

# Fills $work/packages (lock lines whose files are in the cache) and $work/drift (name locked got). The newest version
# stands in for one that is served no longer; a kernel's name has its ABI in it, so its stand-in is looked up by
# the caller's debs_newest_kernel.
debs_take() {
	local name version arch sha size path newer
	: >"$work/packages"; : >"$work/drift"; : >"$work/missing"
	mkdir -p "$cache/debs"
	while read -r name version arch sha size path; do
		if [ -s "$cache/debs/$sha" ]; then
			echo "$name $version $arch $sha $size $path" >>"$work/packages"
		else
			echo "$name $version $arch $sha $size $path" >>"$work/missing"
		fi
	done < <(grep -v '^#' "$lock")
	if [ ! -s "$work/missing" ]; then
		phase "$(wc -l <"$work/packages") packages, all in the cache"
		return
	fi
	debs_set_up
	debs_served $(cut -d' ' -f1 "$work/missing") >"$work/served"
	: >"$work/to-fetch"
	while read -r name version arch sha size path; do
		newer=$(grep -F "$name $version $arch $sha " "$work/served" || true)
		if [ -z "$newer" ]; then
			[[ $name != linux-image-* ]] || name=$(debs_newest_kernel)
			newer=$(debs_served "$name" | sort -k2,2V | tail -n1)
			[ -n "$newer" ] || fail "$name $version is served no longer, and nothing of that name"
			echo "$name $version $(echo "$newer" | cut -d' ' -f2)" >>"$work/drift"
			echo "$tag: $name $version is served no longer, taking $(echo "$newer" | cut -d' ' -f2)" >&2
		fi
		echo "$newer" >>"$work/packages"
		[ -s "$cache/debs/$(echo "$newer" | cut -d' ' -f4)" ] || echo "$newer" >>"$work/to-fetch"
	done <"$work/missing"
	debs_fetch <"$work/to-fetch"
	sort -o "$work/packages" "$work/packages"
	phase "$(wc -l <"$work/packages") packages, $(wc -l <"$work/to-fetch") of them fetched"
}

# What the kernel's meta package depends on today.
debs_newest_kernel() {
	debs_set_up
	apt-cache "${apt_opts[@]}" depends "linux-image-$debs_arch" | awk '/Depends: linux-image-/ { print $2; exit }'
}

debs_write_lock() {
	{
		echo "# name version architecture sha256 size path-in-the-archive; written by ${0##*/} --refresh-lock"
		cat "$1"
	} >"$work/lock"
	cp "$work/lock" "$lock"
	phase "${lock##*/} written: $(wc -l <"$1") packages"
}

# Waits for other runs that fill the cache.
debs_hold_cache() {
	mkdir -p "$1" || fail "cannot write to $1"
	exec 9>"$1/.lock"
	if ! flock -n 9; then
		echo "$tag: another run holds the cache, waiting for it" >&2
		flock -w 1800 9 || fail "waited 30 minutes for another run"
	fi
}

# Each change of lock or script leaves a directory behind: the newest COUNT stay. What runs keeps its open files.
debs_prune() { # DIR COUNT
	find "$1" -mindepth 1 -maxdepth 1 -type d -name '[0-9a-f]*' -printf '%T@ %p\n' | sort -rn | tail -n +$(($2 + 1)) |
		cut -d' ' -f2- | xargs -r -d '\n' rm -rf
}
