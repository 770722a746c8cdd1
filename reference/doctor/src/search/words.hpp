// SPDX-License-Identifier: Apache-2.0
// Words that all verdicts have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fp8lab::doctor {

/// "1 code", "2 codes".
[[nodiscard]] std::string counted(std::uint64_t count, std::string_view noun);

/// What a search comes to.
struct Answer {
  bool is_explained, is_correct;
  std::string_view instead_of = {};  ///< what was expected, where something else was found; empty elsewhere
};
/// What the verdict begins with: "Correct: ", or "Not X: Unexplained: ...", behind which the explanation stands.
[[nodiscard]] std::string first_words(const Answer& answer);

}  // namespace fp8lab::doctor
