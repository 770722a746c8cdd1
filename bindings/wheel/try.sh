#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# try.sh PYTHON WHEEL DIR: looks at a wheel, installs it into an environment of this Python in DIR, with NumPy alone, and asks there for bits.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=$1 wheel=$(realpath "$2") dir=$(realpath -m "$3")
rm -rf "$dir"
mkdir -p "$dir"

# 1. At most 8 MB, and no symbol is younger than the wheel's name says.
[ "$(stat -c %s "$wheel")" -le 8000000 ] || { echo "$wheel is larger than 8 MB"; exit 1; }
"$python" -m zipfile -e "$wheel" "$dir/unpacked"
module=("$dir"/unpacked/fp8lab/_core.*.so)
oldest=$(sed 's/.*manylinux_\([0-9]*\)_\([0-9]*\)_.*/\1.\2/' <<<"$wheel")
youngest=$({ objdump -T "${module[0]}" | grep -o 'GLIBC_[0-9.]*' | cut -d_ -f2; echo "$oldest"; } | sort -uV | tail -n 1)
[ "$youngest" = "$oldest" ] || { echo "${module[0]} needs glibc $youngest"; exit 1; }
if objdump -T "${module[0]}" | grep -E 'GLIBCXX|CXXABI'; then echo "${module[0]} needs a C++ library"; exit 1; fi

# 2. The command line, under each of its names, and bits: of casts and tensor cores against their oracles, and a digest of many calls.
"$python" -m venv "$dir/venv"
"$dir/venv/bin/python" -m pip --disable-pip-version-check install -q "$wheel"
cd "$dir"
"$dir/venv/bin/fp8lab" formats >/dev/null
for file in man/man1/fp8lab.1 bash-completion/completions/fp8lab zsh/site-functions/_fp8lab fish/vendor_completions.d/fp8lab.fish; do
  [ -s "$dir/venv/share/$file" ] || { echo "the wheel lacks share/$file"; exit 1; }
done
"$dir/venv/bin/fp8lab" man | cmp - "$dir/venv/share/man/man1/fp8lab.1"
"$dir/venv/bin/python" -m fp8lab targets
"$dir/venv/bin/fp8lab" verify casts | tail -n 3
"$dir/venv/bin/fp8lab" verify tensor-cores | tail -n 3
"$dir/venv/bin/python" "$here/digest.py"
