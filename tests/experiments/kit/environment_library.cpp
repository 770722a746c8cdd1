// SPDX-License-Identifier: Apache-2.0
// The calls of formats and reference.
#include <algorithm>
#include <array>
#include <cfenv>
#include <cstdio>
#include <numeric>

#include "environment_calls.hpp"
#include "formats/simd/tiles.hpp"
#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/chain.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/stochastic.hpp"
#include "fp8lab/reference/gemm/trace.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/exact_sqnr.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "fp8lab/reference/measure/outcome.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "fp8lab/reference/tensor_core/exact_sum.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace fp8lab::tests::environment {
namespace {

std::string bytes_of(const Histogram& h) { return bytes(h.counts(), h.edges(), to_csv(h)); }
std::string bytes_of(const ErrorTotals& t) {
  return bytes(t.count, t.sum_error, t.sum_absolute_error, t.sum_squared_error, t.sum_squared_reference,
               t.max_absolute_error, t.max_relative_error, t.mean_error(), t.mean_absolute_error(), t.rms_error(),
               t.sqnr_db());
}
std::string bytes_of(const Quantized& q) {
  std::vector<float> back(q.rows * q.columns);
  dequantize(q, back, 2);
  return bytes(q.codes, q.scale_inv, q.scale_codes, q.amax, back);
}
std::string bytes_of(const TileScale& s) { return bytes(s.factor, s.scale_inv, s.code); }

template <typename Source>
std::string encoded(const std::vector<Source>& x) {
  std::string all;
  for (const Format& format : {e4m3, e2m1, e5m2}) {
    for (const char* profile : {"cuda_satfinite", "ml_dtypes"}) {
      for (const Rounding rounding : {Rounding::nearest_even, Rounding::upward, Rounding::to_odd}) {
        CastPolicy policy = find_profile(profile).policy;
        policy.rounding = rounding;
        std::vector<std::uint8_t> codes(x.size());
        encode(format, policy, std::span(x), codes, 2);
        std::vector<std::uint8_t> single;
        for (const Source one : x) single.push_back(static_cast<std::uint8_t>(encode(format, policy, one)));
        all += bytes(codes, single);
      }
    }
    CastPolicy stochastic;
    stochastic.rounding = Rounding::stochastic;
    std::vector<std::uint8_t> codes(x.size());
    encode(format, stochastic, std::span(x), RandomSource{std::span<const std::uint32_t>(in().words), 32}, codes);
    all += bytes(codes);
  }
  std::vector<std::uint16_t> wide(x.size());
  encode(binary16, CastPolicy{}, std::span(x), wide);
  return all + bytes(wide);
}

template <typename T>
std::string cast(const std::vector<T>& x) {
  std::string all;
  for (const double s : {scale, 0x1p-120, 3e-20}) {
    std::vector<T> out(x.size(), x[0]);
    cast_to_representable(e4m3, CastPolicy{}, std::span(x), s, out, 2);
    std::vector<T> single;
    for (const T one : x) single.push_back(cast_to_representable(e4m3, CastPolicy{}, one, s));
    for (const auto& values : {out, single}) {
      for (const T value : values) all += std::string(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  return all;
}

std::string decoded() {
  std::string all;
  for (const NamedFormat& named : byte_formats()) {
    std::vector<std::uint8_t> codes(std::size_t{1} << named.format.bits());
    std::iota(codes.begin(), codes.end(), std::uint8_t{0});
    std::vector<float> out(codes.size());
    decode(named.format, codes, out);
    std::vector<float> single;
    for (const std::uint8_t code : codes) single.push_back(decode(named.format, code));
    all += bytes(out, single, overflow_from(named.format));
  }
  return all;
}

std::string tiles() {
  std::string all;
  std::vector<float> factors(32, static_cast<float>(scale));
  for (const auto operation : {TileOperation::multiply, TileOperation::divide, TileOperation::multiply_add_zero}) {
    std::vector<float> out(1024);
    scale_tiles(std::span(in().tiny).first(1024), 32, operation, factors, out);
    all += bytes(out);
    scale_tiles(std::span(in().bfloats).first(1024), 32, operation, factors, out);
    all += bytes(out);
    std::vector<std::uint8_t> codes(1024);
    const TileEncoder encoder(e5m2, CastPolicy{});
    encoder(TileRows<float>{in().near.data(), 1, 1024, 1024, 32}, operation, factors.data(), 32, false, codes.data(),
            0);
    all += bytes(codes);
    encoder(TileRows<float>{in().near.data(), 1, 37, 37, 3}, operation, factors.data(), 32, false, codes.data(), 0);
    all += bytes(codes);
  }
  std::vector<float> values(1000);
  TileDecoder{e5m2}(std::span(in().codes).first(1000), 32, factors, values);
  std::vector<std::uint32_t> amaxes(32);
  const AmaxSeen seen =
      add_amax(TileRows<float>{in().tiny.data(), 1, 1024, 1024, 32}, NanInAmax::dropped, amaxes.data(), 0);
  return all + bytes(values, amaxes, seen.largest);
}

std::string chained() {
  const CastStep via{binary16, CastPolicy{}};
  std::vector<std::uint8_t> codes(in().doubles.size());
  encode_via(via, e4m3, CastPolicy{}, in().doubles, codes);
  const auto differences = chain_differences(via, e4m3, CastPolicy{}, in().doubles, 100);
  return bytes(codes, differences.indices);
}

std::string recoded() {
  std::string all;
  for (const Format& format : {e4m3, e8m0, binary16}) {
    std::vector<float> out(in().tiny.size());
    recode(format, CastPolicy{}, in().near, static_cast<float>(scale), out);
    all += bytes(out);
  }
  return all;
}

/// What threads of the program's own do inside of parallel_for().
std::string threads() {
  std::vector<double> quotients(64);
  std::vector<std::string> texts(64);
  parallel_for(64, 4, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      quotients[i] = absolute_error(in().doubles[i], in().tiny[i]) / 3;
      std::array<char, 64> text{};
      std::snprintf(text.data(), text.size(), "%.17g", quotients[i]);
      texts[i] = text.data();
    }
  });
  return bytes(quotients, texts);
}

std::string replayed(Delayed recipe) {
  recipe.amax_history_len = 4;
  std::string all = describe(recipe);
  AmaxHistory history = start_history(recipe);
  for (std::size_t i = 0; i < 200; ++i) {
    const float amax = std::abs(i % 8 == 0 ? in().any[i] : i % 8 == 1 ? in().tiny[i] : in().near[i]);
    record_amax(recipe, Pass::forward, history, amax);
    update_scale(recipe, Pass::forward, history);
    all += bytes(history.scale, history.scale_inv, history.amaxes, scale_of(recipe, Pass::backward, amax, 1));
  }
  return all;
}
std::string delayed_scales() {
  std::string all;
  for (const DelayedVersion& version : delayed_versions) {
    Delayed recipe;
    recipe.version = version;
    all += replayed(recipe);
    if (!version.has_options()) continue;
    recipe.margin = 3;
    recipe.amax_compute_algo = AmaxFunction([](std::span<const float> amaxes) {
      std::fesetround(FE_UPWARD);  // a function that leaves another environment behind
      return amaxes[0];
    });
    all += replayed(recipe);
  }
  return all + bytes(reduced_amax(in().tiny));
}

std::string quantized() {
  constexpr std::size_t side = Inputs::side;
  std::string all;
  for (const NamedRecipe& named : recipes()) {
    if (is_stochastic(named.recipe)) continue;
    Quantized rowwise;
    Quantized columnwise;
    quantize_both({std::span<const float>(in().matrix), side, side}, named.recipe, rowwise, columnwise, {.threads = 2});
    all += bytes_of(rowwise) + bytes_of(columnwise) + describe(named.recipe);
    quantize({std::span<const BFloat16>(in().wide_bfloats), side, side}, named.recipe, Direction::rowwise, rowwise);
    all += bytes_of(rowwise);
  }
  Delayed recipe;
  AmaxHistory history = start_history(recipe);
  Quantized q;
  for (int step = 0; step < 3; ++step) {
    quantize({std::span<const float>(in().near), 32, 128}, recipe, Pass::forward, history, Direction::rowwise, q);
    update_scale(recipe, Pass::forward, history);
    all += bytes_of(q) + bytes(history.scale);
  }
  return all;
}

std::string scales() {
  std::string all;
  for (const NamedRecipe& named : recipes()) {
    for (std::size_t i = 0; i < 64; ++i) {
      const float amax = std::abs(i % 2 == 0 ? in().tiny[i] : in().near[i]);
      all += bytes_of(tile_scale(named.recipe, amax, {.amax = std::abs(in().near[7])}));
    }
    std::vector<std::uint32_t> amaxes;
    for (std::size_t i = 0; i < 64; ++i) amaxes.push_back(bits(std::abs(i % 2 == 0 ? in().tiny[i] : in().near[i])));
    std::vector<float> factors(64);
    std::vector<float> inverses(64);
    std::vector<std::uint8_t> codes(64);
    const std::uint32_t largest =
        tile_scales(named.recipe, amaxes, {.amax = std::abs(in().near[7])}, {factors, inverses, codes});
    all += bytes(largest, factors);
  }
  constexpr E8m0Edges mx = E8m0Edges::specified;
  for (int code = 0; code < 256; ++code) {
    all += bytes(e8m0_value(mx, static_cast<std::uint8_t>(code)), e8m0_inverse(mx, static_cast<std::uint8_t>(code)));
  }
  return all;
}

std::string products() {
  std::string all;
  for (const MmaModel& model : models) {
    if (model.scales || !std::ranges::count(model.operands, e4m3)) continue;
    const auto k = static_cast<std::size_t>(model.k() == 0 ? 32 : model.k());
    std::vector<float> out(64);
    Operand a = in().operand(8, 64);
    Operand b = a;
    a.tensor_scale = {static_cast<float>(scale)};
    b.tensor_scale = {3e-20F};
    gemm({.model = model}, a, b, out,
         {.c = std::span(in().tiny).first(64), .bias = std::span(in().tiny).first(8), .scale_out = 1.1F, .threads = 2});
    all += bytes(out);
    std::vector<std::uint8_t> codes(64);
    a = in().operand(8, 64);
    a.tensor_scale = {3e-10F};
    gemm({.model = model, .output = e5m2, .cast = CastPolicy{}}, a, in().operand(8, 64), codes);
    all += bytes(codes);
    if (model.accumulator() == binary16) continue;
    std::vector<float> dots(8);
    mma(model, in().operand(8, k), in().operand(8, k), std::span(in().near).first(8), dots);
    const DotTrace trace = trace_dot(model, in().operand(1, 64), in().operand(1, 64),
                                     {.c = bits(in().near[3]), .promote_k = model.k() == 0 ? 0 : 32});
    all += bytes(dots, trace.word, trace.value());
  }
  const std::span<const double> doubles = std::span(in().tiny_doubles).first(64);
  const Operand rows = Operand::doubles(doubles, 8, 8);
  std::vector<double> wide(64);
  gemm({.model = hopper_fp64}, rows, rows, std::span<double>(wide));
  all += bytes(wide);
  const Operand fours = Operand::doubles(doubles, 16, 4);
  mma(cdna3_fp64, fours, fours, doubles.first(16), std::span<double>(wide).first(16));
  return all +
         bytes(wide, trace_dot(ampere_fp64, Operand::doubles(doubles, 1, 64), Operand::doubles(doubles, 1, 64)).word);
}

std::string distributed() {
  std::string all;
  std::vector<float> out(200);
  for (const Distribution& one : distributions) {
    sample(one, 7, 3, out);
    all += bytes(out, second_moment(one), exact_sqnr_db(e4m3, one, scale));
    for (const double p : {0.1, 1e-300, 0.7}) all += bytes(quantile(one, p), density(one, p));
  }
  sample_uniform(-scale, 0.7, 7, 3, out);
  all += bytes(out);
  normal_grid(out);
  const BestScale best = best_scale(e2m1, distributions[1]);
  return all + bytes(out, best.scale, best.sqnr_db);
}

std::string drawn() {
  std::string all;
  std::vector<float> out(2000);
  torch_cpu_uniform(5, out);
  all += bytes(out);
  torch_cuda_uniform(5, 4, {.multiprocessors = 2}, out);
  all += bytes(out);
  torch_cuda_normal(5, 4, {.multiprocessors = 2}, static_cast<float>(scale), 1.1F, out);
  return all + bytes(out);
}

std::string measured() {
  std::string all;
  ErrorTotals totals;
  ErrorTotals others;
  totals.add(in().near, in().tiny);
  for (std::size_t i = 0; i < 500; ++i) {
    const double a = in().doubles[i];
    const double b = i % 2 == 0 ? in().tiny_doubles[i] : in().near[i];
    others.add(a, b);
    all += bytes(absolute_error(a, b), relative_error(a, b), ulp_error(a, b), ulp_error(b, a, e4m3));
  }
  totals.merge(others);
  const std::span<const double> a = std::span(in().doubles).first(500);
  const std::span<const double> b = std::span(in().tiny_doubles).first(500);
  std::vector<double> errors(500);
  for (const auto& [actual, reference] : {std::pair{a, b}, {b, a}}) {
    absolute_error(actual, reference, errors);
    all += bytes(errors);
    relative_error(actual, reference, errors);
    all += bytes(errors);
    ulp_error(actual, reference, e4m3, errors);
    all += bytes(errors);
    totals.add(actual, reference);
    OutcomeCounts counts;
    count_outcomes(cast_bounds(e4m3, Rounding::upward), actual, reference, errors, ScaledRange::all, counts);
    all += bytes(counts.zeros, counts.underflows, counts.saturated);
  }
  widen(std::span<const float>(in().tiny).first(500), errors);
  all += bytes(errors) + bytes_of(totals);
  for (const Bins& bins : {Bins(LinearBins{-scale, 0.7, 13}), Bins(LogBins{1e-40, 1.1e38, 17}),
                           Bins(BinadeBins{-150, 127}), Bins(CodeBins{e4m3, CastPolicy{}})}) {
    Histogram h(bins);
    h.add(in().near);
    h.add(in().tiny);
    h.add(b);
    for (const double x : in().tiny_doubles) h.add(x, cast_outcome(e4m3, Rounding::nearest_even, x));
    Histogram other(bins);
    other.add(scale);
    h.merge(other);
    all += bytes_of(h) + bytes(h.total(), h.zeros, h.below, h.above, h.underflows);
  }
  ExactSum sum;
  for (std::size_t i = 0; i < 100; ++i) sum.add_product(in().near[i], in().tiny[i]);
  return all + bytes(sum.to_float());
}

/// Descriptions, which are texts with numbers.
std::string described() {
  std::string all;
  for (const Profile& profile : profiles) all += describe(profile.policy);
  for (const MmaModel& model : models) all += describe(model);
  for (const Recipe& recipe : {Recipe(GivenScale{.scale = static_cast<float>(scale)}),
                               Recipe(JustInTime{.amax_epsilon = 1e-3F}), Recipe(Block{.amax_epsilon = 1234.5F})}) {
    all += describe(recipe);
  }
  return all;
}

}  // namespace

Calls library_calls() {
  return {
      {"encode float", [] { return encoded(in().near) + encoded(in().tiny) + encoded(in().any); }},
      {"encode double", [] { return encoded(in().doubles) + encoded(in().tiny_doubles); }},
      {"encode half", [] { return encoded(in().halves) + encoded(in().bfloats); }},
      {"decode", decoded},
      {"tiles", tiles},
      {"chains", chained},
      {"recode", recoded},
      {"threads", threads},
      {"cast_to_representable",
       [] { return cast(in().near) + cast(in().tiny) + cast(in().doubles) + cast(in().halves); }},
      {"delayed scaling", delayed_scales},
      {"quantize", quantized},
      {"tile scales", scales},
      {"products", products},
      {"distributions", distributed},
      {"random", drawn},
      {"measures", measured},
      {"words", described},
  };
}

}  // namespace fp8lab::tests::environment
