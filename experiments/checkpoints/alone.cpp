// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/alone.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "checkpoints/explanation.hpp"
#include "fp8lab/formats/decode.hpp"

namespace fp8lab::experiments {

namespace {

/// Amaxes of weights lie between these: a scale beyond what they make is none of a weight.
constexpr double least_amax_of_weights = 1e-6;
constexpr double largest_amax_of_weights = 1e3;

class Alone {
 public:
  Alone(const CodedMatrix& matrix, const MatrixNames& names) : matrix_(matrix), names_(names) {
    for (const std::uint8_t code : matrix_.codes) ++counts_[code];
  }

  std::vector<CheckpointFinding> run() {
    if (matrix_.codes.empty()) return {};
    const bool has_nan_codes = look_at_codes();
    look_at_scales();
    look_at_global_scale();
    if (!has_nan_codes) look_at_distribution();
    look_at_rows();
    return std::move(found_);
  }

 private:
  void add(FindingKind kind, const std::string& tensor, const std::string& words, std::string where = {}) {
    found_.push_back({tensor, kind, names_.at + words, std::move(where)});
  }
  [[nodiscard]] unsigned magnitude(std::uint8_t code) const {
    return code & static_cast<unsigned>(matrix_.format.magnitude_mask());
  }

  /// Whether a code is NaN.
  [[nodiscard]] bool has_nan() const {
    if (!matrix_.format.has_nan()) return false;
    for (std::size_t code = 0; code < counts_.size(); ++code) {
      if (counts_[code] != 0 && std::isnan(decode(matrix_.format, static_cast<std::uint8_t>(code)))) return true;
    }
    return false;
  }

  /// Codes that are NaN. Where each block that is not zero has some, and nothing is the code of -0, they are FNUZ.
  bool look_at_codes() {
    if (!has_nan()) return false;
    std::vector<std::size_t> nans;
    std::vector<bool> block_has_nan(matrix_.scales.size());
    std::vector<bool> block_has_code(matrix_.scales.size());
    bool has_minus_zero = false;
    for (std::size_t i = 0; i < matrix_.codes.size(); ++i) {
      const std::size_t row = i / matrix_.columns;
      const std::size_t column = i % matrix_.columns;
      const std::size_t block = row / matrix_.block_rows * matrix_.grid_columns() + column / matrix_.block_columns;
      has_minus_zero = has_minus_zero || matrix_.codes[i] == matrix_.format.sign_mask();
      if (magnitude(matrix_.codes[i]) != 0) block_has_code[block] = true;
      if (std::isnan(decode(matrix_.format, matrix_.codes[i]))) {
        nans.push_back(i);
        block_has_nan[block] = true;
      }
    }
    const bool at_all_maxima = block_has_nan == block_has_code && !has_minus_zero && matrix_.format == e4m3;
    if (at_all_maxima) {
      add(FindingKind::fnuz_codes, names_.codes,
          "the largest code of every block is 7F, which is NaN in E4M3 and 240 in E4M3 FNUZ, and no code is 80: codes "
          "are those of E4M3 FNUZ, and all others are doubled");
    } else {
      add(FindingKind::nan_codes, names_.codes,
          nans.size() == 1 ? std::string("a code is NaN") : fmt::format("{} codes are NaN", nans.size()),
          places(nans, matrix_.columns));
    }
    return true;
  }

  void look_at_scales() {
    std::vector<std::size_t> nans;
    std::vector<std::size_t> negative;
    for (std::size_t i = 0; i < matrix_.scales.size(); ++i) {
      if (!std::isfinite(matrix_.scales[i])) nans.push_back(i);
      if (matrix_.scales[i] < 0) negative.push_back(i);
    }
    const std::size_t columns = matrix_.grid_columns();
    if (!nans.empty()) {
      add(FindingKind::nan_scale, names_.scale,
          nans.size() == 1 ? std::string("a scale is NaN or infinite")
                           : fmt::format("{} scales are NaN or infinite", nans.size()),
          places(nans, columns));
    }
    if (!negative.empty()) {
      add(FindingKind::negative_scale, names_.scale,
          negative.size() == 1 ? std::string("a scale is negative")
                               : fmt::format("{} scales are negative", negative.size()),
          places(negative, columns));
    }
    if (nans.empty() && negative.empty() && !matrix_.global) look_at_size_of_scales();
  }

  [[nodiscard]] double largest_code_value() const {
    double largest = 0;
    for (std::size_t code = 0; code < counts_.size(); ++code) {
      if (counts_[code] == 0) continue;
      const double value = std::abs(double{decode(matrix_.format, static_cast<std::uint8_t>(code))});
      if (std::isfinite(value)) largest = std::max(largest, value);
    }
    return largest;
  }

  /// Scales of FP8 and MX stand for themselves: amax / 448, amax / 6 up to a power of two.
  void look_at_size_of_scales() {
    const auto [least, most] = std::ranges::minmax_element(matrix_.scales);
    const double largest = largest_code_value();
    const bool are_integers = std::ranges::all_of(
        matrix_.scales, [](float scale) { return scale == std::floor(scale) && scale >= 64 && scale <= 190; });
    if (are_integers && !matrix_.scales_are_powers) {
      add(FindingKind::e8m0_as_number, names_.scale,
          fmt::format("scales are whole numbers from {} to {}: bytes of E8M0 that were converted as numbers", *least,
                      *most));
    } else if (*least * largest > largest_amax_of_weights && !matrix_.scales_are_powers) {
      add(FindingKind::inverted_scale, names_.scale,
          fmt::format(
              "scales are {:.6g} to {:.6g}, of an amax of {:.3g} and more; their inverses are those of a weight",
              *least, *most, *least * largest));
    } else if (*least == *most && *most * largest < least_amax_of_weights * 1e-20) {
      add(FindingKind::constant_scale, names_.scale,
          fmt::format("all scales are {:.6g}, which no weight makes", *most));
    }
  }

