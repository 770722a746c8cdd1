// SPDX-License-Identifier: Apache-2.0
// Finds what a foreign kernel did: the recipe and the departures from it that explain its codes and scales.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/doctor/exercised.hpp"
#include "fp8lab/doctor/probed_pairs.hpp"
#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/matrix_view.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"

namespace fp8lab::doctor {

/// The scales that a kernel has stored, in whatever order.
struct DumpedScales {
  /// Values: binary32, binary16 or bfloat16. Bytes: e8m0 or ue4m3; left out, whichever of these a recipe stores.
  std::optional<Format> format = {};
  std::span<const std::byte> bytes = {};  ///< little-endian; empty: no scales are known
  std::optional<float> of_tensor = {};    ///< the scale of the tensor over those of tiles, or its inverse
};

/// The codes and scales that a kernel made of a tensor.
struct Dump {
  std::span<const std::uint8_t> codes;  ///< a byte for each element, or half as many: two codes of 4 bits in each
  std::optional<Format> format = {};    ///< of codes; left out: any
  DumpedScales scales = {};
};

/// A row of the table of things that kernels do and no recipe says. Each is one change of the input, the amax, the
/// scale, the product, the code, or of where codes and scales are stored.
struct Departure;

/// A departure, and what it needs to know.
struct Deviation {
  const Departure* departure = nullptr;  ///< a row of the table
  std::uint64_t place = 0;               ///< an index of the tensor, where the departure has one
  float value = 0;                       ///< a factor, where the departure has one
  std::uint64_t last = 0;                ///< an index of the tensor, where the departure has two

  /// What the departure is called: "codes_one_late".
  [[nodiscard]] std::string_view name() const;
  friend bool operator==(const Deviation&, const Deviation&) = default;
};

/// A recipe or a profile, and the departures from it, that a kernel may have computed.
struct Hypothesis {
  std::string base;                    ///< the named recipe or the profile that it is, or that it is nearest to
  std::vector<std::string> also = {};  ///< others whose record is the same
  Recipe recipe;
  std::vector<std::string> changes = {};  ///< fields in which `recipe` differs from the base, in words
  std::vector<Deviation> deviations = {};
  Direction direction = Direction::rowwise;

  /// Whether it is a named recipe or profile, or the expected recipe, without change and departure. The caller may give
  /// the scale of the tensor, and those of rows and tiles where that is expected.
  [[nodiscard]] bool is_plain() const;
};
/// Whether its scale is the stored number, which need not follow from the tensor: static or delayed, or wrong.
[[nodiscard]] bool has_given_scale(const Hypothesis& hypothesis);
/// In words: "te_mxfp8, but scaled elements are rounded to bfloat16 before they become codes".
[[nodiscard]] std::string describe(const Hypothesis& hypothesis);

/// How much of a dump a hypothesis does not explain.
struct Explanation {
  Hypothesis hypothesis;
  std::uint64_t codes = 0;   ///< that it does not explain
  std::uint64_t scales = 0;  ///< that it does not explain

  [[nodiscard]] std::uint64_t unexplained() const { return codes + scales; }
};

/// An element whose code tells hypotheses apart.
struct Discriminator {
  std::uint64_t index;
  double x;
  std::uint8_t code;           ///< that is there
  std::uint8_t first, second;  ///< by the first hypothesis, and by the second
};

/// The factors x is multiplied with that would explain all codes, if one number did: [lowest, highest].
struct FactorInterval {
  double lowest, highest;
};

/// The result of diagnose().
struct Diagnosis {
  std::uint64_t elements = 0;  ///< codes
  std::uint64_t scales = 0;    ///< stored scales; 0: none were given
  std::size_t searched = 0;    ///< hypotheses
  /// The best first: by what they leave unexplained, then by plausibility. Never empty.
  std::vector<Explanation> explanations;
  /// How many of the first ones explain equally much, and make the same of this tensor: the data cannot tell them
  /// apart.
  std::size_t tied = 1;
  std::vector<Discriminator> discriminators;  ///< where the first and the best that makes something else differ
  Format format = e4m3;                       ///< of codes, by the first
  std::optional<FactorInterval> factor;       ///< where codes allow one factor for all elements
  std::vector<std::string> rest;              ///< where what the first leaves unexplained lies, a sentence each
  std::vector<std::string> notes;             ///< what else is known, a sentence each
  std::string verdict;                        ///< a sentence

