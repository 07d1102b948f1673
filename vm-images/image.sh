# image.sh - sourced by the scripts that build VM images: kernel, modules, cpio, manifest. Its text is part of each
# image's identity. The caller has sourced debs.sh and run debs_take, so $work/packages is there.

# What an initramfs for x86-64 needs, in load order. A kernel that has one built in says so in modules.builtin.
modules=(libnvdimm nd_btt nd_pmem nfit crc32c_generic jbd2 mbcache crc16 ext4 pvpanic pvpanic-mmio)
optional_modules=" pvpanic pvpanic-mmio "

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

# The kernel package's image (kernel_file) and those of the modules that it has, below $work/kernel.
kernel_unpack() { # MODULE...
	local sha name patterns=('./boot/vmlinuz-*' '*/modules.builtin')
	sha=$(awk '/^linux-image-/ { print $4; exit }' "$work/packages")
	[ -n "$sha" ] || fail "${lock##*/} has no linux-image-*"
	mkdir -p "$work/kernel"
	for name; do patterns+=("*/$name.ko" "*/$name.ko.xz"); done
	dpkg-deb --fsys-tarfile "$cache/debs/$sha" | tar -C "$work/kernel" -x --no-same-owner --wildcards "${patterns[@]}" \
		2>"$work/tar.log" || grep -q 'Not found in archive' "$work/tar.log" || fail "cannot unpack the kernel: $(tail -n1 "$work/tar.log")"
	kernel_file=$(echo "$work"/kernel/boot/vmlinuz-*)
	[ -f "$kernel_file" ] || fail "the kernel package has no vmlinuz"
	echo "${kernel_file##*/vmlinuz-}" >"$work/kernel-version"
}

# Modules into DIR as NN-NAME.ko, numbered on from call to call.
module_count=0
kernel_modules() { # DIR MODULE...
	local dir=$1 name file to
	shift
	mkdir -p "$dir"
	for name; do
		file=$(find "$work/kernel" -name "$name.ko" -o -name "$name.ko.xz" | head -n1)
		if [ -z "$file" ]; then
			grep -rqs "/$name.ko\$" "$work/kernel" --include=modules.builtin && continue
			[[ $optional_modules == *" $name "* ]] && continue
			fail "kernel $(cat "$work/kernel-version") has no module $name"
		fi
		module_count=$((module_count + 1))
		to=$dir/$(printf %02d $module_count)-$name.ko
		case $file in
		*.xz) xz -dc "$file" >"$to" ;;
		*) cp "$file" "$to" ;;
		esac
	done
}

# vmlinux and modules.cpio for x86-64 into DIR, after kernel_unpack and kernel_modules.
kernel_write() { # DIR
	local file
	set +o pipefail # head ends tail early
	extract_vmlinux "$kernel_file" "$1/vmlinux"
	set -o pipefail
	{
		cpio_entry modules 40755 -
		for file in "$work"/modules/*.ko; do cpio_entry "modules/${file##*/}" 100644 "$file"; done
		cpio_entry 'TRAILER!!!' 0 -
	} >"$1/modules.cpio"
	phase "kernel $(cat "$work/kernel-version") and $module_count modules"
}

image_kernel() { # prints the manifest's line
	printf '  "kernel": "%s (%s)",\n' "$(cat "$work/kernel-version")" "$(awk '/^linux-image-/ { print $2; exit }' "$work/packages")"
}

image_files() { # DIR FILE... : prints the rest of the manifest
	local dir=$1 sep="" f
	shift
	printf '  "files": {'
	for f; do
		printf '%s\n    "%s": "%s"' "$sep" "$f" "$(sha256sum <"$dir/$f" | cut -d' ' -f1)"
		sep=,
	done
	printf '\n  }\n}\n'
}

# The manifest of an image whose packages are nobody's business.
image_manifest() { # DIR HASH DRIFTED FILE...
	local dir=$1 hash=$2 drifted=$3
	shift 3
	{
		printf '{\n  "schema": "flamelab-image/1",\n  "hash": "%s",\n' "$hash"
		image_kernel
		printf '  "drifted": %s,\n' "$drifted"
		image_files "$dir" "$@"
	} >"$dir/manifest.json"
}

# A drifted image is another image: its identity covers what really went in.
image_identity() { # HASH
	if [ -s "$work/drift" ]; then
		{ echo "$1"; cat "$work/packages"; } | sha256sum | cut -d' ' -f1
	else
		echo "$1"
	fi
}

# The cache is as good as its bytes: a cut or flipped file would be judged under the name of the whole one.
image_is_whole() { # DIR FILE...
	local dir=$1 f
	shift
	for f; do
		[ -f "$dir/$f" ] || return 1
		grep -qF "\"$f\": \"$(sha256sum <"$dir/$f" | cut -d' ' -f1)\"" "$dir/manifest.json" || return 1
	done
}
