// SPDX-License-Identifier: Apache-2.0
// Sweeps of the conversion instructions over all of their inputs.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/stochastic.hpp"
#include "fp8lab/gpu/ptx/cvt.hpp"
#include "fp8lab/gpu/ptx/cvt16.hpp"
#include "fp8lab/gpu/recorder/digest.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

/// A conversion instruction as data, with its model: the word of format `to` for every word of format `from`.
struct CastSweep {
  std::string_view name;  ///< of the instruction in PTX, with the number of its results
  Format from, to;
  CastPolicy policy;          ///< of the model
  int least_capability;       ///< the first chips that have it: 89 is Ada
  int most_capability = 999;  ///< the last ones
  bool keeps_nan = false;     ///< a NaN keeps its topmost bits, whatever the policy says

  /// Whether its machine code must be for the chip's own instructions, such as sm_100a: so are all of Blackwell.
  [[nodiscard]] bool is_of_family() const { return least_capability >= 100; }
  [[nodiscard]] bool is_for(int capability) const {
    return capability >= least_capability && capability <= most_capability;
  }
  /// All words of `from`; where `to` has no sign, those that are not negative, for PTX does not say what others become.
  [[nodiscard]] FP8LAB_HD constexpr std::uint64_t inputs() const {
    return std::uint64_t{1} << (from.bits() - (from.is_signed && !to.is_signed ? 1 : 0));
  }
  [[nodiscard]] FP8LAB_HD constexpr bool is_stochastic() const { return policy.rounding == Rounding::stochastic; }
};

