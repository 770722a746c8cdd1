// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/targets.hpp"

#include <hwy/targets.h>

#include <cstdlib>
#include <mutex>

#include "fp8lab/formats/named.hpp"
#include "simd/targets.hpp"

namespace fp8lab {
namespace {

struct Target {
  std::string_view name;
  std::int64_t bit;  // Highway's; 0 is scalar code
};

const std::vector<Target>& all_targets() {
  static const std::vector<Target> all = [] {
    std::vector<Target> list;
    // Highway's own targets without vectors are left out. The scalar code is what the others are held against, and
    // what Highway emulates is not IEEE's: it narrows an infinite double to the largest float.
    constexpr std::int64_t without_vectors = HWY_SCALAR | HWY_EMU128;
    for (std::int64_t bits = hwy::SupportedTargets() & HWY_TARGETS & ~without_vectors; bits != 0; bits &= bits - 1) {
      list.push_back({hwy::TargetName(bits & -bits), bits & -bits});
    }
    list.push_back({"scalar", 0});
    return list;
  }();
  return all;
}

bool scalar_forced = false;

void force(std::string_view name) {
  const std::int64_t bit = name.empty() ? 0 : find_named(all_targets(), "target", name).bit;
  hwy::SetSupportedTargetsForTest(bit);
  hwy::GetChosenTarget().DeInit();
  scalar_forced = name == "scalar";
}

/// Reads FP8LAB_TARGET once, before anything else.
void read_environment() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* name = std::getenv("FP8LAB_TARGET");
    if (name != nullptr) force(name);
  });
}

}  // namespace

std::vector<std::string_view> targets() {
  std::vector<std::string_view> names;
  for (const Target& target : all_targets()) names.push_back(target.name);
  return names;
}

void force_target(std::string_view name) {
  (void)all_targets();  // before any is forced
  read_environment();
  force(name);
}

bool vector_code_allowed() {
  read_environment();
  return !scalar_forced && all_targets().size() > 1;
}

}  // namespace fp8lab
