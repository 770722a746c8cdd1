// SPDX-License-Identifier: Apache-2.0
// The cases that a device is asked, on the host team: each runs, fills its whole output and gives the same again.
#include "fp8lab/gpu/recorder/kernel_cases.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("the kernel cases of a device run on the host team, where each writes all of its output") {
  std::set<std::string> names;
  for (const gpu::KernelCase& one : gpu::kernel_cases()) {
    INFO(one.name);
    CHECK(names.insert(one.name).second);
    if (sanitized && names.size() % 4 != 0) continue;
    // Cases of float32 and float16 have one of bfloat16 beside them.
    if (one.name.ends_with("float32") || one.name.ends_with("float16")) continue;
    const std::vector<std::uint8_t> output = one.output(false);
    CHECK(output.size() > 1000);
    CHECK(std::ranges::count(output, 0xA5) < static_cast<long>(output.size() / 16));
    CHECK((one.runs_on(90) || one.runs_on(100)));
  }
  CHECK(names.size() > 100);
}

}  // namespace fp8lab::tests