namespace casts {

/// The random word that a stochastic conversion of inputs 4 * i to 4 * i + 3 gets.
[[nodiscard]] FP8LAB_HD constexpr std::uint32_t random_of(std::uint64_t input) {
  return static_cast<std::uint32_t>(random_word(0x6376'742E'7273U, input / 4));
}
/// The result of an input by the model.
[[nodiscard]] constexpr std::uint32_t model_word(const CastSweep& sweep, std::uint64_t input) {
  const RandomBits random =
      sweep.is_stochastic() ? ptx_random_bits(sweep.to, random_of(input), input % 4) : RandomBits{};
  const Unpacked x = unpack(sweep.from, input);
  if (x.kind == Kind::nan && sweep.keeps_nan) {
    return static_cast<std::uint32_t>(input >> (sweep.from.bits() - sweep.to.bits()));
  }
  return static_cast<std::uint32_t>(encode(sweep.to, sweep.policy, x, sweep.policy.nan, random));
}

/// A value as the functions of ptx/ take it, of a word.
template <typename Source>
[[nodiscard]] FP8LAB_HD constexpr Source source_of(std::uint64_t word) {
  if constexpr (sizeof(Source) == 4) {
    return std::bit_cast<Source>(static_cast<std::uint32_t>(word));
  } else {
    return Source{static_cast<std::uint16_t>(word)};
  }
}

// An entry below has `lanes`, the consecutive inputs that its run() converts at once into results `width` bits apart;
// `is_there` says whether the code that is compiled has the instruction.

/// run(first, second), of values or of codes.
template <typename From>
struct OfPair {
  using Source = From;
  static constexpr unsigned lanes = 2, width = 8;
  static constexpr bool is_there = ptx::has_cvt_fp8;
};
/// run(four float32, random word)
struct OfFour {
  static constexpr unsigned lanes = 4, width = 8;
  static constexpr bool is_there = ptx::has_cvt_stochastic;
};
/// The results of the inputs from `input` on, a multiple of `lanes`.
template <typename Cast>
[[nodiscard]] FP8LAB_HD std::uint64_t convert(std::uint64_t input) {
  if constexpr (Cast::lanes == 2) {
    using Source = Cast::Source;
    return Cast::run(source_of<Source>(input), source_of<Source>(input + 1));
  } else {
    ptx::Four four{};
    for (unsigned i = 0; i < 4; ++i) four.values[i] = source_of<float>(input + i);
    return Cast::run(four, random_of(input));
  }
}
inline constexpr CastPolicy satfinite{};  // to nearest even; NaN is the positive one of all ones
inline constexpr CastPolicy upward{.rounding = Rounding::upward};
inline constexpr CastPolicy stochastic{.rounding = Rounding::stochastic};
inline constexpr CastPolicy nearest_away{
    .rounding = Rounding::nearest_away, .overflow = Overflow::to_special, .infinity = Overflow::to_special};

// 1. FP8, from Ada on.

struct E4m3FromF32 : OfPair<float> {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e4m3x2.f32", binary32, e4m3, satfinite, 89};
  static FP8LAB_HD std::uint64_t run(float first, float second) { return ptx::e4m3x2(first, second); }
};
struct E5m2FromF32 : OfPair<float> {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e5m2x2.f32", binary32, e5m2, satfinite, 89};
  static FP8LAB_HD std::uint64_t run(float first, float second) { return ptx::e5m2x2(first, second); }
};
struct E4m3FromF16 : OfPair<Half> {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e4m3x2.f16x2", binary16, e4m3, satfinite, 89};
  static FP8LAB_HD std::uint64_t run(Half first, Half second) { return ptx::e4m3x2(first, second); }
};
struct E5m2FromF16 : OfPair<Half> {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e5m2x2.f16x2", binary16, e5m2, satfinite, 89};
  static FP8LAB_HD std::uint64_t run(Half first, Half second) { return ptx::e5m2x2(first, second); }
};
/// bfloat16 has no conversion of its own before Blackwell: kernels widen it, which is exact.
struct E4m3FromBf16 : OfPair<BFloat16> {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e4m3x2.f32 of bfloat16", bfloat16, e4m3, satfinite, 89};
  static FP8LAB_HD std::uint64_t run(BFloat16 first, BFloat16 second) { return ptx::e4m3x2(first, second); }
};
struct E5m2FromBf16 : OfPair<BFloat16> {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e5m2x2.f32 of bfloat16", bfloat16, e5m2, satfinite, 89};
  static FP8LAB_HD std::uint64_t run(BFloat16 first, BFloat16 second) { return ptx::e5m2x2(first, second); }
};
struct F16FromE4m3 : OfPair<std::uint32_t> {
  static constexpr CastSweep sweep{"cvt.rn.f16x2.e4m3x2", e4m3, binary16, cuda_nosat_policy, 89};
  static constexpr unsigned width = 16;
  static FP8LAB_HD std::uint64_t run(std::uint32_t first, std::uint32_t second) {
    return ptx::halves_of_e4m3x2(first | second << 8);
  }
};
struct F16FromE5m2 : OfPair<std::uint32_t> {
  static constexpr CastSweep sweep{"cvt.rn.f16x2.e5m2x2", e5m2, binary16, cuda_nosat_policy, 89};
  static constexpr unsigned width = 16;
  static FP8LAB_HD std::uint64_t run(std::uint32_t first, std::uint32_t second) {
    return ptx::halves_of_e5m2x2(first | second << 8);
  }
};

// 2. Types of 16 and 19 bits, from Ampere on.

struct F16FromF32 : OfPair<float> {
  static constexpr CastSweep sweep{"cvt.rn.f16.f32", binary32, binary16, cuda_nosat_policy, 80};
  static constexpr unsigned width = 16;
  static constexpr bool is_there = true;
  static FP8LAB_HD std::uint64_t run(float first, float second) {
    return half_of(first).bits | std::uint64_t{half_of(second).bits} << 16;
  }
};
struct Bf16FromF32 : OfPair<float> {
  static constexpr CastSweep sweep{"cvt.rn.bf16.f32", binary32, bfloat16, cuda_nosat_policy, 80};
  static constexpr unsigned width = 16;
  static constexpr bool is_there = true;
  static FP8LAB_HD std::uint64_t run(float first, float second) {
    return bfloat16_of(first).bits | std::uint64_t{bfloat16_of(second).bits} << 16;
  }
};
struct Tf32FromF32 : OfPair<float> {
  static constexpr CastSweep sweep{"cvt.rna.tf32.f32", binary32, tf32, nearest_away, 80, 999, true};
  static constexpr unsigned width = 32;
  static constexpr bool is_there = true;
  static FP8LAB_HD std::uint64_t run(float first, float second) {
    return tf32_of(first) | std::uint64_t{tf32_of(second)} << 32;
  }
};

// 3. FP4, FP6 and scales, from Blackwell on.

/// An OfPair whose instruction only chips with FP4 conversions have.
template <typename From>
struct OfFamily : OfPair<From> {
  static constexpr bool is_there = ptx::has_cvt_fp4;
};
struct E2m1FromF32 : OfFamily<float> {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e2m1x2.f32", binary32, e2m1, satfinite, 100};
  static constexpr unsigned width = 4;
  static FP8LAB_HD std::uint64_t run(float first, float second) { return ptx::e2m1x2(first, second); }
};
struct E2m3FromF32 : OfFamily<float> {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e2m3x2.f32", binary32, e2m3, satfinite, 100};
  static FP8LAB_HD std::uint64_t run(float first, float second) { return ptx::e2m3x2(first, second); }
};
struct E3m2FromF32 : OfFamily<float> {
  static constexpr CastSweep sweep{"cvt.rn.satfinite.e3m2x2.f32", binary32, e3m2, satfinite, 100};
  static FP8LAB_HD std::uint64_t run(float first, float second) { return ptx::e3m2x2(first, second); }
};
struct Ue8m0FromF32 : OfFamily<float> {
  static constexpr CastSweep sweep{"cvt.rp.satfinite.ue8m0x2.f32", binary32, e8m0, upward, 100};
  static FP8LAB_HD std::uint64_t run(float first, float second) { return ptx::ue8m0x2(first, second); }
};
struct F16FromE2m1 : OfFamily<std::uint32_t> {
  static constexpr CastSweep sweep{"cvt.rn.f16x2.e2m1x2", e2m1, binary16, cuda_nosat_policy, 100};
  static constexpr unsigned width = 16;
  static FP8LAB_HD std::uint64_t run(std::uint32_t first, std::uint32_t second) {
    return ptx::halves_of_e2m1x2(first | second << 4);
  }
};

// 4. Stochastic rounding: sm_100a and sm_103a.

struct E4m3FromF32Stochastic : OfFour {
  static constexpr CastSweep sweep{"cvt.rs.satfinite.e4m3x4.f32", binary32, e4m3, stochastic, 100, 103};
  static FP8LAB_HD std::uint64_t run(const ptx::Four& x, std::uint32_t random) {
    return ptx::e4m3x4_stochastic(x, random);
  }
};
struct E5m2FromF32Stochastic : OfFour {
  static constexpr CastSweep sweep{"cvt.rs.satfinite.e5m2x4.f32", binary32, e5m2, stochastic, 100, 103};
  static FP8LAB_HD std::uint64_t run(const ptx::Four& x, std::uint32_t random) {
    return ptx::e5m2x4_stochastic(x, random);
  }
};
struct E2m1FromF32Stochastic : OfFour {
  static constexpr CastSweep sweep{"cvt.rs.satfinite.e2m1x4.f32", binary32, e2m1, stochastic, 100, 103};
  static constexpr unsigned width = 4;
  static FP8LAB_HD std::uint64_t run(const ptx::Four& x, std::uint32_t random) {
    return ptx::e2m1x4_stochastic(x, random);
  }
};

using All = std::tuple<E4m3FromF32, E5m2FromF32, E4m3FromF16, E5m2FromF16, E4m3FromBf16, E5m2FromBf16, F16FromE4m3,
                       F16FromE5m2, F16FromF32, Bf16FromF32, Tf32FromF32, E2m1FromF32, E2m3FromF32, E3m2FromF32,
                       Ue8m0FromF32, F16FromE2m1, E4m3FromF32Stochastic, E5m2FromF32Stochastic, E2m1FromF32Stochastic>;

}  // namespace casts

