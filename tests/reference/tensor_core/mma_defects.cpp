// SPDX-License-Identifier: Apache-2.0
// A tensor core with a defect differs from the slow oracle: a wrong number, a wrong order, a wrong rounding.
#include <cmath>
#include <functional>
#include <utility>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "reference/tensor_core/dots.hpp"
#include "reference/tensor_core/slow_models.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// Whether a model with a defect differs from the oracle; dots are of the model without.
bool shows(const MmaModel& defective, const Dots& dots, const Codes& expected) {
  return differences(mma_words(defective, dots, ZeroRule::floor), expected, "").count() > 0;
}

/// A change to a model; it says whether the model could be changed so.
struct Defect {
  const char* what;
  std::function<bool(MmaModel&)> change;
};

/// Makes every change to every model that it can be made to, and requires that the oracle notices.
void every_defect_shows(const std::vector<Defect>& defects) {
  if (sanitized) return;  // it takes many dot products, and shows nothing new there
  std::vector<int> changed(defects.size());
  for (const MmaModel& model : models) {
    if (model.k() == 0) continue;
    const Format format = model.operands.front();
    const Dots dots = hard_dots(model, format, format, model.group > 1 ? 20000 : exhaustive() ? 3000 : 700, 77);
    const Codes expected = slow_words(slow_model_of(model), dots, ZeroRule::floor);
    CHECK_FALSE(shows(model, dots, expected));
    for (std::size_t i = 0; i < defects.size(); ++i) {
      MmaModel defective = model;
      if (!defects[i].change(defective)) continue;
      INFO(model.name << " with " << defects[i].what);
      CHECK(shows(defective, dots, expected));
      ++changed[i];
    }
  }
  for (const int count : changed) CHECK(count > 0);
}

/// Dot products with the first and the last two of every four k exchanged.
Dots exchanged_halves(Dots dots) {
  for (Codes* codes : {&dots.a, &dots.b}) {
    for (std::size_t k = 0; k < codes->size(); k += 4) {
      std::swap((*codes)[k], (*codes)[k + 2]);
      std::swap((*codes)[k + 1], (*codes)[k + 3]);
    }
  }
  return dots;
}

}  // namespace

TEST_CASE("mma: a wrong turn of the oracle in AMD's steps, and in FP64's, shows") {
  struct Turn {
    SlowDefect defect;
    std::vector<std::string_view> models;
  };
  const auto is_rare = [](SlowDefect defect) {
    return defect == SlowDefect::sum_toward_zero || defect == SlowDefect::dot_toward_zero;
  };
  const std::vector<std::string_view> cdna3{"cdna3_fp16", "cdna3_bf16", "cdna3_xf32", "cdna3_fp8"};
  for (const Turn& turn : {Turn{SlowDefect::halves_toward_zero, {"cdna3_fp8"}},
                           Turn{SlowDefect::keeps_small_c, {"cdna3_fp8"}}, Turn{SlowDefect::dot_toward_zero, cdna3},
                           Turn{SlowDefect::c_toward_zero, cdna3}, Turn{SlowDefect::sum_toward_zero, cdna3},
                           Turn{SlowDefect::no_flush, {"cdna2_fp16", "cdna2_bf16", "cdna2_bf16_1k"}},
                           Turn{SlowDefect::other_pairs, {"cdna2_fp16", "cdna2_bf16_1k"}},
                           Turn{SlowDefect::descending, {"hopper_fp64", "cdna3_fp64", "cdna3_fp32"}},
                           Turn{SlowDefect::c_last, {"hopper_fp64", "cdna3_fp64", "cdna3_fp32"}}}) {
    for (const std::string_view name : turn.models) {
      if (is_rare(turn.defect) && (sanitized || !exhaustive())) continue;  // it takes many dot products to show
      const MmaModel& model = find_model(name);
      const Format& format = model.operands.back();
      const Dots dots = hard_dots(model, format, format, is_rare(turn.defect) ? 20000 : exhaustive() ? 4000 : 1000, 7);
      SlowModel wrong = find_slow_model(name);
      wrong.defect = turn.defect;
      INFO(name << " with turn " << static_cast<int>(turn.defect));
      CHECK(shows(model, dots, slow_words(wrong, dots, ZeroRule::floor)));
    }
  }
}

