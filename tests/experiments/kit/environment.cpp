// SPDX-License-Identifier: Apache-2.0
// No floating-point environment and no locale of the program changes a byte of what the library's functions give.
#include "fp8lab/formats/environment.hpp"

#include <algorithm>
#include <array>
#include <cfenv>
#include <clocale>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <locale>
#include <map>
#include <numeric>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "accumulate/accumulate.hpp"
#include "accumulate/harmonic.hpp"
#include "cast/cast.hpp"
#include "delayed/delayed.hpp"
#include "dot/dot.hpp"
#include "double_rounding/double_rounding.hpp"
#include "files/recorded.hpp"
#include "formats/simd/tiles.hpp"
#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/chain.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/stochastic.hpp"
#include "fp8lab/reference/gemm/exact_sum.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/exact_sqnr.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "fp8lab/reference/tensor_core/trace.hpp"
#include "kit/dots.hpp"
#include "kit/picture.hpp"
#include "kit/render.hpp"
#include "primer/primer.hpp"
#include "scaling/scaling.hpp"
#include "support.hpp"
#include "transpose/transpose.hpp"
#include "verify/casts.hpp"
#include "verify/tensor_cores.hpp"

namespace fp8lab::tests::environment {  // apart from the other files that are compiled with this one
// glibc loses what it made of LOCPATH where it looks for a locale in vain.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT(bugprone-reserved-identifier)
  return "leak:__argz_add_sep";
}

namespace {

using namespace experiments;  // NOLINT(google-build-using-namespace)

// 1. Hostile environments.

struct Settings {
  const char* name;
  int rounding;
  bool flushes;
  bool comma;
  bool in_thread = false;
};

/// The modes of the calling thread's arithmetic, without flags; what flushes is no part of the standard's.
std::uint64_t modes() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3FU;
#elif defined(__aarch64__)
  std::uint64_t modes = 0;
  __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
  return modes;
#else
  return 0;
#endif
}
void set_flushing() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040U);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(modes() | std::uint64_t{1} << 24));
#endif
}

struct Comma : std::numpunct<char> {
  [[nodiscard]] char do_decimal_point() const override { return ','; }
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

/// A C locale with a decimal comma: one that is installed, or made by localedef; empty where there is none.
std::string comma_locale() {
  const std::string before = std::setlocale(LC_ALL, nullptr);
  const auto made = std::filesystem::temp_directory_path() / "fp8lab_locales";
  std::string found;
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "made_here"}) {
    if (name == std::string("made_here")) {
      std::filesystem::create_directories(made);
      const std::string command = "localedef -i de_DE -f ISO-8859-1 '" + (made / name).string() + "' > /dev/null 2>&1";
      if (std::system(command.c_str()) == -1) continue;
      ::setenv("LOCPATH", made.c_str(), 1);
    }
    if (std::setlocale(LC_ALL, name) != nullptr && *std::localeconv()->decimal_point == ',') found = name;
    if (!found.empty()) break;
  }
  std::setlocale(LC_ALL, before.c_str());
  return found;
}

/// The environment of the calling thread, and the locales of the program, for as long as it lives.
class Hostile {
 public:
  Hostile(const Settings& settings, const std::string& comma)
      : locale_(std::locale()), c_(std::setlocale(LC_ALL, nullptr)) {
    std::fegetenv(&before_);
    if (settings.comma) {
      std::locale::global(std::locale(std::locale::classic(), new Comma));
      std::setlocale(LC_ALL, comma.c_str());
    }
    if (settings.flushes) set_flushing();
    std::fesetround(settings.rounding);
  }
  Hostile(Hostile&&) = delete;
  ~Hostile() {
    std::fesetenv(&before_);
    std::locale::global(locale_);
    std::setlocale(LC_ALL, c_.c_str());
  }

 private:
  std::fenv_t before_{};
  std::locale locale_;
  std::string c_;
};

/// The settings of the thread that a call must leave as they were.
struct ThreadSettings {
  int rounding = std::fegetround();
  std::uint64_t arithmetic = modes();
  std::string point = std::localeconv()->decimal_point;
  bool has_comma = std::has_facet<Comma>(std::locale());
  bool operator==(const ThreadSettings&) const = default;
};

// 2. Results as bytes: by integers alone, for this too runs in the hostile environment.

