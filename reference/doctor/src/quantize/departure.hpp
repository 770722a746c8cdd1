// SPDX-License-Identifier: Apache-2.0
// A departure is a row of a table: what a wrong kernel does, in words and by hooks of the stages where it acts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fp8lab/doctor/diagnose.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/gemm/gemm_reading.hpp"
#include "fp8lab/reference/scaling/recipe.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"
#include "search/table.hpp"

namespace fp8lab::doctor {

struct AmaxKey;
struct Amaxes;
struct GemmFacts;
struct StoredScaleLayout;
struct StoredDump;
struct Suggestion;
class SearchCase;
struct ModelCase;
class KernelModel;
class LocalCase;
class ScalesCase;

/// The stages of a kernel, in their order, and a GEMM of what it stored. Each has a file of rows.
enum class KernelStage : std::uint8_t { input, amax, tile, scale, used_scale, code, place, stored, gemm };

/// To what elements are rounded; the later one counts where there are two.
enum class Narrowing : std::uint8_t {
  none,
  float16,
  bfloat16,
  flushed,
  float16_as_bfloat16,  ///< words of float16 are taken for those of bfloat16
  bfloat16_as_float16
};

/// To what the elements of a tensor are rounded, and to what those that count in an amax.
struct InputNarrowing {
  Narrowing elements = Narrowing::none, counted = Narrowing::none;
  const Recipe* earlier = nullptr;  ///< by which the tensor was quantized before; null: it was not
};

/// A tile, by its row and column of tiles.
struct TileIndex {
  std::size_t row, column;
};

/// What the scale of a tile is made of.
struct ScaleRule {
  const Recipe& recipe;
  const ScaleConstants& constants;
  float amax;
};

/// Codes of elements of one row, and the scaled elements of which they were made.
struct CodesOfPiece {
  std::span<std::uint8_t> codes;
  std::span<const float> products;
  const Recipe& recipe;
  std::size_t row, column;  ///< of the first one
  std::size_t columns;      ///< of the tensor
};

/// The matrix of codes as it is stored, of bytes that have one or two codes each.
struct CodeMatrix {
  std::uint64_t rows, columns, per_byte;
};

/// The facts from which the stored scale of a tile is made.
struct StoredRule {
  const Recipe& recipe;
  const TensorFacts& facts;
  float amax;
};

/// Which tiles have the scale that is stored for a tile: one, or either of two.
struct StoredTiles {
  TileIndex first, second;
};

/// Whether codes are made with the stored scales, whatever these are.
enum class TakesStored : std::uint8_t {
  none,
  some,  ///< of tiles whose stored scales do not follow from them
  all
};

/// The scales that a GEMM is given of one operand.
struct OperandScales {
  bool numbers;              ///< float32, and not 1
  bool tiles;                ///< these are of tiles along K
  bool blocks;               ///< the tensor core multiplies with scales of blocks
  bool codes;                ///< these are codes of the operand
  bool powers;               ///< they are powers of two, without a float32 scale beside them
  bool e4m3;                 ///< the operand's own codes are E4M3
  bool e4m3_or_e5m2;         ///< or there is another format of as many bits
  bool rows;                 ///< float32 scales of rows
  bool eight_rows;           ///< the operand has more than eight rows
  bool is_told_from_output;  ///< a row of it is scaled, or has an addend
  bool other_layout;         ///< they have another place in the other layout
};

/// How a GEMM reads the scales of an operand: of a, of b, or of both.
struct OperandReading {
  std::string_view name;                                ///< {} stands for "_a", "_b", or what makes it the plural
  std::string_view words;                               ///< {} stands for a, b, or both
  std::string_view words_of_both = {};                  ///< instead, where these are others
  double cost = 1;                                      ///< how implausible it is beside other departures of a GEMM
  bool (*is_searched)(const OperandScales&) = nullptr;  ///< whether it changes something; null: no GEMM does so
  SideReading reading = {};
};

/// How a GEMM reads what else it is given.
struct InputReading {
  bool (*is_searched)(const GemmFacts&) = nullptr;  ///< whether it changes something; null: no GEMM does so
  GemmReading reading = {};
  bool drops_tail = false;  ///< products from a depth on are missing
};

[[nodiscard]] constexpr bool always(const SearchCase& /*one*/) { return true; }
[[nodiscard]] constexpr bool never(const SearchCase& /*one*/) { return false; }

/// A row of the table. Hooks that are null do nothing. Rows act in their order: by stages, and in the order of the
/// file.
struct Departure {
  std::string_view name;
  std::string_view words;                    ///< of a kernel: "the sign is lost"
  std::string_view words_of_transpose = {};  ///< instead, where the recipe stores what it makes of columns transposed

  // The search.
  double cost;                                      ///< how implausible it is: about 1, a likelier one less
  bool (*is_searched)(const SearchCase&) = always;  ///< never: what is stored suggests it
  std::vector<Deviation> (*numbers)(const SearchCase&) =
      nullptr;  ///< that are tried, without `departure`; null: one without
  std::vector<Deviation> (*more_numbers)(const SearchCase&) =
      nullptr;  ///< that are tried as well where the stored scales are those of the recipe, the likely ones first
  bool adds_small_number = false;  ///< they are also tried with scales that are rounded otherwise
  bool rounds_scales = false;      ///< in another way than the recipe
  std::optional<Deviation> (*local)(const LocalCase&) = nullptr;        ///< what unexplained elements suggest
  std::vector<Deviation> (*local_numbers)(const LocalCase&) = nullptr;  ///< several, of which one may explain them
  std::optional<Suggestion> (*by_scales)(const ScalesCase&) = nullptr;  ///< what the stored scales of a recipe suggest
  std::optional<Deviation> (*by_wrong_scales)(const KernelModel&, const StoredDump&) =
      nullptr;  ///< what those suggest that a hypothesis does not explain
  bool (*makes_sense)(const ModelCase&, const Deviation&) = nullptr;            ///< for this recipe, tensor and dump
  void (*details)(TextStream&, const Deviation&, const Hypothesis&) = nullptr;  ///< what stands behind the words
  bool is_given = false;     ///< the caller's scales, which are no defect
  bool has_no_rule = false;  ///< it takes scales that follow from nothing

