// SPDX-License-Identifier: Apache-2.0
// Runs of 16 elements, which a thread takes at a time, so that it loads and stores 16 bytes an instruction.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fp8lab/formats/tiles.hpp"
#include "fp8lab/gpu/ptx/cvt.hpp"
#include "fp8lab/gpu/ptx/max.hpp"
#include "fp8lab/gpu/team.hpp"

namespace fp8lab::gpu {

inline constexpr unsigned run_length = 16;

/// Elements of 16 bytes.
template <typename Source>
inline constexpr unsigned per_load = 16 / sizeof(Source);

/// Elements of a run in registers of 32 bits, as they lie in memory.
template <typename Source>
struct Run {
  static constexpr unsigned per_word = 4 / sizeof(Source);
  static constexpr unsigned size = run_length / per_word;
  std::uint32_t words[size];  // NOLINT(modernize-avoid-c-arrays)

  [[nodiscard]] FP8LAB_HD Source operator[](unsigned i) const {
    if constexpr (per_word == 1) {
      return std::bit_cast<float>(words[i]);
    } else {
      return Source{static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16))};
    }
  }
  /// Sets an element that was 0.
  FP8LAB_HD void set(unsigned i, Source x) {
    if constexpr (per_word == 1) {
      words[i] = std::bit_cast<std::uint32_t>(x);
    } else {
      words[i / 2] |= std::uint32_t{x.bits} << (i % 2 * 16);
    }
  }
};
/// Codes of a run: 16 bytes, of formats of 4 bits the first 8.
struct RunCodes {
  std::uint32_t words[4];  // NOLINT(modernize-avoid-c-arrays)
};

/// Sixteen bytes from a place aligned to them, whatever lies there.
[[nodiscard]] FP8LAB_HD inline Vector<std::uint32_t, 4> load_words(const void* from) {
#ifdef __CUDA_ARCH__
  return load<4>(static_cast<const std::uint32_t*>(from));
#else
  Vector<std::uint32_t, 4> words;
  std::memcpy(&words, from, sizeof words);
  return words;
#endif
}

/// The first `valid` elements of a run, and zeros: `aligned` says that 16 bytes may be loaded at once.
template <typename Source>
[[nodiscard]] FP8LAB_HD Run<Source> load_run(const Source* from, std::size_t valid, bool aligned) {
  Run<Source> run{};
  if (aligned && valid >= run_length) {
    unrolled<run_length / per_load<Source>>([&](unsigned piece) {
      const auto words = load_words(from + std::size_t{piece} * per_load<Source>);
      unrolled<4>([&](unsigned k) { run.words[piece * 4 + k] = words[k]; });
    });
    return run;
  }
  unrolled<run_length>([&](unsigned i) {
    if (i < valid) run.set(i, from[i]);
  });
  return run;
}

/// Stores the first `valid` codes of a byte.
FP8LAB_HD inline void store_codes(const RunCodes& codes, std::uint8_t* to, std::size_t valid, bool aligned) {
  if (aligned && valid >= run_length) {
    store(Vector<std::uint32_t, 4>{codes.words[0], codes.words[1], codes.words[2], codes.words[3]},
          reinterpret_cast<std::uint32_t*>(to));
    return;
  }
  unrolled<run_length>([&](unsigned i) {
    if (i < valid) to[i] = static_cast<std::uint8_t>(codes.words[i / 4] >> (i % 4 * 8));
  });
}
/// Stores codes of 4 bits, two a byte. Precondition: `valid` is even.
FP8LAB_HD inline void store_pairs(const RunCodes& codes, std::uint8_t* to, std::size_t valid, bool aligned) {
  if (aligned && valid >= run_length) {
    store(Vector<std::uint32_t, 2>{codes.words[0], codes.words[1]}, reinterpret_cast<std::uint32_t*>(to));
    return;
  }
  unrolled<run_length / 2>([&](unsigned i) {
    if (std::size_t{2} * i < valid) to[i] = static_cast<std::uint8_t>(codes.words[i / 4] >> (i % 4 * 8));
  });
}

/// The largest magnitude of a word's elements, as float32 bits. Precondition: no sign is set.
template <typename Source>
[[nodiscard]] FP8LAB_HD std::uint32_t amax_of_word(std::uint32_t word) {
  if constexpr (sizeof(Source) == 4) {
    return word;
  } else {
    const std::uint32_t low = word & 0xFFFFU;
    const std::uint32_t high = word >> 16;
    return std::bit_cast<std::uint32_t>(ptx::float_of(Source{static_cast<std::uint16_t>(low < high ? high : low)}));
  }
}
/// The largest magnitudes of words, in each half of them by itself where elements have 16 bits. A NaN is dropped, or
/// larger than all else.
template <typename Source, typename Words>
[[nodiscard]] FP8LAB_HD std::uint32_t amaxes_of_words(NanInAmax nan, const Words& all) {
  constexpr unsigned count = sizeof(Words) / sizeof(std::uint32_t);
  std::uint32_t largest = 0;
  if (nan == NanInAmax::dropped) {
    unrolled<count>([&](unsigned i) { largest = ptx::larger_magnitudes_of_numbers<Source>(largest, all[i]); });
  } else {
    unrolled<count>([&](unsigned i) { largest = ptx::larger_magnitudes<Source>(largest, all[i]); });
  }
  return largest;
}
/// The amax of a run, as float32 bits.
template <typename Source>
[[nodiscard]] FP8LAB_HD std::uint32_t amax_of_run(NanInAmax nan, const Run<Source>& run) {
  return amax_of_word<Source>(amaxes_of_words<Source>(nan, run.words));
}

}  // namespace fp8lab::gpu
