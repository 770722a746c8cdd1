// SPDX-License-Identifier: Apache-2.0
#include "cast/cast.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <type_traits>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/text.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/measure/exact_sqnr.hpp"
#include "fp8lab/reference/measure/outcome.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t most_casts = 4096;

void check_lists(const CastArguments& arguments) {
  check_filled_list("formats", arguments.formats);
  check_filled_list("profiles", arguments.profiles);
  check_list("roundings", arguments.roundings);
  check_list("scales", arguments.scales);
  check_list("amax", arguments.amaxes);
  for (const auto& [what, list] : {std::pair{"scales", arguments.scales}, std::pair{"amax", arguments.amaxes}}) {
    for (const double value : list) {
      if (!(value > 0) || std::isinf(value)) refuse(what, " must be positive and finite, not ", value);
    }
  }
  for (const ChosenFormat& format : arguments.formats) check_format(format.format);
}

/// The distribution of the values; null where they are not simply draws of one.
const Distribution* distribution_of(const TensorSource& source) {
  if (const auto* draws = std::get_if<Draws>(&source)) {
    const bool is_plain = draws->steps == 1 && draws->outlier_rows.count == 0 && draws->outlier_columns.count == 0;
    return is_plain ? &draws->distribution : nullptr;
  }
  if (std::holds_alternative<Grid>(source)) return &find_distribution("normal");
  return nullptr;
}

/// A scale of casts to a format, and where it comes from.
struct Scale {
  double scale;
  std::optional<double> amax = {};
  bool is_best = false;
  bool is_own_amax = false;
};

std::vector<Scale> scales_of(const CastArguments& arguments, const ChosenFormat& format) {
  std::vector<Scale> scales;
  std::ranges::transform(arguments.scales, std::back_inserter(scales), [](double scale) { return Scale{scale}; });
  const double largest = max_value(format.format);
  for (const double amax : arguments.amaxes) scales.push_back({largest / amax, amax});
  if (arguments.own_amax) scales.push_back({.scale = 0, .is_own_amax = true});
  const Distribution* distribution = distribution_of(arguments.source);
  if (arguments.best_scale && distribution == nullptr) {
    if (!format.format.is_signed || format.format.bits() > 8) {
      refuse("best_scale of ", in_quotes(format.name), ": a format with a sign and at most 8 bits is needed");
    }
    scales.push_back({.scale = 0, .is_best = true});
  } else if (arguments.best_scale) {
    try {
      scales.push_back({fp8lab::best_scale(format.format, *distribution).scale, {}, true});
    } catch (const std::invalid_argument& error) {
      refuse("best_scale of ", in_quotes(format.name), ": ", error.what());
    }
  }
  if (scales.empty()) scales.push_back({1});
  return scales;
}

/// Throws where the scale or its inverse is not positive and finite in the type that values are scaled in.
template <typename Arithmetic>
void check_scale(const Cast& cast) {
  const auto used = static_cast<Arithmetic>(cast.scale);
  if (used > 0 && std::isfinite(used) && std::isfinite(1 / used)) return;
  TextStream from;
  if (cast.amax) from << " (from amax " << *cast.amax << ')';
  refuse("scale must be positive and finite, and so must its inverse, in ",
         std::is_same_v<Arithmetic, double> ? "float64" : "float32", ", not ", cast.scale, from.str());
}

bool has_exact_sqnr(const Cast& cast) {
  const bool to_nearest = cast.rounding == Rounding::nearest_even || cast.rounding == Rounding::nearest_away ||
                          cast.rounding == Rounding::nearest_toward_zero;
  const Format& format = cast.format.format;
  return to_nearest && cast.profile.policy.overflow == Overflow::saturate && format.is_signed && format.bits() <= 8;
}

/// The values as doubles. float64 is viewed where it lies, and the others are widened into `room`.
std::span<const double> doubles_of(std::span<const double> values, std::vector<double>& /*room*/) { return values; }
template <typename T>
std::span<const double> doubles_of(std::span<const T> values, std::vector<double>& room) {
  room.resize(values.size());
  widen(values, room);
  return room;
}

