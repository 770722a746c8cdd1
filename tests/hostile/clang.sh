#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang.sh COMPILER: compiles the libraries with it and runs the tests of formats and reference on them, for another
# compiler must give the same bits.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cmake -S . -B build/clang -G Ninja -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER="$1" -D FP8LAB_CUDA=OFF
programs=(test_formats test_scaling test_operators test_products)
cmake --build build/clang --target "${programs[@]}"
for program in "${programs[@]}"; do "build/clang/bin/$program" '~[long]~[.]'; done