/// Sweeps `count` inputs from `first`, both multiples of four: adds the digest terms of the outputs to the digests of
/// their chunks, the chunk of `first` at digests[0]; or writes the outputs to `words`, where that is not null.
template <typename Cast>
struct SweepCasts {
  static constexpr unsigned threads = 256;
  static constexpr std::uint64_t inputs_per_block = std::uint64_t{1} << 14;
  struct Shared {};

  std::uint64_t first, count;
  std::uint64_t inputs_per_chunk;  ///< a multiple of inputs_per_block, or all
  std::uint64_t* digests;
  std::uint32_t* words;

  [[nodiscard]] FP8LAB_HD std::size_t blocks() const { return ceil_div(count, inputs_per_block); }

  template <typename Team>
  FP8LAB_HD void operator()(const Team& team, std::size_t block, Shared& /*shared*/) const {
#ifdef __CUDA_ARCH__
    if constexpr (!Cast::is_there) __trap();  // its software form is not to be taken for it
#endif
    constexpr std::uint64_t mask = ~std::uint64_t{0} >> (64 - Cast::width);
    const std::uint64_t begin = block * inputs_per_block;
    const std::uint64_t size = count - begin < inputs_per_block ? count - begin : inputs_per_block;
    auto own = team.template each<std::uint64_t>();
    team.for_each_thread([&](std::size_t thread) {
      for (std::uint64_t group = thread; group < size / Cast::lanes; group += threads) {
        const std::uint64_t offset = begin + group * Cast::lanes;
        const std::uint64_t codes = casts::convert<Cast>(first + offset);
        for (unsigned i = 0; i < Cast::lanes; ++i) {
          const std::uint64_t word = codes >> (Cast::width * i) & mask;
          own[thread] += digest_term(first + offset + i, word);
          if (words != nullptr) words[offset + i] = static_cast<std::uint32_t>(word);
        }
      }
    });
    const std::uint64_t sum = team.sum(own);
    team.for_each(1, [&](std::size_t) {
      const std::uint64_t before = first / inputs_per_chunk * inputs_per_chunk;
      if (words == nullptr) atomic_add(digests + (first + begin - before) / inputs_per_chunk, sum);
    });
  }
};

}  // namespace fp8lab::gpu
