#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compile.sh REPORT COMMAND...: what the compiler says goes to a file, and is shown where it fails.
report=$1
shift
"$@" >"$report" 2>&1 || { cat "$report"; exit 1; }
