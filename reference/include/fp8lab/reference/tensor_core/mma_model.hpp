// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/named.hpp"

namespace fp8lab {

enum class Arithmetic : std::uint8_t {
  fused,           ///< multi-term addition: all products and the accumulator aligned, truncated, summed in one step
  exact,           ///< the real sum of a step's products and the accumulator, rounded once to the nearest float32
  products_first,  ///< AMD CDNA3: the fused sum of the products alone, then the accumulator; rounded to nearest
  flushed_pairs,  ///< AMD CDNA2: float32 products and sums, added in pairs, with every subnormal number flushed to zero
  fma_chain,      ///< one IEEE 754 fused multiply-add after the other, of ascending k, in the accumulator's format
};

/// The order in which an instruction of several steps takes its products.
enum class StepOrder : std::uint8_t {
  ascending,  ///< those of the lowest k
  pairs,      ///< of every four k the first two, then the last two
};

/// The instructions that the compiler emits for one of PTX.
enum class Lowering : std::uint8_t {
  native,    ///< one instruction of the tensor core, whose accumulator is c
  fp16_add,  ///< FP16 instructions on widened factors, starting from zero; then c is added, as IEEE 754 adds
};

/// What terms that are zero contribute to the alignment exponent of a fused step. Models of other arithmetic ignore it.
///
/// MMA-Sim 2.1.1 gives a term that is zero the chip's `zero_exponent`; Khattak and Mikaitis (their code of August 2026)
/// bound E by it always. Both say the same: where no term is zero, the accumulator is not, and its exponent lies above.
/// The other rules are those of earlier simulators. They differ from `floor` only where terms are far below 1: in FP8
/// and FP16 products with float16 accumulators near 2^-14, in BF16, TF32 and scaled products near 2^-126, and where
/// groups of FP4 products are zero. The ledger of an H200 says `floor`, of Hopper's BF16 and TF32 and of its FP16 with
/// float16 accumulators; of groups no device has said anything.
enum class ZeroRule : std::uint8_t {
  floor,              ///< the model's zero_exponent, which a group of FP4 products contributes, too, where all are zero
  skip_terms,         ///< nothing; but every group of FP4 products counts with its scales
  skip_empty_groups,  ///< nothing, nor do groups of FP4 products that are all zero
  skip_zero_groups,   ///< nothing, nor do groups of FP4 products whose scaled sum is zero
  count_zero_factors,  ///< a zero factor, and a zero accumulator, counts as 2^-126 (MMA-Sim, commit c785138); every
                       ///< group of FP4 products counts with its scales
};

/// The sign of the zero that a negative sum becomes when it is too small for the accumulator. An H200 gives +0, in
/// FP16 instructions with a float16 accumulator and in wgmma of E5M2 with one.
enum class UnderflowSign : std::uint8_t {
  positive,  ///< +0 (MMA-Sim)
  kept,      ///< -0 (Khattak and Mikaitis, for float16)
};

/// Which NaN an FP64 instruction gives. Of other accumulators there is one, 7FFFFFFF or 7FFF.
enum class NanWord : std::uint8_t {
  all_ones,    ///< 7FFFFFFFFFFFFFFF
  propagated,  ///< of each fused multiply-add a * b + c the first NaN of b, c and a, made quiet; FFF8000000000000 where
               ///< none of them is NaN
};

/// The evidence that supports the numbers of a model.
enum class Evidence : std::uint8_t {
  measured,       ///< rows measured on devices, which the model reproduces without a mismatch; evidence_note names them
  published,      ///< others published the model; no measured row was compared with it
  inferred,       ///< follows from other models and from what compilers emit
  by_definition,  ///< the model is what it is said to be; there is no device to differ from
  assumed,        ///< nothing
};

/// The maker and the chip of an instruction.
struct Chip {
  std::string_view maker = "any";
  std::string_view name = "any";  ///< of the architecture

  friend constexpr bool operator==(const Chip&, const Chip&) = default;
};

/// The scales that an instruction multiplies blocks of a row's products with.
struct BlockScales {
  Format format;  ///< e8m0 or ue4m3; bit 7 of a ue4m3 code is ignored
  int block;      ///< elements of K that share a scale

