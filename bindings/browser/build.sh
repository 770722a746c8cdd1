#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh PYTHON FILE: compiles what the page "Try it" computes to WebAssembly, into FILE. PYTHON has the package ziglang, whose compiler
# brings a C++ library for it. Of Debian it needs the headers of {fmt}.
set -euo pipefail
python=$(realpath -s "$1") file=$(realpath -m "$2")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
zig=$("$python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name("zig"))')
work=build/browser
mkdir -p "$work/include" "$(dirname "$file")"
ln -sfn /usr/include/fmt "$work/include/fmt"  # these alone: the other headers there are those of another C library
sources=(bindings/browser/browser.cpp experiments/explain/explain.cpp experiments/dot/picture.cpp
  formats/src/{names,policy_names,text,environment,interruption}.cpp
  reference/src/gemm/trace.cpp reference/src/tensor_core/{factors,instruction,exact_sum,misfit,amd_steps,mma_model,models}.cpp)
options=(-target wasm32-wasi -mexec-model=reactor -std=c++20 -O2 -fignore-exceptions -ffp-contract=off -DFMT_HEADER_ONLY
  -I experiments -I formats/include -I formats/src -I reference/include -I reference/src -isystem "$work/include")
objects=()
for source in "${sources[@]}"; do
  objects+=("$work/$(tr / - <<<"$source").o")
  "$zig" c++ "${options[@]}" -c "$source" -o "${objects[-1]}"  # from zig's own cache where nothing has changed
done
"$zig" c++ "${options[@]}" -s -Wl,--gc-sections "${objects[@]}" -o "$file"
