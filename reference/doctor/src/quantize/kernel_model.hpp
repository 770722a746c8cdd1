// SPDX-License-Identifier: Apache-2.0
// What a kernel makes of a tensor by a hypothesis, element by element.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/simd/encode.hpp"
#include "formats/simd/tiles.hpp"
#include "fp8lab/doctor/diagnose.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/memory.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"
#include "quantize/departure.hpp"
#include "quantize/landmarks.hpp"

namespace fp8lab::doctor {

/// fl(x) in a format, nearest even.
[[nodiscard]] float rounded_to(const Format& format, float x);

/// Whether two codes are one NaN but for its sign, which is the processor's where an operation makes the NaN.
[[nodiscard]] inline bool is_nan_of_other_sign(const Format& format, std::uint8_t a, std::uint8_t b) {
  if ((a ^ b) != static_cast<int>(format.sign_mask()) || !format.is_signed || format.bits() > 8) return false;
  return std::isnan(decode(format, a)) && std::isnan(decode(format, b));
}

/// Elements of one row.
struct Piece {
  std::size_t row, column, count;
};

/// Rounds in place.
void narrow(Narrowing narrowing, std::span<float> x);

/// Which of the elements of a tile that lie in the tensor count in its amax.
enum class AmaxPart : std::uint8_t { all, without_first, without_last, first_half, second_half, even, odd };

/// Which elements count in which amax.
struct AmaxKey {
  std::size_t across, along;  // of a tile; 0: all
  std::ptrdiff_t shift = 0;   // tiles begin so many elements early
  bool is_clamped = false;    // there is no further tile behind the last one, which has the rest
  bool counts_rest = true;    // elements before the first tile, or behind a clamped one, count in its amax
  AmaxPart part = AmaxPart::all;
  std::ptrdiff_t begin = 0, end = 0;  // elements count from so far behind the tile's begin to so far behind its end
  std::size_t elements = 0;           // that count of the tensor, the first of them; 0: all
  bool is_turned = false;             // the amax is that of the transpose; for as many rows as columns
  bool is_signed = false;
  bool counts_nan = false;
  Narrowing narrowing = Narrowing::none;

  friend auto operator<=>(const AmaxKey&, const AmaxKey&) = default;
};

/// The scales of tiles by a recipe's rule, by tile, row-major.
struct ScalesByRule {
  Recipe rule;  // whose cast says nothing of scales, and is left out
  TensorFacts facts;
  std::shared_ptr<const std::vector<TileScale>> scales;
};

/// The amaxes of tiles: those that were asked for, or all of them.
struct Amaxes {
  AmaxKey key = {};
  std::size_t across = 1, along = 1;  // elements of a tile, not 0
  std::ptrdiff_t shift = 0;
  std::size_t columns = 0;  // of the source
  std::size_t tiles_down = 1, tiles_across = 1;
  std::vector<float> values = {};                    // by tile, row-major; empty until all are known
  bool are_all_known = false;                        // which threads ask, by atomic_ref, before they read the values
  std::unordered_map<std::size_t, float> some = {};  // until then
  std::vector<ScalesByRule> scales = {};             // that were made of all of them last

  [[nodiscard]] std::size_t tile_column(std::size_t column) const {
    if (shift == 0) return column / along;
    const std::ptrdiff_t moved = static_cast<std::ptrdiff_t>(column) + shift;
    return moved < 0 ? 0 : std::min(static_cast<std::size_t>(moved) / along, tiles_across - 1);
  }
  /// The column behind the last one of that tile, or one behind the tensor.
  [[nodiscard]] std::size_t end_of(std::size_t tile_column) const {
    const auto end = static_cast<std::size_t>(static_cast<std::ptrdiff_t>((tile_column + 1) * along) - shift);
    return tile_column + 1 == tiles_across ? std::max(end, columns) : end;
  }
  /// The columns of a tile that count in its amax: [first, last).
  [[nodiscard]] std::pair<std::size_t, std::size_t> counted_columns(std::size_t tile_column) const;
};

/// The tensor that was quantized, rowwise: where the quantization is columnwise, the transpose.
class Source {
 public:
  Source(const MatrixView& x, int threads);