/// Measures what a cast does to values of type T, at most error_block of them at a time.
template <typename T>
class CastMeter {
 public:
  explicit CastMeter(MeasuredCast& into) : into_(into), bounds_(cast_bounds(format(), into.cast.rounding)) {}
  /// Measures some values, and adds their errors to `totals`.
  void add(std::span<const T> values, ErrorTotals& totals) {
    // 1. The scaled values, their codes, and what comes back.
    const std::span<const double> x = doubles_of(values, x_);
    const std::span<const Arithmetic> unscaled = arithmetic_of(values);
    scaled_.resize(values.size());
    const auto scale = static_cast<Arithmetic>(into_.cast.scale);
    std::ranges::transform(unscaled, scaled_.begin(), [scale](Arithmetic value) { return value * scale; });
    const std::span<const double> scaled = doubles_of(std::span<const Arithmetic>(scaled_), scaled_room_);
    encode_scaled();
    const std::span<const double> decoded = doubles_of(std::span<const float>(decoded_), decoded_room_);
    back_.resize(values.size());
    cast_to_representable(format(), into_.cast.policy(), values, into_.cast.scale, std::span<T>(back_));
    const std::span<const double> back = doubles_of(std::span<const T>(back_), back_room_);
    // 2. Errors, all in double.
    errors_.resize(values.size());
    const std::span<double> errors(errors_);
    totals.add(back, x);
    absolute_error(back, x, errors);
    into_.error.add(std::span<const double>(errors));
    relative_error(back, x, errors);
    into_.relative_error.add(std::span<const double>(errors));
    fp8lab::ulp_error(decoded, scaled, format(), errors);
    into_.ulp_error.add(std::span<const double>(errors));
    count_outcomes(bounds_, x, scaled, decoded, ScaledRange::all, outcomes_);
  }
  /// Adds the counts of values. The counts of codes follow from their histogram.
  void finish() {
    into_.counts.zeros += outcomes_.zeros;
    into_.counts.infinities_in += outcomes_.infinities;
    into_.counts.nans_in += outcomes_.nans;
    into_.counts.underflows += outcomes_.underflows;
    into_.counts.saturated += outcomes_.saturated;
  }

 private:
  using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;

  [[nodiscard]] const Format& format() const { return into_.cast.format.format; }
  /// The values in the type that they are scaled in, to which halves are widened.
  std::span<const Arithmetic> arithmetic_of(std::span<const T> values) {
    if constexpr (std::is_same_v<T, Arithmetic>) {
      return values;
    } else {
      words_.resize(values.size());
      std::ranges::transform(values, words_.begin(), &T::bits);
      unscaled_.resize(values.size());
      decode(std::is_same_v<T, Half> ? binary16 : bfloat16, std::span<const std::uint16_t>(words_),
             std::span<float>(unscaled_));
      return unscaled_;
    }
  }
  void encode_scaled() {
    if (format().bits() <= 8) return encode_scaled_to(bytes_);
    encode_scaled_to(words_);
  }
  template <typename Code>
  void encode_scaled_to(std::vector<Code>& codes) {
    codes.resize(scaled_.size());
    encode(format(), into_.cast.policy(), std::span<const Arithmetic>(scaled_), std::span<Code>(codes));
    into_.codes.add_codes(codes);
    decoded_.resize(scaled_.size());
    decode(format(), std::span<const Code>(codes), std::span<float>(decoded_));
  }

  MeasuredCast& into_;
  CastBounds bounds_;
  OutcomeCounts outcomes_;
  std::vector<Arithmetic> unscaled_, scaled_;
  std::vector<std::uint8_t> bytes_;
  std::vector<std::uint16_t> words_;
  std::vector<float> decoded_;
  std::vector<T> back_;
  std::vector<double> x_, scaled_room_, decoded_room_, back_room_, errors_;
};

