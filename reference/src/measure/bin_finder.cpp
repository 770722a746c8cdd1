// SPDX-License-Identifier: Apache-2.0
#include "measure/bin_finder.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "formats/simd/targets.hpp"

namespace fp8lab {
namespace {

constexpr std::size_t most_found_bins = 4096;
constexpr std::uint64_t infinity_bits = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());

std::uint64_t magnitude_bits(double x) { return std::bit_cast<std::uint64_t>(x) & (~std::uint64_t{0} >> 1); }

double linear_slot(const LinearConstants& bins, double x) {
  if (x == 0) return 0;
  if (std::isinf(x)) return bins.count + 3;
  if (std::isnan(x)) return bins.count + 4;
  return std::max(std::min(std::floor(x * bins.bins_a_unit) + bins.first_bin, bins.count), -1.0) + 2;
}

void linear_slots_scalar(const LinearConstants& bins, const double* values, std::size_t count, std::int32_t* slots) {
  for (std::size_t i = 0; i < count; ++i) slots[i] = static_cast<std::int32_t>(linear_slot(bins, values[i]));
}

}  // namespace

std::shared_ptr<const BinFinder> BinFinder::make(const Bins& bins, const std::vector<double>& edges) {
  if (std::holds_alternative<CodeBins>(bins) || edges.size() > most_found_bins + 1) return nullptr;
  if (!std::ranges::is_sorted(edges)) return nullptr;
  const auto finder = std::shared_ptr<BinFinder>(new BinFinder(edges));
  if (const auto* linear = std::get_if<LinearBins>(&bins)) return finder->make_linear(*linear) ? finder : nullptr;
  for (const int fraction_bits : {0, 2, 4, 6}) {
    if (finder->make_table(fraction_bits)) return finder;
  }
  return nullptr;
}

std::size_t BinFinder::slot_of(double x) const {
  if (x < edges_.front()) return 1;
  if (x >= edges_.back()) return bins_ + 2;
  return static_cast<std::size_t>(std::ranges::upper_bound(edges_, x) - edges_.begin()) + 1;
}

bool BinFinder::make_table(int fraction_bits) {
  shift_ = static_cast<unsigned>(52 - fraction_bits);
  const std::uint64_t size = std::uint64_t{1} << (11 + fraction_bits);
  const std::uint64_t first = magnitude_bits(edges_.front()) >> shift_;
  const std::uint64_t last = std::min(magnitude_bits(edges_.back()), infinity_bits - 1) >> shift_;
  const std::uint64_t infinite = infinity_bits >> shift_;
  if (first == 0) return false;
  // 1. Zeros, what is below the first edge, what is above the last one, infinity, NaN.
  const auto above = static_cast<std::uint32_t>(bins_ + 2);
  keys_.assign(size, Key{0, {above, above}});
  std::fill_n(keys_.begin(), first, Key{0, {1, 1}});
  keys_[0] = {1, {0, 1}};
  std::fill(keys_.begin() + static_cast<std::ptrdiff_t>(infinite), keys_.end(), Key{0, {above + 2, above + 2}});
  keys_[infinite] = {infinity_bits + 1, {above + 1, above + 2}};
  // 2. The slots at the two ends of a key: all between them are where these two are, if one edge parts them.
  for (std::uint64_t key = first; key <= last; ++key) {
    const auto begin = std::bit_cast<double>(key << shift_);
    const std::size_t below = slot_of(begin);
    const std::size_t from = slot_of(std::bit_cast<double>(((key + 1) << shift_) - 1));
    keys_[key] = {0, {static_cast<std::uint32_t>(below), static_cast<std::uint32_t>(from)}};
    if (below == from) continue;
    const double edge = *std::ranges::upper_bound(edges_, begin);
    keys_[key].edge = magnitude_bits(edge);
    if (slot_of(edge) != from) return false;
  }
  return true;
}

bool BinFinder::make_linear(const LinearBins& bins) {
  const double bins_a_unit = bins.count / (bins.high - bins.low);
  linear_ = LinearConstants{.bins_a_unit = bins_a_unit,
                            .first_bin = std::floor(-bins.low * bins_a_unit),
                            .count = static_cast<double>(bins.count)};
  if (!std::isfinite(linear_->bins_a_unit) || !std::isfinite(linear_->first_bin)) return false;
  // Computed bins never decrease, and neither do slots. So it is enough to look at both sides of every edge, and of
  // zero, which is in no bin.
  using Limits = std::numeric_limits<double>;
  std::vector<double> corners{-Limits::denorm_min(), Limits::denorm_min(), Limits::lowest(), Limits::max()};
  for (const double edge : edges_) corners.insert(corners.end(), {std::nextafter(edge, -Limits::infinity()), edge});
  is_exact_ = true;
  for (const double x : corners) {
    if (x == 0) continue;
    const double distance = linear_slot(*linear_, x) - static_cast<double>(slot_of(x));
    if (std::abs(distance) > 1) return false;
    is_exact_ = is_exact_ && distance == 0;
  }
  // Zero, infinity and NaN stay where they are.
  begins_.assign(slots(), -Limits::infinity());
  ends_.assign(slots(), Limits::quiet_NaN());
  for (std::size_t i = 0; i <= bins_; ++i) begins_[i + 2] = ends_[i + 1] = edges_[i];
  return true;
}

void BinFinder::count(std::span<const double> values, std::span<std::uint64_t> counts) const {
  linear_ ? count_linear(*linear_, values, counts) : count_by_table(values, counts);
}

void BinFinder::count_by_table(std::span<const double> values, std::span<std::uint64_t> counts) const {
  // Copies: the compiler cannot know that counts are none of the members.
  const unsigned shift = shift_;
  const Key* keys = keys_.data();
  count_slots(values.size(), counts, [=](std::size_t i) {
    const std::uint64_t bits = magnitude_bits(values[i]);
    const Key& key = keys[bits >> shift];
    return key.slots[bits >= key.edge ? 1 : 0];  // no branch: which side is chance
  });
}

void BinFinder::correct(std::span<const double> values, std::span<std::int32_t> slots) const {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const auto slot = static_cast<std::size_t>(slots[i]);
    slots[i] += (values[i] >= ends_[slot] ? 1 : 0) - (values[i] < begins_[slot] ? 1 : 0);
  }
}

void BinFinder::count_linear(const LinearConstants& bins, std::span<const double> values,
                             std::span<std::uint64_t> counts) const {
  constexpr std::size_t most = 4096;
  std::array<std::int32_t, most> slots;
  const auto find = vector_code_allowed() ? &linear_slots_vector : &linear_slots_scalar;
  for (std::size_t first = 0; first < values.size(); first += most) {
    const std::span<const double> some = values.subspan(first, std::min(most, values.size() - first));
    find(bins, some.data(), some.size(), slots.data());
    if (!is_exact_) correct(some, std::span(slots).first(some.size()));
    count_slots(some.size(), counts, [&](std::size_t i) { return static_cast<std::size_t>(slots[i]); });
  }
}

}  // namespace fp8lab