  [[nodiscard]] Source transposed() const;
  /// Says where the transpose is, which must outlive the source: it need not be made.
  void has_transpose(const Source& other) { turned_ = std::shared_ptr<const Source>(std::shared_ptr<void>(), &other); }
  /// What is left of the tensor where it was quantized by that recipe before, in rows, and dequantized to its type.
  /// Null where the recipe takes no such tensor. The recipe must outlive the source. Several threads may ask.
  [[nodiscard]] const Source* quantized_before(const Recipe& recipe) const;
  [[nodiscard]] std::size_t rows() const { return rows_; }
  [[nodiscard]] std::size_t columns() const { return columns_; }
  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] const Format& type() const { return type_; }
  [[nodiscard]] std::span<const float> values() const { return values_; }
  [[nodiscard]] std::span<const float> values(const Piece& piece) const {
    return values().subspan(piece.row * columns_ + piece.column, piece.count);
  }
  [[nodiscard]] int threads() const { return threads_; }
  /// The index that an element has in the transpose.
  [[nodiscard]] std::uint64_t turned(std::uint64_t index) const { return index % columns_ * rows_ + index / columns_; }
  /// Whether an element is a number but zero.
  [[nodiscard]] bool has_number() const {
    return std::ranges::any_of(values(), [](float x) { return std::isfinite(x) && x != 0; });
  }
  /// Tiles, whose amaxes are computed once they are asked for, and kept. Several threads may ask.
  [[nodiscard]] Amaxes& tiles(const AmaxKey& key) const;
  [[nodiscard]] float amax_of(Amaxes& tiles, std::size_t tile_row, std::size_t tile_column) const;
  /// Found once they are asked for, and kept. Several threads may ask.
  [[nodiscard]] const Landmarks& landmarks() const;
  /// Computes all of them.
  void complete(Amaxes& tiles) const;

 private:
  Source() = default;
  /// The source whose elements count.
  [[nodiscard]] const Source& counted(const AmaxKey& key) const;

  std::size_t rows_ = 0, columns_ = 0;
  Format type_ = binary32;
  int threads_ = 1;
  Buffer<float> values_;
  /// Guards what follows. It is recursive, for some of it is made of other parts.
  std::shared_ptr<std::recursive_mutex> mutex_ = std::make_shared<std::recursive_mutex>();
  mutable std::map<AmaxKey, Amaxes> amaxes_;
  mutable std::optional<Landmarks> landmarks_;
  mutable std::shared_ptr<const Source> turned_;                              // the transpose, once it is asked for
  bool is_transpose_ = false;                                                 // of x
  mutable std::map<const Recipe*, std::shared_ptr<const Source>> quantized_;  // before, once that is asked for
};

/// A dump with a byte for each code and a word for each scale.
struct StoredDump {
  std::vector<std::uint8_t> codes;
  bool was_packed = false;
  std::optional<Format> format;        // of codes
  std::optional<Format> scale_format;  // as DumpedScales has it
  std::vector<std::uint32_t> scales;
  std::optional<float> of_tensor;

  StoredDump(const MatrixView& x, const Dump& dump);
  /// The codes of the transpose of a matrix of that many columns, made once it is asked for. Not for several threads at
  /// a time.
  [[nodiscard]] const std::uint8_t* turned(std::size_t columns, int threads) const;
  /// The type of scales for a recipe that stores those of `own`.
  [[nodiscard]] Format type_of_scales(const Format& own) const;
  /// The value of a stored scale for such a recipe.
  [[nodiscard]] float value_of_scale(std::uint32_t word, const Format& own) const;

 private:
  /// Throws std::invalid_argument where a code has more bits than the format.
  void check_codes() const;

  mutable std::map<std::size_t, std::vector<std::uint8_t>> turned_;  // by columns
};

/// Where scales are stored.
struct StoredScaleLayout {
  bool fits = false;
  std::size_t entry_rows = 1;  // rows of the source that share an entry
  std::size_t rows = 0;        // of entries
  std::size_t rows_of_tiles = 0;
  std::size_t columns = 0;
  std::size_t stored_rows = 0;  // from one column of entries to the next, where they are transposed
  bool is_padded = false, is_swizzled = false, is_transposed = false;
  bool is_for_tma = false;  // transposed, with padded rows of the transpose
  // One entry is stored of so many below, and beside, each other: that with this number.
  std::size_t step_down = 1, step_across = 1, kept_down = 0, kept_across = 0;
  std::ptrdiff_t late = 0;
  std::size_t count = 0;

