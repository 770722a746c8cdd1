// SPDX-License-Identifier: Apache-2.0
#include "quantize/order.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "fp8lab/formats/text_stream.hpp"
#include "quantize/kernel_model.hpp"

namespace fp8lab::doctor {
namespace {

/// Signs of some elements of a row, and which of them count.
constexpr std::size_t sign_words = 4;
struct Signs {
  std::array<std::uint64_t, sign_words> negative{}, counted{};
};

/// How many signs of b differ among those that count in a.
int differing(const Signs& a, const Signs& b) {
  int count = 0;
  for (std::size_t i = 0; i < sign_words; ++i) count += std::popcount((a.negative[i] ^ b.negative[i]) & a.counted[i]);
  return count;
}

/// Signs of lines of elements, at equal distances.
template <typename IsNegative, typename Counts>
std::vector<Signs> signs_of(std::size_t lines, const Source& like, const IsNegative& is_negative,
                            const Counts& counts) {
  const std::size_t length = like.size() / lines;
  const std::size_t taken = std::min<std::size_t>(length, 64 * sign_words);
  std::vector<Signs> all(lines);
  for (std::size_t line = 0; line < lines; ++line) {
    for (std::size_t i = 0; i < taken; ++i) {
      const std::size_t place = line * length + i * length / taken;
      all[line].negative[i / 64] |= std::uint64_t{is_negative(place)} << (i % 64);
      all[line].counted[i / 64] |= std::uint64_t{counts(place)} << (i % 64);
    }
  }
  return all;
}

/// The row of codes whose signs are those of each row of x; empty where they are not clearly those of one.
std::vector<std::size_t> order_of(const std::vector<Signs>& x, const std::vector<Signs>& codes) {
  constexpr std::size_t fewest_rows = 4;
  constexpr std::size_t most_rows = 8192;
  if (x.size() < fewest_rows || x.size() > most_rows) return {};
  std::vector<std::size_t> order;
  std::vector<bool> is_taken(x.size());
  for (const Signs& own : x) {
    int counted = 0;
    for (const std::uint64_t word : own.counted) counted += std::popcount(word);
    std::size_t best = 0;
    int least = counted + 1;
    int second = counted + 1;
    for (std::size_t other = 0; other < codes.size(); ++other) {
      const int count = differing(own, codes[other]);
      if (count < least) best = other;
      second = count < least ? least : std::min(second, count);
      least = std::min(least, count);
    }
    const bool is_clear = counted >= 24 && least * 6 <= counted && second >= 2 * least + 4;
    if (!is_clear || is_taken[best]) return {};
    is_taken[best] = true;
    order.push_back(best);
  }
  return order;
}

bool is_identity(const std::vector<std::size_t>& order) {
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (order[i] != i) return false;
  }
  return true;
}

std::string told(std::string_view what, const std::vector<std::size_t>& order) {
  constexpr std::size_t most_told = 8;
  TextStream text;
  text << "By their signs, the codes of " << what << " 0, 1, 2, ... stand in " << what << ' ';
  for (std::size_t i = 0; i < std::min(order.size(), most_told); ++i) text << (i == 0 ? "" : ", ") << order[i];
  text << (order.size() > most_told ? ", ... " : " ") << "What follows is said of codes that were put in order.";
  return text.str();
}

template <typename T>
std::vector<T> in_order(std::span<const T> rows, const std::vector<std::size_t>& order) {
  const std::size_t each = rows.size() / order.size();
  std::vector<T> out;
  out.reserve(rows.size());
  for (const std::size_t row : order) {
    const auto own = rows.subspan(row * each, each);
    out.insert(out.end(), own.begin(), own.end());
  }
  return out;
}

}  // namespace

std::optional<Reordered> put_in_order(const MatrixView& x, const Dump& dump) {
  const StoredDump stored(x, dump);
  const Format format = dump.format.value_or(stored.was_packed ? e2m1 : e4m3);
  const auto sign = static_cast<std::uint8_t>(format.sign_mask());
  const Source source(x, 1);
  const auto counts = [&](std::size_t i) { return std::abs(source.values()[i]) > 0; };
  const auto is_negative = [&](std::size_t i) { return std::signbit(source.values()[i]); };
  const std::size_t rows = x.rows();
  const std::size_t columns = x.columns();
  // 1. Rows, with their scales.
  const auto has_sign = [&](std::size_t i) { return (stored.codes[i] & sign) != 0; };
  const auto all = [](std::size_t) { return true; };
  const auto order = order_of(signs_of(rows, source, is_negative, counts), signs_of(rows, source, has_sign, all));
  if (!order.empty() && !is_identity(order)) {
    Reordered result{in_order(std::span<const std::uint8_t>(stored.codes), order), {}, told("rows", order)};
    const std::size_t width = dump.scales.bytes.size() / std::max<std::size_t>(1, stored.scales.size());
    if (width != 0 && stored.scales.size() % rows == 0) result.scales = in_order(dump.scales.bytes, order);
    return result;
  }
  // 2. Columns.
  const auto place = [&](std::size_t i) { return i % rows * columns + i / rows; };
  const auto there = [&](const auto& f) { return [&](std::size_t i) { return f(place(i)); }; };
  const auto other = order_of(signs_of(columns, source, there(is_negative), there(counts)),
                              signs_of(columns, source, there(has_sign), all));
  if (other.empty() || is_identity(other)) return std::nullopt;
  Reordered result{std::vector<std::uint8_t>(stored.codes.size()), {}, told("columns", other)};
  for (std::size_t i = 0; i < stored.codes.size(); ++i) {
    result.codes[i] = stored.codes[i / columns * columns + other[i % columns]];
  }
  return result;
}

}  // namespace fp8lab::doctor