  // The input, the amax and the tile.
  void (*input)(InputNarrowing&, const Deviation&) = nullptr;
  void (*tile)(AmaxKey&, const Deviation&) = nullptr;                           ///< the shape and place of tiles
  void (*counted)(AmaxKey&, const Deviation&, std::ptrdiff_t along) = nullptr;  ///< which elements count
  float (*amax)(float amax, const Deviation&) = nullptr;

  // The scale.
  void (*tensor_scale)(TensorFacts&, const Deviation&) = nullptr;  ///< over those of tiles
  void (*rule)(Recipe&) = nullptr;                                 ///< by which scales are made
  void (*used_rule)(Recipe&) = nullptr;                            ///< the same, for those that codes are made with
  void (*constants)(ScaleConstants&, const Deviation&) = nullptr;
  void (*made)(TileScale&, const ScaleRule&, const Deviation&) = nullptr;
  TakesStored takes_stored = TakesStored::none;
  bool meets_twice = false;                                                 ///< elements meet their scale twice
  TileIndex (*read)(TileIndex, const Amaxes&, const Deviation&) = nullptr;  ///< whose scale a tile meets
  void (*used)(TileScale&, const Recipe&, const Deviation&) = nullptr;      ///< as elements meet it
  TileOperation (*operation)(TileOperation, const Deviation&) = nullptr;

  // The code, and its place.
  void (*product)(std::span<float>, const Recipe&) = nullptr;  ///< the scaled elements
  void (*code)(const CodesOfPiece&, const Deviation&) = nullptr;
  void (*index)(std::uint64_t& row, std::uint64_t& column, const CodeMatrix&, const Deviation&) = nullptr;
  std::uint64_t (*place)(std::uint64_t place, const CodeMatrix&) = nullptr;  ///< in codes, from the start
  bool transposes_codes = false;

  // The stored scale.
  bool stores_inverse = false;
  void (*layout)(StoredScaleLayout&, const Deviation&) = nullptr;
  float (*stored)(float value, const StoredRule&) = nullptr;
  std::uint32_t (*word)(std::uint32_t word, const Format&) = nullptr;  ///< its bytes as they would be
  StoredTiles (*stored_of)(TileIndex, TileIndex last, const Deviation&) = nullptr;
  bool (*is_unwritten)(std::size_t place, const Deviation&) = nullptr;

  // A GEMM, which reads what is stored.
  OperandReading operand = {};
  InputReading gemm = {};

  /// How a test plants it: in a kernel by that recipe, with these numbers, for a tensor of 256 columns.
  struct Plant {
    std::string_view recipe = "deepseek_v3_2024";
    std::uint64_t place = 0;
    float value = 0;
    std::uint64_t last = 0;
    std::size_t rows = 256;
    Format input_type = binary32;
  };
  Plant plant = {};

  KernelStage stage = KernelStage::input;  ///< of_stage() sets it
};

/// The rows of each stage's file.
[[nodiscard]] std::span<const Departure> input_departures();
[[nodiscard]] std::span<const Departure> amax_departures();
[[nodiscard]] std::span<const Departure> tile_departures();
[[nodiscard]] std::span<const Departure> scale_departures();
[[nodiscard]] std::span<const Departure> used_scale_departures();
[[nodiscard]] std::span<const Departure> code_departures();
[[nodiscard]] std::span<const Departure> place_departures();
[[nodiscard]] std::span<const Departure> stored_departures();

/// Calls f with each row of the table, in its order.
template <typename F>
void for_each_departure(const F& f) {
  for (const auto rows : {input_departures(), amax_departures(), tile_departures(), scale_departures(),
                          used_scale_departures(), code_departures(), place_departures(), stored_departures()}) {
    for (const Departure& one : rows) f(one);
  }
}

/// Calls f with what each row suggests by that hook.
template <typename Hook, typename F, typename... Cases>
void for_each_suggested(Hook Departure::* hook, const F& f, const Cases&... cases) {
  for_each_departure([&](const Departure& row) {
    if (row.*hook == nullptr) return;
    auto one = (row.*hook)(cases...);
    if (!one) return;
    one->departure = &row;
    f(*one);
  });
}

/// Whether a hypothesis has a departure.
[[nodiscard]] bool has(const Hypothesis& hypothesis, const Departure& departure);
/// Whether scales, or some of them, follow from nothing.
[[nodiscard]] bool has_no_rule(const Hypothesis& hypothesis);
/// Whether it takes a stored scale, whatever it is: that follows from nothing, or is given.
[[nodiscard]] inline bool takes_any_scale(const Hypothesis& hypothesis) {
  return has_no_rule(hypothesis) || has_given_scale(hypothesis);
}

}  // namespace fp8lab::doctor