/// Measures `values` on threads. The totals of blocks are merged in the order of blocks; counts need no order.
template <typename T>
void measure(std::span<const T> values, int threads, MeasuredCast& into) {
  std::vector<ErrorTotals> totals((values.size() + error_block - 1) / error_block);
  std::mutex merging;
  parallel_for(totals.size(), threads, [&](std::size_t first, std::size_t last) {
    MeasuredCast part(into.cast);
    CastMeter<T> meter(part);
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      const std::size_t begin = i * error_block;
      meter.add(values.subspan(begin, std::min(error_block, values.size() - begin)), totals[i]);
    }
    meter.finish();
    const std::scoped_lock lock(merging);
    into.merge(part);
  });
  for (const ErrorTotals& block : totals) into.totals.merge(block);
}

/// Counts the subnormal, infinite and NaN codes, from the histogram of all codes.
void count_codes(MeasuredCast& measured) {
  const Format& format = measured.cast.format.format;
  const std::vector<std::uint64_t>& codes = measured.codes.counts();
  for (std::size_t code = 0; code < codes.size(); ++code) {
    const Unpacked result = unpack(format, code);
    switch (result.kind) {
      case fp8lab::Kind::nan: measured.counts.nans_out += codes[code]; break;
      case fp8lab::Kind::infinite: measured.counts.infinities_out += codes[code]; break;
      case fp8lab::Kind::finite:
        // Only a subnormal lacks the implicit bit.
        if (result.significand >> format.mantissa_bits == 0) measured.counts.subnormals += codes[code];
        break;
      case fp8lab::Kind::zero: break;
    }
  }
}

/// The cast with the scale that it takes from the values of a tensor.
Cast with_scale_of(const Cast& cast, const Magnitudes& magnitudes) {
  Cast known = cast;
  if (!cast.needs_tensor()) return known;
  known.scale = 1;
  if (cast.is_own_amax) {
    known.amax = static_cast<double>(magnitudes.amax());
    if (magnitudes.amax() > 0) known.scale = max_value(cast.format.format) / *known.amax;
  } else if (const std::optional<BestScale> best = magnitudes.best_scale(cast.format.format)) {
    known.scale = best->scale;
  }
  return known;
}

void check_scale_of(const Cast& cast, const SourceTensor& facts) {
  facts.type == ElementType::float64 ? check_scale<double>(cast) : check_scale<float>(cast);
}

/// Calls use(values) for every block of a tensor, in the type that what comes back has.
template <typename Use>
void for_each_block(const TensorStream& stream, std::size_t tensor, OutDtype out_dtype, const Use& use) {
  Buffer<float> room;
  stream.for_each_block(tensor, [&]<typename T>(std::span<const T> values) {
    if constexpr (!std::is_floating_point_v<T>) {
      if (out_dtype != OutDtype::source) {
        room.resize(values.size());
        std::ranges::transform(values, room.begin(), [](T x) { return as_float32(x); });
        use(std::span<const float>(room));
        return;
      }
    }
    use(values);
  });
}

/// Checks the scales that do not depend on values, and computes what can be computed without these.
void prepare_cast(MeasuredCast& each, const CastArguments& arguments, const Distribution* distribution,
                  const std::vector<SourceTensor>& tensors) {
  for (const SourceTensor& facts : tensors) {
    if (!each.cast.needs_tensor()) check_scale_of(each.cast, facts);
  }
  if (arguments.exact && has_exact_sqnr(each.cast)) {
    each.exact_sqnr_db = fp8lab::exact_sqnr_db(each.cast.format.format, *distribution, each.cast.scale);
  }
}

/// Adds a cast of one tensor, with the scale that it takes from this.
void add_cast_of(const MeasuredCast& each, std::size_t tensor, const Magnitudes& magnitudes, CastResult& result) {
  MeasuredCast& added = result.casts.emplace_back(each);
  added.tensor = tensor;
  if (!each.cast.needs_tensor()) return;
  added.cast = with_scale_of(each.cast, magnitudes);
  check_scale_of(added.cast, result.tensors[tensor]);
}

}  // namespace

CastPolicy Cast::policy() const {
  CastPolicy policy = profile.policy;
  policy.rounding = rounding;
  return policy;
}

