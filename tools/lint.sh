#!/bin/bash
# lint.sh [--fix-format] [BUILD] - what a compiler does not refuse: format, layers, sizes, words, cppcheck.
#
# clang-tidy runs file by file from the Makefile (build/lint/PATH.ok), so that only changed files are read
# again. Every rule prints file:line and the rule's number in the style guide. Exit 1 on any finding.
set -u
cd "$(dirname "$0")/.." || exit 3
mapfile -t c_files < <(git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cpp' '*.hpp')
if [ "${1:-}" = --fix-format ]; then
	clang-format -i "${c_files[@]}"
	exit
fi
found=0
finding() { found=$((found + 1)); printf '%s\n' "$*"; }

# 2: format
while IFS= read -r line; do finding "$line (run: make format)"; done < <(
	clang-format --dry-run "${c_files[@]}" 2>&1 | grep -E 'warning:|error:' | head -n 20)

# 8: layers. directory -> what its quoted includes may start with
check_layer() {
	local dir=$1 allowed=$2
	while IFS= read -r line; do
		finding "$line: $dir may include only: $allowed (rule 8)"
	done < <(git ls-files --cached --others --exclude-standard "$dir/*.c" "$dir/*.h" "$dir/*.cpp" "$dir/*.hpp" |
		xargs -r grep -nE '^#include "' 2>/dev/null | grep -vE "#include \"($allowed)" || true)
}
check_layer lib/base 'base/'
check_layer lib/prof 'base/|prof/'
check_layer agent 'base/|prof/|agent/|version\.h|vmlinux\.h'
check_layer backend 'base/|prof/|backend/|version\.h'
check_layer lab 'base/|prof/|lab/|version\.h'
check_layer workloads '(args|burn|container|truth)\.hpp'
while IFS= read -r line; do finding "$line (rule 8)"; done < <(
	grep -nE '^#include "(\.\./|[^"]*\.c")' "${c_files[@]}" /dev/null || true)

# 29: sizes
for f in "${c_files[@]}"; do
	lines=$(wc -l <"$f")
	case $f in
	*.c | *.cpp) [ "$lines" -le 800 ] || finding "$f: $lines lines, at most 800 (rule 29)" ;;
	agent/bpf/vmlinux*.h) ;;
	*) [ "$lines" -le 300 ] || finding "$f: $lines lines, at most 300 (rule 29)" ;;
	esac
done
while IFS= read -r line; do finding "$line"; done < <(
	awk 'FNR == 1 { start = 0 }
	     /^{$/ { start = FNR }
	     /^}/ { if (start && FNR - start - 1 > 70)
			print FILENAME ":" start ": function of " FNR - start - 1 " lines, at most 70 (rule 29)"; start = 0 }' \
		$(printf '%s\n' "${c_files[@]}" | grep '\.c$'))

# 4: typedef of structs; 27: file comment; unfinished work
while IFS= read -r line; do finding "$line: typedef of a struct (rule 4)"; done < <(
	grep -nE '^typedef (struct|union|enum)' "${c_files[@]}" /dev/null || true)
for f in "${c_files[@]}"; do
	head -n 2 "$f" | grep -q '/\*' || finding "$f:1: no file comment (rule 27)"
done
while IFS= read -r line; do finding "$line: unfinished"; done < <(
	grep -nwE 'TODO|FIXME|XXX' "${c_files[@]}" /dev/null || true)

# headers compile alone (git's rule)
for f in "${c_files[@]}"; do
	case $f in
	lib/*.h | agent/*.h | backend/*.h | lab/*.h)
		case $f in agent/bpf/*) [ "$f" = agent/bpf/sample.h ] || continue ;; esac
		gcc -std=gnu17 -D_GNU_SOURCE -Ilib -I. -fsyntax-only -x c "$f" 2>/dev/null ||
			finding "$f:1: does not compile alone"
		;;
	esac
done

# NMI: programs on perf events may call only what is safe in an NMI; CI and TCG raise none, so this list is
# the gate (DESIGN.md section 4).
if [ -f agent/bpf/nmi_safe.txt ]; then
	while IFS= read -r h; do
		grep -qx "$h" agent/bpf/nmi_safe.txt || finding "agent/bpf: helper $h is not in agent/bpf/nmi_safe.txt"
	done < <(cat agent/bpf/*.bpf.c agent/bpf/*.h | sed 's://.*$::' | grep -oE '\bbpf_[a-z0-9_]+ *\(' | tr -d ' (' |
		sort -u | grep -vE '^bpf_core_|^bpf_printk$')
fi

if command -v cppcheck >/dev/null; then
	while IFS= read -r line; do finding "$line"; done < <(
		cppcheck --quiet --std=c11 --enable=warning,performance,portability --inline-suppr -j 2 \
			--suppressions-list=tools/cppcheck.txt --template='{file}:{line}: {severity}: {message} [{id}]' \
			-Ilib -I. lib agent backend lab -i agent/bpf 2>&1 | grep -E ': (error|warning|performance|portability):' || true)
fi
if [ "$found" -gt 0 ]; then
	echo "lint: $found findings" >&2
	exit 1
fi
echo "lint: ${#c_files[@]} files, no findings"
