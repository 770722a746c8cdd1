// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/text.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace fp8lab {
namespace {

constexpr std::size_t most_quoted = 80;
constexpr std::size_t most_of_line = 300;
constexpr std::string_view cut = "...";

std::string escaped(std::string_view text) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      result += c;
    } else {
      result.append("\\x").append(1, digits[byte / 16]).append(1, digits[byte % 16]);
    }
  }
  return result;
}

/// At most `most` characters, of longer texts the first two thirds and the end.
std::string shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  const std::size_t head = (most - cut.size()) * 2 / 3;
  const std::size_t tail = most - cut.size() - head;
  return text.substr(0, head).append(cut).append(text, text.size() - tail);
}

/// The text, or both ends of it: what shortened() leaves of more, which may be megabytes, is in them.
std::string ends_of(std::string_view text, std::size_t most) {
  if (text.size() <= 2 * most) return std::string(text);
  return std::string(text.substr(0, most)).append(text.substr(text.size() - most));
}

/// Insertions, deletions, replacements and exchanges of two neighbours that make one of the other: the distance of
/// optimal string alignment.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({above[j] + (a[i] == b[j] ? 0 : 1), above[j + 1] + 1, row[j] + 1});
      const bool is_exchanged = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (is_exchanged) row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
  }
  return row.back();
}

/// Whether the words of the name, which "_" separates, are words of the known one, in their order.
bool has_words(std::string_view known, std::string_view name) {
  const auto word = [](std::string_view& text) {
    const std::size_t end = text.find('_');
    const std::string_view first = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    return first;
  };
  while (!name.empty()) {
    const std::string_view wanted = word(name);
    bool is_there = false;
    while (!is_there && !known.empty()) is_there = word(known) == wanted;
    if (!is_there) return false;
  }
  return true;
}

/// The known name that is meant most likely: one with few other characters, or one that has `name` or all of its words
/// in it. Empty where there is none.
std::string_view meant_by(std::string_view name, std::span<const std::string_view> known) {
  std::string_view best;
  std::size_t least = std::min<std::size_t>(3, (name.size() + 1) / 2);
  for (const std::string_view one : known) {
    const bool is_part = name.size() >= 3 && (one.find(name) != std::string_view::npos || has_words(one, name));
    const std::size_t edits = is_part ? 1 : distance(name, one);
    if (edits >= least) continue;
    least = edits;
    best = one;
  }
  return best;
}

}  // namespace

std::string in_quotes(std::string_view text) {
  const std::string line = shortened(escaped(ends_of(text, most_quoted)), most_quoted);
  return std::string(1, '\'').append(line).append(1, '\'');
}

std::string one_line(std::string_view message) {
  std::string ends = ends_of(message, most_of_line);
  std::ranges::replace_if(ends, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
  return shortened(escaped(ends), most_of_line);
}

void refuse_name(std::string_view kind, std::string_view name, std::span<const std::string_view> known) {
  const std::string_view meant = meant_by(name.substr(0, most_quoted), known);
  const std::string hint = meant.empty() ? "" : "; did you mean " + std::string(meant) + "?";
  const std::size_t most = most_of_line - 50 - hint.size();  // 50 for an option's name, and for how many are left out
  std::string message = "unknown " + std::string(kind) + " " + in_quotes(name) + "; known: ";
  std::vector<std::string_view> list(known.begin(), known.end());
  const auto add = [](std::size_t sum, std::string_view one) { return sum + one.size() + 2; };
  if (std::accumulate(list.begin(), list.end(), message.size(), add) > most) {
    const std::string_view given = name.substr(0, most_quoted);
    std::ranges::stable_sort(list, {}, [&](std::string_view one) { return distance(given, one); });
  }
  std::size_t shown = 0;
  for (; shown < list.size() && (shown == 0 || message.size() + list[shown].size() + 2 <= most); ++shown) {
    if (shown > 0) message += ", ";
    message += list[shown];
  }
  if (shown < list.size()) message += " and " + std::to_string(list.size() - shown) + " more";
  throw std::invalid_argument(message + hint);
}

}  // namespace fp8lab
