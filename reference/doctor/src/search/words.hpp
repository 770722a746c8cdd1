// SPDX-License-Identifier: Apache-2.0
// Words that all verdicts have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::doctor {

/// The parts one after the other.
template <typename... Parts>
[[nodiscard]] std::string joined(const Parts&... parts) {
  TextStream text;
  (text << ... << parts);
  return text.str();
}

/// "1 code", "2 codes".
[[nodiscard]] inline std::string counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

/// What a verdict begins with where everything is explained: `instead_of` is what was expected if it is another.
[[nodiscard]] inline std::string explained_words(bool is_correct, const std::string& instead_of) {
  if (!instead_of.empty()) return "Not " + instead_of + ": ";
  return is_correct ? "Correct: " : "Explained: ";
}

/// What a verdict says before the nearest explanation.
inline constexpr std::string_view unexplained_words =
    "Unexplained: nothing that was searched explains everything. The nearest";

}  // namespace fp8lab::doctor
