// SPDX-License-Identifier: Apache-2.0
#include "cast/cast.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <type_traits>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/text.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/measure/exact_sqnr.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "kit/lists.hpp"
#include "kit/source.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t most_casts = 4096;
constexpr std::size_t piece = 1 << 16;  // what one thread measures at a time: fixed, so that sums never depend on it

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

/// What values are drawn from, where that is known.
const Distribution* distribution_of(const CastSource& source) {
  if (const auto* draws = std::get_if<Draws>(&source)) return &draws->distribution;
  if (std::holds_alternative<Grid>(source)) return &find_distribution("normal");
  return nullptr;
}

/// A format's casts have these scales.
struct Scale {
  double scale;
  std::optional<double> amax = {};
  bool is_best = false;
};

std::vector<Scale> scales_of(const CastArguments& arguments, const ChosenFormat& format) {
  std::vector<Scale> scales;
  std::ranges::transform(arguments.scales, std::back_inserter(scales), [](double scale) { return Scale{scale}; });
  const double largest = decode(format.format, static_cast<std::uint32_t>(format.format.max_code()));
  for (const double amax : arguments.amaxes) scales.push_back({largest / amax, amax});
  if (arguments.best_scale) {
    const Distribution* distribution = distribution_of(arguments.source);
    if (distribution == nullptr) refuse("best_scale needs the values of a distribution or of the grid, not a tensor");
    try {
      scales.push_back({fp8lab::best_scale(format.format, *distribution).scale, {}, true});
    } catch (const std::invalid_argument& error) {
      refuse("best_scale of ", in_quotes(format.name), ": ", error.what());
    }
  }
  if (scales.empty()) scales.push_back({1});
  return scales;
}

/// In the arithmetic of the values' type a scale has to have an inverse.
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
  const bool to_nearest = cast.rounding == Rounding::nearest_even || cast.rounding == Rounding::nearest_away;
  const Format& format = cast.format.format;
  return to_nearest && cast.profile.policy.overflow == Overflow::saturate && format.is_signed && format.bits() <= 8;
}

double value_of(double x) { return x; }
double value_of(Half x) { return decode(binary16, x.bits); }
double value_of(BFloat16 x) { return decode(bfloat16, x.bits); }

template <typename Arithmetic>
std::vector<std::uint16_t> codes_of(const Cast& cast, std::span<const Arithmetic> scaled) {
  std::vector<std::uint16_t> codes(scaled.size());
  if (cast.format.format.bits() > 8) {
    encode(cast.format.format, cast.policy(), scaled, codes);
    return codes;
  }
  std::vector<std::uint8_t> bytes(scaled.size());
  encode(cast.format.format, cast.policy(), scaled, bytes);
  std::ranges::copy(bytes, codes.begin());
  return codes;
}

/// Counts what became of `x`, which is `scaled` in front of the cast.
void count(const Cast& cast, double x, double scaled, std::uint32_t code, CastCounts& counts) {
  const Format& format = cast.format.format;
  const Unpacked result = unpack(format, code);
  if (std::isnan(x)) {
    ++counts.nans_in;
  } else if (std::isinf(x)) {
    ++counts.infinities_in;
  } else if (x == 0) {
    ++counts.zeros;
  } else if (result.kind == Kind::zero) {
    ++counts.underflows;
  } else if (cast_outcome(format, cast.rounding, scaled) == Outcome::saturated) {
    ++counts.saturated;
  }
  switch (result.kind) {
    case Kind::nan: ++counts.nans_out; break;
    case Kind::infinite: ++counts.infinities_out; break;
    case Kind::finite:
      // Only a subnormal lacks the implicit bit.
      if (result.significand >> format.mantissa_bits == 0) ++counts.subnormals;
      break;
    case Kind::zero: break;
  }
}

/// Adds what the cast does to `values`.
template <typename T>
void measure(std::span<const T> values, MeasuredCast& into) {
  using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const Cast& cast = into.cast;
  const Format& format = cast.format.format;
  // 1. What comes back, and the code on the way.
  std::vector<T> back(values.size());
  cast_to_representable(format, cast.policy(), values, cast.scale, std::span<T>(back));
  std::vector<Arithmetic> scaled(values.size());
  std::ranges::transform(values, scaled.begin(), [&](T x) {
    return static_cast<Arithmetic>(value_of(x)) * static_cast<Arithmetic>(cast.scale);
  });
  const std::vector<std::uint16_t> codes = codes_of<Arithmetic>(cast, scaled);
  // 2. Errors, all in double.
  for (std::size_t i = 0; i < values.size(); ++i) {
    checkpoint(i);
    const double x = value_of(values[i]);
    const double result = value_of(back[i]);
    into.totals.add(result, x);
    into.error.add(absolute_error(result, x));
    into.relative_error.add(relative_error(result, x));
    into.ulp_error.add(fp8lab::ulp_error(decode(format, codes[i]), scaled[i], format));
    into.codes.add_code(codes[i]);
    count(cast, x, scaled[i], codes[i], into.counts);
  }
}

/// The same in pieces, on threads; pieces are merged in their order.
template <typename T>
void measure(std::span<const T> values, int threads, MeasuredCast& into) {
  std::vector<MeasuredCast> parts((values.size() + piece - 1) / piece, MeasuredCast(into.cast));
  parallel_for(parts.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      measure(values.subspan(i * piece, std::min(piece, values.size() - i * piece)), parts[i]);
    }
  });
  for (const MeasuredCast& part : parts) into.merge(part);
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
          casts.push_back({format, profile, rounding, scale.scale, scale.amax, scale.is_best});
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
  Source source(arguments.source, arguments.threads);
  for (MeasuredCast& each : casts) {
    source.type() == ElementType::float64 ? check_scale<double>(each.cast) : check_scale<float>(each.cast);
    if (arguments.exact && has_exact_sqnr(each.cast)) {
      each.exact_sqnr_db = fp8lab::exact_sqnr_db(each.cast.format.format, *distribution, each.cast.scale);
    }
  }
  // 2. Every cast of every block.
  const double work = static_cast<double>(source.size()) * static_cast<double>(casts.size());
  double done = 0;
  source.for_each_block([&](auto values) {
    for (MeasuredCast& each : casts) {
      measure(values, arguments.threads, each);
      done += static_cast<double>(values.size());
      if (progress) progress(done / work);
    }
  });
  return {arguments, source.description(), source.type(), source.size(), std::move(casts)};
}

}  // namespace fp8lab::experiments