  /// Nothing where the entry is not stored.
  [[nodiscard]] std::optional<std::size_t> place_of(std::size_t row, std::size_t column) const;
};

/// Which stored scales differ, by rows and columns of entries.
struct ScaleGrid {
  std::size_t columns = 1;
  std::vector<std::uint8_t> is_wrong = {};  ///< empty where their number does not fit
  /// The ratios of stored to predicted scales that differ; not ordered where none is finite.
  float lowest_ratio = 1, highest_ratio = 0;
  std::uint32_t most_ulps = 0;  ///< by how many floats those differ at most that are finite
};

/// What tells stochastic rounding from others. With p the part of a unit in the last place that is cut off, in 1024ths,
/// and b whether the code lies away from zero: sums of b - p, of (b - p) * (p - 512), and of their variances where b is
/// random. Whole numbers, so that their order does not matter.
struct Randomness {
  std::int64_t inexact = 0;  // codes that rounding decides
  std::int64_t bias = 0, slope = 0;
  std::int64_t bias_variance = 0, slope_variance = 0;

  void add(const Randomness& other);
  /// Whether both sums are what random bits make, within five standard deviations.
  [[nodiscard]] bool is_random() const;
};

/// How many codes have which p, by b.
struct PartsCut {
  std::array<std::array<std::uint32_t, 1025>, 2> counts{};

  [[nodiscard]] Randomness randomness() const;
};

struct Unexplained;

/// What codes are made of where elements meet the factors of tiles and are cast, and where they are compared: the same
/// codes differ.
struct CastOfTiles {
  const Source* source;
  const std::uint8_t* stored;
  std::size_t across, along;
  TileOperation operation;
  Format format;
  CastPolicy cast;
  std::vector<std::uint32_t> factors;  // as bits

  friend bool operator==(const CastOfTiles&, const CastOfTiles&) = default;
};

/// What a departure meets: the recipe, the tensor and the dump.
struct ModelCase {
  const Recipe& recipe;
  const Recipe& stored_rule;  ///< of the scale that is stored
  const Recipe& used_rule;    ///< of the scale that codes are made with
  const Source& source;
  const Amaxes& tiles;
  const StoredDump* dump;  ///< may be null
  CodeMatrix codes;
  TakesStored takes_stored;
};

/// What a kernel does by a hypothesis: it goes through the stages, and calls the hooks of the departures there.
class KernelModel {
 public:
  /// `dump` may be null: then nothing can be as stored. All arguments must outlive the model.
  KernelModel(const Source& source, const Hypothesis& hypothesis, const StoredDump* dump);

