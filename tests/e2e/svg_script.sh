#!/bin/bash
# svg_script.sh [BUILD] - does the flame graph's script search, zoom and answer the keyboard as it should?
#
# Draws a graph of known stacks, opens it from file:// in a headless Chromium with svg_script_probe.js appended,
# and compares what the probe saw with figures worked out by hand from the stacks below (1,200 samples).
set -u
cd "$(dirname "$0")/../.." || exit 3
B=${1:-build}
browser=$(command -v chromium || command -v google-chrome)
if [ -z "$browser" ]; then
	echo "skip svg script: no chromium here"
	exit 0
fi
scratch=$(mktemp -d) || exit 3
trap 'rm -rf "$scratch"' EXIT
failed=0

cat >"$scratch/stacks" <<'STACKS'
cpu_split;main;caller_a;hot_70 700
cpu_split;main;caller_b;hot_20;hot_inner 200
cpu_split;main;caller_b;rest 100
x;<svg onload=alert(1)>;constructor;__proto__;.* 50
x;]]></script><script>alert(1)</script>;<img src=x onerror=alert(1)> 150
STACKS
gcc -std=gnu17 -D_GNU_SOURCE -Ilib tests/e2e/svg_draw.c "$B"/obj/lib/prof/*.o "$B"/obj/lib/base/*.o \
	-o "$scratch/svg_draw" -lz -lxxhash -lnettle -lm || { echo "not ok svg script: svg_draw does not build"; exit 1; }
"$scratch/svg_draw" <"$scratch/stacks" >"$scratch/plain.svg" || { echo "not ok svg script: svg_draw failed"; exit 1; }
if command -v xmllint >/dev/null; then
	if xmllint --noout "$scratch/plain.svg"; then echo "ok svg is well-formed"; else
		failed=1
		echo "not ok svg is well-formed: see xmllint's message"
	fi
else
	echo "skip svg is well-formed: no xmllint"
fi
{
	sed '$d' "$scratch/plain.svg"
	printf '<script><![CDATA[\n'
	cat tests/e2e/svg_script_probe.js
	printf ']]></script>\n</svg>\n'
} >"$scratch/probe.svg"
timeout 120 "$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
	--disable-component-update --disable-sync --user-data-dir="$scratch/profile" --window-size=1250,800 \
	--dump-dom "file://$scratch/probe.svg" >"$scratch/dom" 2>"$scratch/browser.log"
sed -n '/^PROBE$/,/^DONE$/p' "$scratch/dom" | sed 's/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g' >"$scratch/seen"
if [ ! -s "$scratch/seen" ]; then
	echo "not ok svg script: the probe told nothing; $(tail -n 1 "$scratch/browser.log")"
	exit 1
fi

# expect NAME VALUE
expect() {
	local seen
	seen=$(grep -F -m 1 -- "$1=" "$scratch/seen" | cut -c $((${#1} + 2))-)
	if [ "$seen" = "$2" ]; then echo "ok svg $1"; else
		failed=1
		echo "not ok svg $1: '$seen', expected '$2'"
	fi
}
expect "search hot" "matched: 75.00 %" # hot_inner lies in hot_20 and counts once
expect "search HOT" "matched: 75.00 %"
expect "search .*" "matched: 4.17 %" # as text, not as a pattern
expect "search constructor" "matched: 4.17 %"
expect "search __proto__" "matched: 4.17 %"
expect "search <svg" "matched: 4.17 %"
expect "search absent" "matched: 0.00 %"
expect "search all" "matched: 83.33 %" # caller_a and caller_b; the root is no match
expect "search " ""
expect "zoomed matched" "matched: 75.00 % of all, 66.67 % of this view"
expect "zoomed width" "1179.50"
expect "zoomed child" "786.17" # 2/3 of 1180, less the gap of 0.5
expect "zoomed hides others" true
expect "zoomed fades ancestors" true
expect "details" "hot_20, native, 200 samples, 16.67 %"
expect "esc clears the search first" true
expect "esc resets the zoom next" true
expect "ctrl-f focuses" search
expect "esc leaves the search for" caller_b
expect "slash focuses" search
expect "up" hot_20
expect "right" rest
expect "enter zooms" "1179.50"
expect "down" caller_b
expect "reset" "1179.50 false"
expect "tab stops" 1
expect "hostile name" "<svg onload=alert(1)>"
expect "markup from names" 2 # the graph's script and the probe
expect "requests" 0
exit $failed
