#!/bin/sh
# rebuild.sh BUILD - touching a header rebuilds the objects that include it and no others (-MMD -MP).
set -eu
cd "$(dirname "$0")/.."
b=${1:-build}
plan() { make -n --no-print-directory -W "$1" all | grep -oE ' -o [^ ]+\.o' | sed 's/ -o //' | sort -u; }
users=$(plan lib/prof/svg.h)
echo "$users" | grep -q "^$b/obj/lib/prof/svg.o$" || { echo "svg.h changed, svg.o not rebuilt: $users"; exit 1; }
if echo "$users" | grep -q "^$b/obj/lib/base/"; then echo "svg.h changed, lib/base rebuilt: $users"; exit 1; fi
[ -n "$(plan lib/base/buf.h)" ]