  /// Whether the hypothesis makes sense for the tensor and the dump.
  [[nodiscard]] bool applies() const { return applies_; }
  [[nodiscard]] const Recipe& recipe() const { return hypothesis_->recipe; }
  /// Codes of elements, by row and column of the source. `others` are those that stochastic rounding may give instead.
  void predict(const Piece& piece, std::span<std::uint8_t> codes, std::span<std::uint8_t> others) const;
  /// The scaled elements, before they are rounded to codes.
  void scaled(const Piece& piece, std::span<float> x) const;
  /// Lets several threads ask, and makes all scales at once.
  void complete() const;
  /// How many codes of the dump differ. Indices of the source that do are appended to `which`, up to `most` of them;
  /// `where` takes in where they lie.
  std::uint64_t code_mismatches(const Piece& piece, std::vector<std::uint64_t>* which = nullptr, std::size_t most = 0,
                                Unexplained* where = nullptr) const;
  /// What codes are made of, once scales are made, simplified; nothing where more happens to elements.
  [[nodiscard]] std::optional<CastOfTiles> cast_of_tiles() const;
  /// How many codes of the dump are the predicted NaN but for its sign.
  [[nodiscard]] std::uint64_t nans_of_other_sign() const;
  /// Adds what was cut off of the elements where the hypothesis is one of stochastic rounding.
  void add_parts_cut(const Piece& piece, PartsCut& parts) const;
  /// How many stored scales of the tiles of these elements differ. First elements of such tiles are appended to
  /// `which`, up to `most` of them.
  std::uint64_t scale_mismatches(const Piece& piece, std::vector<std::uint64_t>* which = nullptr,
                                 std::size_t most = 0) const;
  /// How many of all, by the layout of scales.
  std::uint64_t scale_mismatches(std::vector<std::uint64_t>* which = nullptr, std::size_t most = 0) const;
  [[nodiscard]] ScaleGrid scale_grid() const;
  /// The first row of the grid that has a wrong scale.
  [[nodiscard]] std::optional<std::size_t> first_row_of_wrong_scales() const;
  /// Whether the stored scale of the first tile is as predicted, or no tile's is stored there.
  [[nodiscard]] bool has_first_scale() const {
    const auto place = layout_.place_of(layout_.kept_down, layout_.kept_across);
    return !place ||
           is_stored_there(layout_.kept_down * layout_.entry_rows / amaxes_->across, layout_.kept_across, *place);
  }
  /// Whether the scale of the last tile of the last row is as predicted. Precondition: has_room_for_scales().
  [[nodiscard]] bool has_last_scale() const {
    const std::size_t row = layout_.rows - layout_.step_down + layout_.kept_down;
    const std::size_t column = layout_.columns - layout_.step_across + layout_.kept_across;
    const auto place = layout_.place_of(row, column);
    return place && is_stored_there(row * layout_.entry_rows / amaxes_->across, column, *place);
  }
  /// Calls f(place, is_as_predicted) with the place of each stored scale of a tile.
  template <typename F>
  void for_each_scale(const F& f) const {
    for (std::size_t row = 0; row < layout_.rows; ++row) {
      for (std::size_t column = 0; column < layout_.columns; ++column) {
        const auto place = layout_.place_of(row, column);
        if (place) f(*place, is_stored_there(row * layout_.entry_rows / amaxes_->across, column, *place));
      }
    }
  }
  /// Where the code of an element of the source is stored; behind the last code: nowhere.
  [[nodiscard]] std::uint64_t place_of(std::size_t row, std::size_t column) const;
  [[nodiscard]] const Amaxes& tiles() const { return *amaxes_; }
  [[nodiscard]] const StoredScaleLayout& layout() const { return layout_; }
  /// Whether there are as many scales as the hypothesis stores, or none are known.
  [[nodiscard]] bool has_room_for_scales() const { return layout_.fits || dump_ == nullptr || dump_->scales.empty(); }
  /// The amax of that tile of a row of the source, and the word that is stored as its scale, where there is one.
  [[nodiscard]] float amax_at(std::size_t row, std::size_t tile_column) const {
    return amax_of(row / amaxes_->across, tile_column);
  }
  [[nodiscard]] std::optional<std::uint32_t> word_there(std::size_t row, std::size_t tile_column) const;
  /// The stored scale of a tile over the predicted one; NaN where it has none.
  [[nodiscard]] double ratio_there(std::size_t tile_row, std::size_t tile_column) const;
  /// Whether that word is stored as the scale of a tile with that amax.
  [[nodiscard]] bool stores(float amax, std::uint32_t word) const {
    return is_stored(made_scale(stored_recipe_, stored_constants_, amax), amax, word);
  }
  /// The scale that is stored for a tile, and the one that its codes are made with.
  [[nodiscard]] TileScale stored_scale(std::size_t tile_row, std::size_t tile_column) const;
  [[nodiscard]] TileScale used_scale(std::size_t tile_row, std::size_t tile_column) const;

