#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copies the project, adds the format, the recipe, the tensor core, the departure and the experiment of docs/add_a*.md to the copy, and runs every test of its release build.
# added.sh DIRECTORY
set -euo pipefail
copy=$(realpath -m "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$copy"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy"
cmake -D ROOT="$PWD" -D OUT="$copy/added" -D PAGES=add_a_format,add_a_recipe,add_a_tensor_core,add_a_departure,add_an_experiment -P tests/docs/apply.cmake
cp -r "$copy"/added/* "$copy"
rm -r "$copy/added" "$copy/tests/docs/CMakeLists.txt"
touch "$copy/tests/docs/CMakeLists.txt"  # the steps are done
cd "$copy"
cmake --preset release
cmake --build --preset release -j "$(nproc)"
ctest --preset release -j "$(nproc)"