template <typename T>
std::string bytes(const T& value) {
  if constexpr (std::is_convertible_v<T, std::string_view>) {
    return std::string(std::string_view(value));
  } else if constexpr (requires { value.begin(); }) {
    std::string all;
    for (const auto& one : value) all += bytes(one) + ' ';
    return all;
  } else {
    static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T> ||
                  std::is_floating_point_v<T>);
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
}
template <typename First, typename... Rest>
  requires(sizeof...(Rest) > 0)
std::string bytes(const First& first, const Rest&... rest) {
  return bytes(first) + '|' + bytes(rest...);
}

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

/// JSON without what tells when and where it was made. Text alone: the lines of those keys are cut out.
std::string timeless(const std::string& text) {
  std::istringstream lines(text);
  std::string kept;
  bool in_provenance = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"provenance\": {") != std::string::npos) in_provenance = true;
    if (!in_provenance) kept += line + '\n';
    if (line.find('}') != std::string::npos) in_provenance = false;
  }
  return kept;
}
/// A result as JSON, files and reports.
template <typename Result>
  requires requires(const Result& result) { document_of(result); }
std::string bytes_of(const Result& result) {
  const Document document = document_of(result);
  std::string all;
  for (const auto& [name, content] : files_of(document)) all += name + ": " + timeless(content);
  for (const bool unicode : {true, false}) {
    all += text_of(document, {.unicode = unicode}) + text_of(document, {.unicode = unicode, .width = 40});
  }
  return all;
}
template <typename Result>
std::string bytes_of(const Result& result) {
  std::string all = timeless(to_json(result));
  for (const auto& [name, content] : files_of(result)) all += name + ": " + timeless(content);
  for (const bool unicode : {true, false}) {
    all += report_of(result, {.unicode = unicode});
  }
  return all;
}

// 3. Inputs, made once, by the default environment.

struct Inputs {
  static constexpr std::size_t side = 128;
  std::vector<float> any, near, tiny, matrix;
  std::vector<double> doubles, tiny_doubles;
  std::vector<Half> halves;
  std::vector<BFloat16> bfloats, wide_bfloats;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint32_t> words;

  Inputs() {
    for (std::uint64_t i = 0; i < 4096; ++i) {
      const auto word = static_cast<std::uint32_t>(random_bits(20261122, i));
      const auto x = std::bit_cast<float>(word);
      any.push_back(std::isfinite(x) ? x : 1.1F);
      near.push_back(static_cast<float>(word >> 8) * 0x1p-20F - 7.3F);
      tiny.push_back(std::bit_cast<float>(word >> 9));
      doubles.push_back(near.back() / 3.0);
      tiny_doubles.push_back(doubles.back() * 0x1p-1030);
      halves.push_back(Half{static_cast<std::uint16_t>(word & 0x7BFFU)});
      bfloats.push_back(BFloat16{static_cast<std::uint16_t>(word & 0x7F7FU)});
      codes.push_back(static_cast<std::uint8_t>(word % 0x77));
      words.push_back(word);
    }
    for (std::size_t i = 0; i < side * side; ++i) matrix.push_back(i % 4 == 3 ? tiny[i % 4096] : near[i % 4099 % 4096]);
    for (std::size_t i = 0; i < side * side; ++i) wide_bfloats.push_back(bfloats[i % 4096]);
  }
  [[nodiscard]] Operand operand(std::size_t rows, std::size_t depth) const {
    return Operand::codes(std::span(codes).first(rows * depth), e4m3, rows, depth);
  }
};
const Inputs& in() {
  static const Inputs inputs;
  return inputs;
}
constexpr double scale = 0x1.5555555555555p-2;  // no float32

// 4. Calls.

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
    gemm(model, a, b, out,
         {.scale_out = 1.1F, .c = std::span(in().tiny).first(64), .bias = std::span(in().tiny).first(8), .threads = 2});
    all += bytes(out);
    std::vector<std::uint8_t> codes(64);
    a = in().operand(8, 64);
    a.tensor_scale = {3e-10F};
    gemm(model, a, in().operand(8, 64), e5m2, CastPolicy{}, codes);
    all += bytes(codes);
    if (model.accumulator() == binary16) continue;
    std::vector<float> dots(8);
    mma(model, in().operand(8, k), in().operand(8, k), std::span(in().near).first(8), dots);
    const DotTrace trace = trace_dot(model, in().operand(1, 64), in().operand(1, 64),
                                     {.c = bits(in().near[3]), .promote_k = model.k() == 0 ? 0 : 32});
    all += bytes(dots, trace.word, trace.value());
  }
  return all;
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