 private:
  [[nodiscard]] float amax_of(std::size_t tile_row, std::size_t tile_column) const {
    return source_->amax_of(*amaxes_, tile_row, tile_column);
  }
  /// Whether a departure has one of these hooks.
  template <typename... Hooks>
  [[nodiscard]] bool has_any(Hooks... hooks) const {
    return std::ranges::any_of(deviations_,
                               [&](const Deviation& one) { return (... || (one.departure->*hooks != nullptr)); });
  }
  /// Calls the hooks of that kind, with the deviation last where they take it.
  template <typename Hook, typename... Arguments>
  void call(Hook Departure::* hook, Arguments&... arguments) const {
    for (const Deviation& one : deviations_) {
      if (one.departure->*hook == nullptr) continue;
      if constexpr (std::is_invocable_v<Hook, Arguments&..., const Deviation&>) {
        (one.departure->*hook)(arguments..., one);
      } else {
        (one.departure->*hook)(arguments...);
      }
    }
  }
  /// Whether all codes are made with the stored scales, whatever these are.
  [[nodiscard]] bool takes_all_stored() const { return takes_stored_ == TakesStored::all; }
  /// Calls the hooks that say what comes before the amax, which tiles there are and where codes are stored.
  void set_stages();
  /// Calls the hooks that say how scales are made.
  void set_scales();
  [[nodiscard]] AmaxKey amax_key() const;
  [[nodiscard]] StoredScaleLayout scale_layout() const;
  [[nodiscard]] ScaleConstants constants_of(const Recipe& recipe) const;
  [[nodiscard]] TileScale made_scale(const Recipe& recipe, const ScaleConstants& constants, float amax) const;
  /// Finds or makes the scales of all tiles, where they follow a recipe's rule.
  void find_scales() const;
  /// Takes the scales of all tiles, where a model before made them by the same rule.
  bool take_known_scales() const;
  [[nodiscard]] Recipe rule_of_scales() const;
  [[nodiscard]] std::vector<TileScale> make_scales() const;
  /// Makes those that departures change.
  [[nodiscard]] std::vector<TileScale> make_changed_scales() const;
  void keep_made(std::shared_ptr<const std::vector<TileScale>> scales) const {
    owner_of_made_ = std::move(scales);
    made_ = *owner_of_made_;
  }
  /// What the elements of each tile meet, where bulk code takes the tiles.
  void make_factors() const;
  /// Whether no departure is from what tile_scales() makes, for codes and where scales are stored.
  [[nodiscard]] bool follows_rule() const;
  /// How vector code does the cast.
  void set_encode();
  /// The scale of the tensor that a departure says.
  void take_tensor_scale();
  /// Whether the recipe goes with the tensor and the dump.
  [[nodiscard]] bool takes_tensor(const AmaxKey& key) const;
  /// Whether all departures go with them.
  [[nodiscard]] bool makes_sense() const;
  [[nodiscard]] CodeMatrix code_matrix() const;
  /// The factor of a tile under a tensor's scale whose own scale is that value.
  [[nodiscard]] float factor_of_block(float amax, float scale) const;
  /// The tile whose scale another one meets.
  [[nodiscard]] TileIndex tile_read(TileIndex tile) const;
  /// Codes are made with the stored scale of that tile, unless it follows the rule where some are.
  void take_stored(TileIndex tile, TileScale& scale) const;
  void scale_elements(const Piece& piece, std::span<float> x) const;
  /// Tiles as bulk code takes them: elements of a factor, and the factors from the first tile on.
  struct FactorRun {
    std::size_t tile;
    std::span<const float> factors;
  };
  /// The tiles of a piece, once all factors are made; nothing where one begins before the piece and ends within.
  [[nodiscard]] std::optional<FactorRun> factors_of(const Piece& piece) const;
  void encode_products(std::span<const float> products, std::span<std::uint8_t> codes,
                       std::span<std::uint8_t> others) const;
  /// Whether a code of the dump is the predicted one, or the other that stochastic rounding may give.
  [[nodiscard]] bool is_code(std::uint8_t stored, std::uint8_t code, std::uint8_t other) const;
  /// The codes of the dump in the order of the source, if they are there.
  [[nodiscard]] const std::uint8_t* codes_in_order() const {
    return is_in_place_ ? dump_->codes.data() : turned_codes_;
  }
  /// How many stored codes differ from predicted ones.
  [[nodiscard]] std::uint64_t mismatches_in_place(const std::uint8_t* stored, std::span<const std::uint8_t> codes,
                                                  std::span<const std::uint8_t> others) const;
  /// The same, and tells code_mismatches() which, for elements from `index` on of the codes in order.
  std::uint64_t tell_in_place(std::size_t index, std::span<const std::uint8_t> codes,
                              std::span<const std::uint8_t> others, std::vector<std::uint64_t>* which, std::size_t most,
                              Unexplained* where) const;
  void change_codes(const Piece& piece, std::span<const float> products, std::span<std::uint8_t> codes) const;
  /// The value of a scale as departures change it when it is stored; nothing where they do not.
  [[nodiscard]] std::optional<float> changed_value(const TileScale& scale, float amax) const;
  [[nodiscard]] bool is_stored(const TileScale& scale, float amax, std::uint32_t word) const;
  /// Whether that word is stored for a tile, which may have the scale of another.
  [[nodiscard]] bool is_stored_for(std::size_t tile_row, std::size_t tile_column, std::uint32_t word) const;
  /// Whether what is stored in that place is the scale of a tile, or no scale by the hypothesis.
  [[nodiscard]] bool is_stored_there(std::size_t tile_row, std::size_t tile_column, std::size_t place) const;
  /// Whether what is stored in that place, of those of a tile, is explained: by the rule, or because codes are made
  /// with it, whatever it is.
  [[nodiscard]] bool is_explained_there(std::size_t tile_row, std::size_t tile_column, std::size_t place) const;
  /// Where codes are made with stored scales, whatever these are: which tiles' scales they are made with, row-major.
  /// Empty where they are made with all of them.
  [[nodiscard]] std::vector<bool> tiles_read() const;
  /// Whether scales are stored as they are made, row by row.
  [[nodiscard]] bool stores_in_order() const;
  /// Whether all words of that row of entries are those made. Precondition: stores_in_order().
  [[nodiscard]] bool has_scales_as_made(std::size_t row) const;
  /// Calls f(row, column, place) with the entries whose stored scale the grid counts as wrong, until it says false.
  template <typename F>
  void for_each_wrong_entry(const F& f) const;
  /// Where the grid tells of an entry.
  [[nodiscard]] std::size_t place_in_grid(std::size_t row, std::size_t column, std::size_t place) const;
  /// How many scales that no code is made with neither follow a rule nor count as unexplained already.
  [[nodiscard]] std::uint64_t unread_mismatches() const;
  /// 1 where the given scale of the tensor is not the one of the hypothesis, or 0.
  [[nodiscard]] std::uint64_t tensor_scale_mismatches() const;
  [[nodiscard]] float stored_value(std::uint32_t word) const {
    return dump_->value_of_scale(word, scale_format_of(recipe()));
  }