  friend constexpr bool operator==(const BlockScales&, const BlockScales&) = default;
};

/// The zero exponent of a model whose zeros contribute nothing.
inline constexpr int no_zero_exponent = -1000;

/// The accumulator word of Ada's and Hopper's FP8 path: a float32 whose low ten bits stay zero.
inline constexpr Format e8m13{8, 13, 127};

/// A tensor core as data. An instruction is one step or several, each of which adds products_per_step products to the
/// accumulator that the step before left:
/// 1. E = the largest exponent among the nonzero products and the accumulator, but at least zero_exponent. A product's
///    exponent is the sum of its factors' exponent fields (unbiased; subnormals have that of the smallest normal):
///    products are not normalised. Its scales' exponents are added to it. A group of products, summed exactly, has its
///    scales' exponents alone, unless all its products, or a scale, are zero. (ZeroRule has other opinions.)
/// 2. Every term is cut, toward zero, to a multiple of 2^(E - fraction_bits), and the terms are summed exactly.
/// 3. The sum is cut, toward zero, to `output`; to float16 it is rounded, nearest even. Zero is +0, but see
/// `underflow`.
///    A sum that reaches the power of two above the largest value is infinite; any NaN is 7FFFFFFF, or 7FFF.
///
/// That is Arithmetic::fused. The matrix cores of AMD differ (MMA-Sim 2.1.1); no zero rule matters to them:
/// - products_first: 1. The products k = i, i + sums, ... of a step are fused as above, for each i below `sums`,
/// without
///   the accumulator, and zero products have no exponent. A product of 2^128 or more is infinite. The sums are aligned
///   to their largest exponent, cut downward (floor) and added. 2. With E the largest exponent of that sum and c (whose
///   zero has -126), the sum is cut downward to a multiple of 2^(E - sum_bits - 1), c to one of 2^(E - fraction_bits),
///   or left out if the model drops a small c. 3. Their sum is normalised, but not below 2^-126, cut downward to
///   sum_bits fraction bits, and rounded to the nearest float32, ties to even.
/// - flushed_pairs: Subnormal factors, and a subnormal c of an instruction, are +0. Products and sums are rounded to
/// the
///   nearest float32, and subnormal ones are zeros of their sign. A step of four adds (p0 + p1) + (p2 + p3) to c, one
///   of two p0 + p1.
/// - fma_chain: c = fma(a, b, c) for every product, in float32, or in float64 where the operands are (AMD's, and
///   NVIDIA's FP64). A NaN has all bits set but the sign, or is as `nan` says.
struct MmaModel {
  std::string_view name;
  Chip chip = {};
  std::string_view instruction = {};  ///< its maker's name for it, with its shape
  Arithmetic arithmetic = Arithmetic::fused;
  int products_per_step = 0;   ///< 0 for `exact`, the model: any
  int steps = 1;               ///< steps of one instruction
  int sums = 1;                ///< products_first: the sums that a step's products are dealt to
  int sum_bits = 0;            ///< products_first: fraction bits of the sum before it is rounded
  bool drops_small_c = false;  ///< products_first: c has no say if its exponent is below E - fraction_bits - 1
  int fraction_bits = 0;       ///< bits kept below 2^E
  int zero_exponent = no_zero_exponent;   ///< the exponent of a term that is zero: a floor of E
  Format output = binary32;               ///< result of every step: binary32, e8m13 (held in a float32), binary16, or
                                          ///< binary64, whose operands are binary64, too
  std::span<const Format> operands = {};  ///< what the factors may be, in any combination; float32 inputs are rounded
                                          ///< (nearest, ties away) to tf32 where it is tf32
  std::optional<BlockScales> scales = {};
  int group = 1;  ///< products summed exactly before they are aligned, as one term
  StepOrder order = StepOrder::ascending;
  Lowering lowering = Lowering::native;
  UnderflowSign underflow = UnderflowSign::positive;
  NanWord nan = NanWord::all_ones;  ///< of FP64
  std::string_view source = {};     ///< who published the numbers
  Evidence evidence = Evidence::assumed;
  std::string_view evidence_note = {};  ///< on which devices, from what, and what no device has decided

  /// The instruction's K; 0 for exact: any.
  [[nodiscard]] constexpr int k() const { return products_per_step * steps; }
  /// The format of c and of the result: binary32, binary16 or binary64.
  [[nodiscard]] constexpr const Format& accumulator() const {
    if (is_fp64()) return binary64;
    return output.exponent_bits == binary16.exponent_bits ? binary16 : binary32;
  }
  /// Whether operands and accumulator are float64 numbers.
  [[nodiscard]] constexpr bool is_fp64() const { return output.exponent_bits == binary64.exponent_bits; }

  /// Whether both have the same name and the same answers to what no device has decided.
  friend constexpr bool operator==(const MmaModel& x, const MmaModel& y) {
    return x.name == y.name && x.fraction_bits == y.fraction_bits && x.zero_exponent == y.zero_exponent &&
           x.underflow == y.underflow;
  }
};

/// Calls f(name, field) for each field of an MmaModel, in order.
template <typename AnyModel, typename Function>
  requires std::same_as<std::remove_const_t<AnyModel>, MmaModel>
void for_fields(AnyModel& model, const Function& f) {
  f("name", model.name);
  f("chip", model.chip);
  f("instruction", model.instruction);
  f("arithmetic", model.arithmetic);
  f("products_per_step", model.products_per_step);
  f("steps", model.steps);
  f("sums", model.sums);
  f("sum_bits", model.sum_bits);
  f("drops_small_c", model.drops_small_c);
  f("fraction_bits", model.fraction_bits);
  f("zero_exponent", model.zero_exponent);
  f("output", model.output);
  f("operands", model.operands);
  f("scales", model.scales);
  f("group", model.group);
  f("order", model.order);
  f("lowering", model.lowering);
  f("underflow", model.underflow);
  f("nan", model.nan);
  f("source", model.source);
  f("evidence", model.evidence);
  f("evidence_note", model.evidence_note);
}

/// The enumerators with their names (see named.hpp).
[[nodiscard]] std::span<const Named<Arithmetic>> named_values(Arithmetic of_type);
[[nodiscard]] std::span<const Named<ZeroRule>> named_values(ZeroRule of_type);
[[nodiscard]] std::span<const Named<UnderflowSign>> named_values(UnderflowSign of_type);
[[nodiscard]] std::span<const Named<Evidence>> named_values(Evidence of_type);
[[nodiscard]] std::span<const Named<StepOrder>> named_values(StepOrder of_type);
[[nodiscard]] std::span<const Named<Lowering>> named_values(Lowering of_type);
[[nodiscard]] std::span<const Named<NanWord>> named_values(NanWord of_type);

/// The evidence and its note: "measured: A100 and A2".
[[nodiscard]] std::string evidence_of(const MmaModel& model);

/// In words: what the instruction is, its parameters and formats.
[[nodiscard]] std::string describe(const MmaModel& model);

}  // namespace fp8lab