std::string told() {
  std::string all;
  for (const Profile& profile : profiles) all += describe(profile.policy);
  for (const MmaModel& model : models) all += describe(model);
  for (const Recipe& recipe : {Recipe(GivenScale{.scale = static_cast<float>(scale)}),
                               Recipe(JustInTime{.amax_epsilon = 1e-3F}), Recipe(Block{.amax_epsilon = 1234.5F})}) {
    all += describe(recipe);
  }
  const TextStyle style{.width = 90};
  std::vector<double> x;
  std::vector<double> y;
  for (std::size_t i = 0; i < 40; ++i) {
    x.push_back(1000.5 + 1e4 * static_cast<double>(i));
    y.push_back(std::abs(in().near[i]));
  }
  Histogram h(BinadeBins{-4, 4});
  h.add(in().near);
  for (const AxisOfX axis : {AxisOfX::linear, AxisOfX::logarithmic}) all += draw_lines({{'o', x, y}}, style, axis);
  return all + draw_binades({"near"}, {&h}, style, 0.01) + bar(scale, 1.1, 30, style);
}

std::string parsed() {
  std::istringstream csv("step,a@0,a@1\n1000,0.1,1e-40\n2000,3.3333333333333333,1.17549429e-38\n");
  const AmaxTrace trace = parse_amax_trace(csv, "test");
  std::string all;
  for (const auto& tensor : trace.tensors) {
    for (const auto& amaxes : tensor.amaxes) all += bytes(amaxes);
  }
  const DotOperand operand = operand_of_values(e4m3, std::span(in().doubles).first(64));
  all += operand.source + bytes(operand_of_values(binary32, std::span(in().tiny_doubles).first(64)).source);
  const AmaxTrace example = example_amax_trace();
  return all + bytes(example.tensors[1].amaxes[0]);
}

AccumulateArguments accumulate_arguments(std::vector<long long> ks) {
  AccumulateArguments arguments;
  arguments.ks = std::move(ks);
  arguments.rows = arguments.columns = 4;
  arguments.threads = 2;
  return arguments;
}

/// Messages with numbers.
std::string refused() {
  std::string all;
  const auto refuse = [&](const auto& call) {
    try {
      call();
      all += "not refused";
    } catch (const std::exception& error) {
      all += std::string(error.what()) + '\n';
    }
  };
  std::vector<float> out(in().near.size());
  CastArguments negative;
  negative.scales = {-1234567.5};
  refuse([&] { cast_to_representable(e4m3, CastPolicy{}, in().near, -1234.5, out); });
  refuse([&] { sample_uniform(1234567.5, -0.25, 1, 0, out); });
  refuse([&] { static_cast<void>(exact_sqnr_db(e4m3, distributions[0], -1234567.5)); });
  refuse([&] {
    AmaxHistory history = start_history({});
    record_amax({}, Pass::forward, history, -1234.5F);
  });
  refuse([&] { check_recipe(GivenScale{.scale = -1234567.5F}); });
  refuse([&] { check_recipe(JustInTime{.amax_epsilon = -1234567.5F}); });
  refuse([&] {
    std::istringstream csv("step,a\n1,-1234567.5\n");
    static_cast<void>(parse_amax_trace(csv, "test"));
  });
  refuse([&] { static_cast<void>(run_primer({.scale_x = -1234.5F})); });
  refuse([&] { static_cast<void>(run_cast(negative)); });
  refuse([&] { static_cast<void>(run_double_rounding({.uniform = {2345.5, 1.5}})); });
  refuse([&] { static_cast<void>(run_accumulate(accumulate_arguments({123456789}))); });
  return all;
}

std::string casts() {
  CastArguments arguments;
  arguments.source = Draws{.columns = 300};
  arguments.formats = {{"e2m1", e2m1}};
  arguments.scales = {scale, 1e-3};
  arguments.amaxes = {3.3};
  arguments.best_scale = arguments.exact = true;
  arguments.threads = 2;
  return bytes_of(run_cast(arguments));
}

std::string accumulated() { return bytes_of(run_accumulate(accumulate_arguments({32, 64}))); }

std::string verified_casts() {
  VerifyCastsResult result = verify_casts({.formats = {"e2m1"}, .roundings = {"nearest_even"}, .chunks = 1});
  for (VerifyCastsRow& row : result.rows) row.seconds = 0;
  return bytes_of(result);
}

