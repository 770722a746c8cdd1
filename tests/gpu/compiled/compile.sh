#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compile.sh FOLDER COMMAND...: what the compiler says goes to FOLDER/OUTPUT.txt, and is shown where it fails; OUTPUT is the name of what
# the command's option -o makes, to which FOLDER gets a link. Code that is hardly optimised is not kept for tests: both lie beside it.
folder=$1
shift
output=
last=
is_quick=
for argument; do
  case $argument in --Ofast-compile*) is_quick=1 ;; esac
  [ "$last" = -o ] && output=$argument
  last=$argument
done
[ -n "$is_quick" ] && folder=$(dirname "$output")
report=$folder/$(basename "$output").txt
"$@" >"$report" 2>&1 || { cat "$report"; exit 1; }
[ -e "$folder/$(basename "$output")" ] || ln -sf "$(realpath "$output")" "$folder"
