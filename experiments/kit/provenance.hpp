// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace fp8lab::experiments {

/// Where a result came from, so that it can be made again.
struct Provenance {
  std::string version;
  std::string commit;  ///< of the sources, "-dirty" where they were changed; "unknown" outside a checkout
  std::string compiler;
  std::string cpu;
  std::string date;  ///< UTC, ISO 8601
};

[[nodiscard]] Provenance provenance();

/// The version of fp8lab.
[[nodiscard]] std::string_view version();

}  // namespace fp8lab::experiments