const std::map<std::string, std::function<std::string()>>& calls() {
  static const std::map<std::string, std::function<std::string()>> all{
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
      {"words and pictures", told},
      {"parsers", parsed},
      {"messages", refused},
      {"primer",
       [] { return bytes_of(run_primer({.in_features = 32, .out_features = 32, .rows = 32, .scale_x = 0.3F})); }},
      {"cast", casts},
      {"accumulate", accumulated},
      {"double rounding", [] { return bytes_of(run_double_rounding({.uniform = {0.1, 0.9}, .size = 3000})); }},
      {"harmonic", [] { return bytes_of(run_harmonic({.formats = {{"e5m2", e5m2}, {"bfloat16", bfloat16}}})); }},
      {"delayed", [] { return bytes_of(run_delayed({.margin = 1})); }},
      {"scaling", [] { return bytes_of(run_scaling({.source = Draws{.rows = 32, .columns = 128, .steps = 3}})); }},
      {"transpose",
       [] {
         return bytes_of(run_transpose({.source = Draws{.rows = 128, .columns = 128},
                                        .recipes = {choose_recipe("te_mxfp8"), choose_recipe("te_block_1x128")}}));
       }},
      {"dot",
       [] {
         const auto values = std::span(in().doubles);
         return bytes_of(run_dot({.model = hopper_wgmma_fp8,
                                  .a = operand_of_values(e4m3, values.first(32)),
                                  .b = operand_of_values(e4m3, values.subspan(32, 32)),
                                  .got = 0x3DCCCCCDU}));
       }},
      {"verify casts", verified_casts},
      {"verify tensor cores",
       [] { return bytes_of(verify_tensor_cores({.models = {"hopper_wgmma_fp8"}, .dots = 100})); }},
  };
  return all;
}

std::map<std::string, std::string> results(std::string& changed) {
  std::map<std::string, std::string> found;
  for (const auto& [name, call] : calls()) {
    const ThreadSettings before;
    std::fenv_t floats{};
    std::fegetenv(&floats);
    found[name] = call();
    if (ThreadSettings{} != before) changed += name + " changes the environment; ";
    std::fesetenv(&floats);
  }
  return found;
}

}  // namespace

TEST_CASE("No rounding mode, flushing or locale of the program changes a byte of a result") {
  const std::string comma = comma_locale();
  if (comma.empty()) WARN("Skipped: C locales with a decimal comma, of which there is none");
  static_cast<void>(in());
  std::string changed;
  const auto expected = results(changed);
  CHECK(expected.at("messages").find("not refused") == std::string::npos);
  for (const Settings& settings : std::initializer_list<Settings>{{"upward", FE_UPWARD, false, false},
                                                                  {"downward", FE_DOWNWARD, false, false},
                                                                  {"toward zero", FE_TOWARDZERO, false, false},
                                                                  {"flush", FE_TONEAREST, true, false},
                                                                  {"comma", FE_TONEAREST, false, true},
                                                                  {"all", FE_UPWARD, true, true},
                                                                  {"in a thread", FE_DOWNWARD, true, true, true}}) {
    if (sanitized && settings.name != std::string("all")) continue;
    std::map<std::string, std::string> found;
    const auto run = [&] {
      const Hostile hostile(settings, comma);
      found = results(changed);
    };
    if (settings.in_thread) {
      std::jthread(run).join();
    } else {
      run();
    }
    std::string wrong;
    int count = 0;
    for (const auto& [name, result] : expected) {
      if (found[name] == result) continue;
      const auto at = std::ranges::mismatch(found[name], result).in2 - result.begin();
      wrong += '\n' + name + " from byte " + std::to_string(at);
      ++count;
    }
    INFO(settings.name << ": " << count << " of " << expected.size() << " calls give other bytes:" << wrong);
    CHECK(count == 0);
  }
  CHECK(changed.empty());
}

TEST_CASE("After an exception too the environment is the caller's, flags included") {
  const Hostile hostile({"all", FE_UPWARD, true, false}, "");
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(FE_DIVBYZERO);
  const ThreadSettings before;
  std::vector<float> out(1);
  const std::vector<float> x{1};
  CHECK_THROWS_AS(cast_to_representable(e4m3, CastPolicy{}, x, -1.0, out), std::invalid_argument);
  CHECK(ThreadSettings{} == before);
  static_cast<void>(relative_error(1, 3));
  CHECK(ThreadSettings{} == before);
  CHECK(std::fetestexcept(FE_ALL_EXCEPT) == FE_DIVBYZERO);
}

}  // namespace fp8lab::tests::environment