  const Source* source_;
  const Hypothesis* hypothesis_;
  std::vector<Deviation> deviations_;  // in the order of the table
  const StoredDump* dump_;
  Recipe stored_recipe_;  // of the scale that is stored
  Recipe scale_recipe_;   // of the scale that codes are made with
  TensorFacts facts_;
  ScaleConstants stored_constants_{}, scale_constants_{};  // of these recipes
  Amaxes* amaxes_ = nullptr;                               // of the source
  StoredScaleLayout layout_;
  /// By tile, once all are made, where one rule makes those stored and those met.
  mutable std::span<const TileScale> made_;
  mutable std::shared_ptr<const std::vector<TileScale>> owner_of_made_;
  mutable std::vector<float> factors_;          // by tile, where elements meet them in bulk
  mutable std::optional<TileEncoder> encoder_;  // the cast, where it does nothing but scale and round
  std::optional<VectorEncode> encode_;          // the cast, where vector code does it; upward, where it is random
  std::optional<VectorEncode> encode_others_;   // downward, where it is random
  InputNarrowing narrowing_;
  TileOperation operation_;  // by which an element meets its scale
  TakesStored takes_stored_ = TakesStored::none;
  bool stores_inverse_ = false;
  bool meets_twice_ = false;  // elements meet their scale twice
  bool is_columnwise_;
  bool is_transposed_ = false;                          // codes are stored as those of the source's transpose
  bool is_in_place_ = true;                             // codes stand where their elements do
  mutable const std::uint8_t* turned_codes_ = nullptr;  // those of the dump, where they are the transpose's, once asked
  bool keeps_codes_ = true;                             // codes are those of the cast
  bool keeps_scales_ = true;                            // elements meet the scale that their tile's amax makes
  bool applies_ = true;
};

}  // namespace fp8lab::doctor