  void look_at_global_scale() {
    if (!matrix_.global) return;
    const double stored = *matrix_.global;
    if (!std::isfinite(stored) || stored <= 0) {
      add(FindingKind::nan_scale, names_.global_scale, fmt::format("the tensor's scale is {:.6g}", stored));
      return;
    }
    const double range = 448 * double{max_value(matrix_.format)};
    const double amax = matrix_.global_divides ? range / stored : range * stored;
    const double amax_of_inverse = matrix_.global_divides ? range * stored : range / stored;
    const auto is_of_weights = [](double x) { return x > least_amax_of_weights && x < largest_amax_of_weights; };
    if (!is_of_weights(amax) && is_of_weights(amax_of_inverse)) {
      add(FindingKind::inverted_global_scale, names_.global_scale,
          fmt::format("the tensor's scale is {:.6g}, of an amax of {:.3g}; its inverse is of {:.3g}", stored, amax,
                      amax_of_inverse));
    }
  }

  /// How often each code comes.
  void look_at_distribution() {
    const auto& counts = counts_;
    const auto sign = static_cast<std::size_t>(matrix_.format.sign_mask());
    const std::size_t zeros = counts[0] + counts[sign];
    const std::size_t others = matrix_.codes.size() - zeros;
    if (others == 0) {
      const auto [least, most] = std::ranges::minmax_element(matrix_.scales);
      if (*least != *most) {
        add(FindingKind::zero_codes, names_.codes, "all codes are zero, and the scales are not those of zeros");
      }
      return;
    }
    std::size_t negative = 0;
    for (std::size_t code = sign + 1; code < 2 * sign; ++code) negative += counts[code];
    if (negative == 0 && others >= 64) {
      add(FindingKind::sign_lost, names_.codes, fmt::format("none of {} codes is negative", others));
    }
    look_at_top(counts);
    look_at_flatness(counts);
  }

  /// Whether the upper part of the range is unused. Parts of a fused layer share a scale and may lie a few binades
  /// lower.
  void look_at_top(const std::array<std::size_t, 256>& counts) {
    if (matrix_.format.bits() != 8 || matrix_.global) return;
    const auto mask = static_cast<std::size_t>(matrix_.format.magnitude_mask());
    const auto sign = static_cast<std::size_t>(matrix_.format.sign_mask());
    std::size_t top = 0;
    std::size_t subnormal = 0;
    for (std::size_t code = 1; code <= mask; ++code) {
      const std::size_t count = counts[code] + counts[code + sign];
      if (count != 0) top = code;
      if (code >> matrix_.format.mantissa_bits == 0) subnormal += count;
    }
    const double largest = decode(matrix_.format, static_cast<std::uint32_t>(top));
    constexpr double share_of_range = 1.0 / 1024;
    if (largest < double{max_value(matrix_.format)} * share_of_range) {
      add(FindingKind::unused_range, names_.codes,
          fmt::format(
              "the largest code is {:02X}, which is {:.6g}: the upper {:.0f} binades are not used, and {} of {} "
              "codes are subnormal",
              top, largest, std::floor(std::log2(double{max_value(matrix_.format)} / largest)), subnormal,
              matrix_.codes.size()));
    }
  }

  /// Memory that nobody wrote has all codes alike: each count is within 6 deviations of the mean.
  void look_at_flatness(const std::array<std::size_t, 256>& counts) {
    const std::size_t kinds = std::size_t{1} << matrix_.format.bits();
    const double mean = static_cast<double>(matrix_.codes.size()) / static_cast<double>(kinds);
    if (mean < 64) return;
    const double most = 6 * std::sqrt(mean);
    for (std::size_t code = 0; code < kinds; ++code) {
      if (std::abs(static_cast<double>(counts[code]) - mean) > most) return;
    }
    add(FindingKind::random_codes, names_.codes,
        fmt::format("all {} codes are equally frequent, as in memory that nobody wrote", kinds));
  }

  /// Two halves that are the same, as where ranks are merged.
  void look_at_rows() {
    if (matrix_.rows < 2 || matrix_.rows % 2 != 0) return;
    const auto half = static_cast<std::ptrdiff_t>(matrix_.codes.size() / 2);
    const auto begin = matrix_.codes.begin();
    const bool is_zero =
        std::all_of(begin, matrix_.codes.end(), [&](std::uint8_t code) { return magnitude(code) == 0; });
    if (is_zero || !std::equal(begin, begin + half, begin + half)) return;
    add(FindingKind::repeated_rows, names_.codes,
        fmt::format("rows {} to {} repeat rows 0 to {}", matrix_.rows / 2, matrix_.rows - 1, matrix_.rows / 2 - 1));
  }

  const CodedMatrix& matrix_;
  const MatrixNames& names_;
  std::array<std::size_t, 256> counts_{};  ///< how often each code is there
  std::vector<CheckpointFinding> found_;
};

}  // namespace

std::vector<CheckpointFinding> findings_alone(const CodedMatrix& matrix, const MatrixNames& names) {
  return Alone(matrix, names).run();
}

}  // namespace fp8lab::experiments