MeasuredCast::MeasuredCast(Cast what)
    : cast(std::move(what)),
      error(BinadeBins{-149, 127}),  // what float32 holds
      relative_error(LogBins{1e-8, 1e4, 96}),
      ulp_error(LinearBins{-1, 1, 64}),
      codes(CodeBins{cast.format.format, cast.policy()}) {}

void MeasuredCast::merge(const MeasuredCast& other) {
  totals.merge(other.totals);
  for (const NamedCount& named : cast_counts) counts.*named.count += other.counts.*named.count;
  error.merge(other.error);
  relative_error.merge(other.relative_error);
  ulp_error.merge(other.ulp_error);
  codes.merge(other.codes);
}

std::vector<NamedHistogram> MeasuredCast::histograms() const {
  return {{"error", "|error| by binade", error},
          {"relative_error", "|error / x|", relative_error},
          {"ulp_error", "error of the scaled value in units in the last place of " + cast.format.name, ulp_error},
          {"codes", "codes of " + cast.format.name, codes}};
}

std::vector<Cast> casts_of(const CastArguments& arguments) {
  const DefaultEnvironment environment;
  check_lists(arguments);
  std::vector<Cast> casts;
  for (const ChosenFormat& format : arguments.formats) {
    const std::vector<Scale> scales = scales_of(arguments, format);
    for (const ChosenProfile& profile : arguments.profiles) {
      std::vector<Rounding> roundings = arguments.roundings;
      if (roundings.empty()) roundings = {profile.policy.rounding};
      for (const Rounding rounding : roundings) {
        check_deterministic(rounding);
        for (const Scale& scale : scales) {
          if (casts.size() == most_casts) refuse("at most ", most_casts, " casts can be measured at once");
          casts.push_back({format, profile, rounding, scale.scale, scale.amax, scale.is_best, scale.is_own_amax});
        }
      }
    }
  }
  return casts;
}

CastResult run_cast(const CastArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  // 1. The casts, and the values.
  std::vector<MeasuredCast> casts;
  for (Cast& cast : casts_of(arguments)) casts.emplace_back(std::move(cast));
  const Distribution* distribution = distribution_of(arguments.source);
  if (arguments.exact && distribution == nullptr) {
    refuse("exact needs the values of a distribution or of the grid, not a tensor");
  }
  const TensorStream stream(arguments.source, {.takes_empty = true, .threads = arguments.threads});
  CastResult result{arguments, stream.description(), stream.all_facts(), stream.left_out(), {}, {}};
  if (stream.elements() == 0) refuse(result.source, ": there are no elements to cast");
  if (casts.size() * stream.count() > most_casts) {
    refuse("at most ", most_casts, " casts can be measured at once, not ", casts.size(), " of each of ", stream.count(),
           " tensors");
  }
  for (MeasuredCast& each : casts) prepare_cast(each, arguments, distribution, result.tensors);
  // 2. Every cast of every block.
  const bool needs_tensor = std::ranges::any_of(casts, [](const MeasuredCast& one) { return one.cast.needs_tensor(); });
  const double work = stream.elements() * static_cast<double>(casts.size());
  double done = 0;
  for (std::size_t tensor = 0; tensor < stream.count(); ++tensor) {
    const std::size_t first = result.casts.size();
    Magnitudes magnitudes;
    if (needs_tensor) stream.for_each_block(tensor, [&](auto values) { magnitudes.add(values); });
    for (const MeasuredCast& each : casts) add_cast_of(each, tensor, magnitudes, result);
    for_each_block(stream, tensor, arguments.out_dtype, [&](auto values) {
      if (!needs_tensor) magnitudes.add(values);
      for (MeasuredCast& each : std::span(result.casts).subspan(first)) {
        measure(values, arguments.threads, each);
        done += static_cast<double>(values.size());
        if (progress) progress(done / work);
      }
    });
    result.values.push_back({static_cast<double>(magnitudes.amax()), magnitudes.concentration()});
  }
  for (MeasuredCast& each : result.casts) count_codes(each);
  return result;
}

}  // namespace fp8lab::experiments