TEST_CASE("mma: CDNA3 keeps 31 fraction bits of a sum before it is rounded") {
  // 1 + 2^-24, half-way between two results, and 2^-31, which counts, or 2^-32, which is cut off.
  for (const std::string_view name : {"cdna3_fp16", "cdna3_bf16", "cdna3_xf32", "cdna3_fp8"}) {
    const MmaModel& model = find_model(name);
    const Format& format = model.operands.back();
    const auto k = static_cast<std::size_t>(model.k());
    const auto word_of = [&](const MmaModel& changed, double least) {
      Dots dots{format, format, k, Codes(k, 0), Codes(k, 0), {}, {}, {0x3F800000}};
      dots.a[0] = dots.b[0] = encode(format, ieee_policy, 0x1p-12);
      dots.a[2] = encode(format, ieee_policy, 0x1p-16), dots.b[2] = encode(format, ieee_policy, least * 0x1p16);
      CHECK(slow_words(find_slow_model(name), dots, ZeroRule::floor).front() ==
            (least == 0x1p-31 ? 0x3F800001 : 0x3F800000));
      return mma_words(changed, dots, ZeroRule::floor).front();
    };
    MmaModel less = model, more = model;
    --less.sum_bits, ++more.sum_bits;
    INFO(name);
    CHECK((word_of(model, 0x1p-31) == 0x3F800001 && word_of(model, 0x1p-32) == 0x3F800000));
    CHECK((word_of(less, 0x1p-31) == 0x3F800000 && word_of(more, 0x1p-32) == 0x3F800001));
  }
}

TEST_CASE("mma: a model with a defect differs from the oracle") {
  every_defect_shows({
      {"a fraction bit less", [](MmaModel& m) { return m.fraction_bits-- > 0; }},
      {"a fraction bit more", [](MmaModel& m) { return m.fraction_bits++ > 0; }},
      {"the products of even and odd k in one sum", [](MmaModel& m) { return std::exchange(m.sums, 1) > 1; }},
      {"a small c kept", [](MmaModel& m) { return std::exchange(m.drops_small_c, false); }},
      {"another width of the result",
       [](MmaModel& m) {
         const bool has_another = m.accumulator() == binary32 && m.arithmetic == Arithmetic::fused;
         m.output = m.output == e8m13 ? binary32 : e8m13;
         return has_another;
       }},
      {"a result bit less",
       [](MmaModel& m) {
         // A sum is a multiple of 2^(E - fraction_bits), and may be too small to need that bit.
         const double factor = 2 - std::ldexp(1.0, -m.operands.front().mantissa_bits);
         const double largest = std::ldexp(factor * factor * m.products_per_step + 2, m.fraction_bits);
         return m.arithmetic == Arithmetic::fused && largest >= std::ldexp(1.0, m.output.mantissa_bits) &&
                (--m.output.mantissa_bits, true);
       }},
      {"one step for two",
       [](MmaModel& m) {
         m.products_per_step *= m.steps;
         m.order = StepOrder::ascending;
         return std::exchange(m.steps, 1) > 1 && m.arithmetic == Arithmetic::fused;
       }},
      {"two steps for one",
       [](MmaModel& m) {
         m.products_per_step /= 2;
         m.steps *= 2;
         return m.steps == 2 && !m.scales && m.arithmetic == Arithmetic::fused;
       }},
      {"smaller groups", [](MmaModel& m) { return (m.group /= 2) > 0; }},
      {"the first half of k before the second, by mma.sync on Hopper",
       [](MmaModel& m) { return std::exchange(m.order, StepOrder::ascending) == StepOrder::pairs; }},
      {"FP8's exponents, and c in the first step, by mma.sync on Hopper",
       [](MmaModel& m) { return std::exchange(m.lowering, Lowering::native) == Lowering::fp16_add; }},
  });
}

TEST_CASE("mma: the order of the halves of Hopper's mma.sync shows") {
  for (const char* name :
       {"hopper_mma_sync_fp8", "hopper_mma_sync_fp8_f16", "hopper_mma_sync_fp8_k16", "hopper_mma_sync_fp8_k16_f16"}) {
    const MmaModel& model = find_model(name);
    const Dots dots = hard_dots(model, e4m3, e5m2, 4000, 78);
    const Codes expected = slow_words(find_slow_model(name), dots, ZeroRule::floor);
    INFO(name << " with the last two of every four k first");
    CHECK(shows(model, exchanged_halves(dots), expected));
    CHECK_FALSE(shows(model, exchanged_halves(exchanged_halves(dots)), expected));
  }
}

}  // namespace fp8lab::tests
