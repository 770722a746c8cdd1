#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles every header, and every source file that a build may compile together with others, by itself: each includes
# what it uses, no name in it meets one of another file, and none shadows another. Names those that do not compile.
# tests/structure/alone.sh [FILE...], from the root of the project, after a build (in build/release, or BUILD).
set -euo pipefail
build=${BUILD:-build/release}
venv=${VENV:-build/venv}

# What the build has as include directories of the libraries outside of the project.
flags=(-std=c++20 -fsyntax-only -Werror=shadow -O0 -DFP8LAB_VECTORS='""' -I"$build/experiments")
for directory in /usr/include/eigen3 "${CUDA_HOME:-/usr/local/cuda}/include"; do
  [ -d "$directory" ] && flags+=(-isystem "$directory")
done
without=(! -name 'added.cpp' ! -name 'added_experiment.cpp')  # what needs what the pages of docs/ add, or a library that is optional
[ -e "${CUDA_HOME:-/usr/local/cuda}/include/cuda_fp4.h" ] || without+=(! -name 'cuda_header.cpp')
[ -e /usr/include/benchmark/benchmark.h ] || without+=(! -path '*/bench/*')
if [ -x "$venv/bin/python" ]; then
  flags+=($("$venv/bin/python" -m pybind11 --includes))
fi
export flags_line="${flags[*]}"

compile() {
  local file=$1 room=${1%%/*}
  [[ $file == reference/doctor/* ]] && room=reference/doctor
  # shellcheck disable=SC2086
  local command=("${CXX:-g++}" $flags_line -Iformats/include -Ireference/include -Ireference/doctor/include -Igpu/include
                 -I"$room" -I"$room/src" -Ireference/src
                 -Ireference/doctor/src -I. -Iexperiments -Itests)
  "${command[@]}" -x c++ "$file" >"$2" 2>&1 && return
  echo "$file does not compile by itself: $(grep -m 1 -E 'error' "$2" | cut -c1-200)"
  return 1
}
export -f compile

files() {
  find formats reference gpu experiments bindings tests -name '*.hpp' ! -name '*-inl.hpp' ! -path '*/planted/*'
  find bindings experiments tests -name '*.cpp' ! -path '*/consumer/*' ! -path '*/planted/*' "${without[@]}"
}
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
if [ $# = 0 ]; then mapfile -t all < <(files | sort); else all=("$@"); fi
printf '%s\n' "${all[@]}" | xargs -P "$(nproc)" -I{} bash -c 'compile "$1" "$2/$(tr / _ <<<"$1")"' _ {} "$log" || exit 1
echo "${#all[@]} files compile by themselves"
