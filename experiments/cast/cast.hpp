// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "kit/chosen.hpp"
#include "kit/document.hpp"
#include "kit/magnitudes.hpp"
#include "kit/picture.hpp"
#include "kit/progress.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {

/// The arguments of the experiment: it casts by every combination of format, profile, rounding and scale.
struct CastArguments {
  TensorSource source = Draws{};
  std::vector<ChosenFormat> formats{{"e4m3", e4m3}, {"e5m2", e5m2}};
  std::vector<ChosenProfile> profiles{{"cuda_satfinite", CastPolicy{}}};
  std::vector<Rounding> roundings = {};  ///< empty: each profile's own
  std::vector<double> scales = {};       ///< empty: 1, unless amaxes or best_scale give scales
  std::vector<double> amaxes = {};  ///< magnitudes that a scale of largest / amax maps to the format's largest value
  bool own_amax = false;            ///< also the scale of each tensor's own amax; 1 where that is 0
  bool best_scale = false;          ///< also the scale of the highest exact SQNR of a saturating cast to nearest; of
                            ///< tensors of files and arrays that of Magnitudes::best_scale(), 1 where it has none
  bool exact = false;                      ///< also the exact SQNR of each cast that has one
  OutDtype out_dtype = OutDtype::float32;  ///< of what comes back
  int threads = 1;                         ///< changes nothing but the time
};

/// One combination.
struct Cast {
  ChosenFormat format;
  ChosenProfile profile;
  Rounding rounding;
  double scale;
  std::optional<double> amax;  ///< the magnitude that gave the scale, where one did
  bool is_best_scale;
  bool is_own_amax = false;  ///< the amax is the tensor's own

  /// Whether the scale is not known before the tensor.
  [[nodiscard]] bool needs_tensor() const { return is_own_amax || (is_best_scale && scale == 0); }

  [[nodiscard]] CastPolicy policy() const;
};

/// Counts of values and of codes. Each value is a NaN, an infinity, a zero, or one that can underflow or saturate.
struct CastCounts {
  std::uint64_t zeros = 0;           ///< values that are zero
  std::uint64_t underflows = 0;      ///< finite nonzero values whose code is a zero
  std::uint64_t subnormals = 0;      ///< codes below the format's smallest normal value, zero excluded
  std::uint64_t saturated = 0;       ///< finite values beyond the format's largest after rounding, whatever they became
  std::uint64_t infinities_in = 0;   ///< values that are infinite
  std::uint64_t infinities_out = 0;  ///< codes of an infinity
  std::uint64_t nans_in = 0;         ///< values that are NaN
  std::uint64_t nans_out = 0;        ///< codes of a NaN
};

/// A count with its name in documents.
struct NamedCount {
  const char* name;
  std::uint64_t CastCounts::* count;
};
inline constexpr std::array cast_counts{
    NamedCount{"zeros", &CastCounts::zeros},
    NamedCount{"underflows", &CastCounts::underflows},
    NamedCount{"subnormals", &CastCounts::subnormals},
    NamedCount{"saturated", &CastCounts::saturated},
    NamedCount{"infinities_in", &CastCounts::infinities_in},
    NamedCount{"infinities_out", &CastCounts::infinities_out},
    NamedCount{"nans_in", &CastCounts::nans_in},
    NamedCount{"nans_out", &CastCounts::nans_out},
};

/// A cast, measured on every value.
///
/// The value that comes back of x is cast_to_representable(x), computed in float32, or in float64 for float64 values;
/// with OutDtype::source it is rounded to the type of x. An error is what comes back minus x, in double. Codes are
/// those of encode(fl(x * scale)), as within cast_to_representable(); fl() rounds to float64 for float64 values, and to
/// float32 for all others.
struct MeasuredCast {
  explicit MeasuredCast(Cast what);

  Cast cast;
  std::size_t tensor = 0;  ///< the index in CastResult::tensors
  ErrorTotals totals;      ///< the errors of what comes back
  CastCounts counts;
  Histogram error;           ///< |error| by binade
  Histogram relative_error;  ///< |error / x|, 8 bins a decade
  Histogram ulp_error;       ///< decode(code) - fl(x * scale) in units in the last place of the format, 64 bins
  Histogram codes;           ///< all codes, also those of zeros and NaN
  std::optional<double> exact_sqnr_db;

  void merge(const MeasuredCast& other);
  /// The four, with their names.
  [[nodiscard]] std::vector<NamedHistogram> histograms() const;
};

/// What the values of a tensor are like: those that are finite, in float32.
struct TensorOfCast {
  double amax = 0;
  std::optional<Concentration> concentration;
};

struct CastResult {
  CastArguments arguments;
  std::string source;  ///< one line that says what was cast
  std::vector<SourceTensor> tensors;
  std::vector<LeftOutTensor> left_out = {};
  std::vector<TensorOfCast> values = {};  ///< of each tensor
  std::vector<MeasuredCast> casts;        ///< all casts of the first tensor, then those of the next one
};

/// The casts that the arguments ask for: for each format, each profile and each rounding those with the scales, then
/// those with the scales of the amaxes, then that with the best scale.
///
/// Throws std::invalid_argument for lists that are empty or have an entry twice, formats that cast_to_representable()
/// does not take, stochastic rounding, scales and amaxes that are not positive and finite, more than 4096 casts, and a
/// best scale where there is none: for a tensor, and for formats that exact_sqnr_db() does not take.
[[nodiscard]] std::vector<Cast> casts_of(const CastArguments& arguments);

/// Measures every cast on every value of each tensor, in memory that does not grow with the tensors.
///
/// Casts to nearest that saturate have an exact SQNR, in formats that exact_sqnr_db() takes.
/// Throws what casts_of() throws, std::invalid_argument for sizes out of range and where the exact SQNR of a tensor is
/// asked for, and what TensorFile throws.
[[nodiscard]] CastResult run_cast(const CastArguments& arguments, const Progress& progress = {});

/// Tables with a row for each cast, histograms, the tensors and how to read them.
[[nodiscard]] Document document_of(const CastResult& result);

}  // namespace fp8lab::experiments