  std::string expected;     ///< the name of the expected recipe; empty: none was
  bool is_in_order = true;  ///< whether codes stand in the order of x; otherwise they were put in order, as a note says
  std::vector<Exercised> exercised = {};  ///< where it is correct: what x shows of the kernel
  bool is_telling = true;  ///< whether x has a number that is not zero: otherwise nothing is known of scales

  /// What the input does not have that tells kernels apart, though one tensor can have it: names of kinds. exercise()
  /// makes an input that has it. Empty unless the kernel is correct.
  [[nodiscard]] std::vector<std::string> unexercised() const;
  /// Whether the first leaves nothing unexplained.
  [[nodiscard]] bool explained() const { return explanations.front().unexplained() == 0; }
  /// Whether the first is what was expected, or nothing was.
  [[nodiscard]] bool is_expected() const {
    const Hypothesis& first = explanations.front().hypothesis;
    return expected.empty() || first.base == expected || std::ranges::count(first.also, expected) != 0;
  }
  /// Whether it also has neither change nor departure, and x tells of scales: the kernel does what the expected recipe
  /// says, or a named one where none was expected. That does not say of a scale of the tensor that follows from nothing
  /// whether it is right: it is so where it is expected.
  [[nodiscard]] bool correct() const {
    const Hypothesis& first = explanations.front().hypothesis;
    const bool is_known = !expected.empty() || !has_given_scale(first);
    return explained() && is_telling && is_in_order && is_expected() && first.is_plain() && is_known;
  }
};

/// How diagnose() goes about it.
struct DiagnoseOptions {
  /// The recipe that the kernel should follow: the first candidate, from which departures are told. Left out: any named
  /// recipe.
  std::optional<Recipe> expected = {};
  std::string expected_name = "the expected recipe";
  std::optional<Direction> direction = {};  ///< of the quantization; left out: rowwise, then columnwise
  std::size_t most_shown = 10;              ///< explanations and discriminators
  int threads = 1;
};

/// Names the semantics that explain what a kernel has made of x, of float, Half or BFloat16. Named recipes and casts by
/// profiles are searched first, then those with another value in one field, one departure, and two of both. Hypotheses
/// are sieved on a sample; what is left is compared with every element and scale, and elements that contradict join the
/// sample.
///
/// Throws std::invalid_argument where x is empty or of double, codes are neither as many as x has elements nor half as
/// many, have more bits than their format, or are of one without a sign or with more than 8 bits, or the scale of the
/// tensor is not positive and finite.
[[nodiscard]] Diagnosis diagnose(const MatrixView& x, const Dump& dump, const DiagnoseOptions& options = {});

/// A sentence where codes are half as many bytes as x has elements, as pairs of codes of 4 bits are, but have another
/// shape than pairs of x or of its transpose: half of them may be missing. Empty elsewhere, and for codes of one
/// dimension.
[[nodiscard]] std::string note_on_pairs(std::span<const std::uint64_t> shape_of_x,
                                        std::span<const std::uint64_t> shape_of_codes);

/// A tensor on which hypotheses differ.
struct Probe : ProbedPairs {
  std::size_t rows = 0, columns = 0;
  std::vector<float> values;  ///< row-major; of bfloat16 values where `input_type` is that
  /// Digest (FNV-1a, 64 bits) of each hypothesis' codes, a byte each, in the order of the arguments.
  std::vector<std::uint64_t> digests;
};

/// The tensor of those tried, of that type, on which most pairs of hypotheses differ. Throws std::invalid_argument
/// where there are fewer than two hypotheses.
[[nodiscard]] Probe probe(std::span<const Hypothesis> hypotheses, const Format& input_type = binary32);

}  // namespace fp8lab::doctor
