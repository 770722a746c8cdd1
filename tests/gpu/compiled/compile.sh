#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compile.sh FOLDER COMMAND...: what the compiler says goes to FOLDER/OUTPUT.txt, and is shown where it fails; OUTPUT is the name of what
# the command's option -o makes, to which FOLDER gets a link.
folder=$1
shift
output=
last=
for argument; do
  [ "$last" = -o ] && output=$argument
  last=$argument
done
report=$folder/$(basename "$output").txt
"$@" >"$report" 2>&1 || { cat "$report"; exit 1; }
[ -e "$folder/$(basename "$output")" ] || ln -sf "$(realpath "$output")" "$folder"
