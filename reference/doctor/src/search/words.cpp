// SPDX-License-Identifier: Apache-2.0
#include "search/words.hpp"

namespace fp8lab::doctor {

std::string counted(std::uint64_t count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

std::string first_words(const Answer& answer) {
  std::string text;
  if (!answer.instead_of.empty()) text.append("Not ").append(answer.instead_of).append(": ");
  if (!answer.is_explained) return text + "Unexplained: nothing that was searched explains everything. The nearest";
  if (answer.instead_of.empty()) text = answer.is_correct ? "Correct: " : "Explained: ";
  return text;
}

}  // namespace fp8lab::doctor
