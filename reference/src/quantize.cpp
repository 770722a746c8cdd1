// SPDX-License-Identifier: Apache-2.0
// A tensor is quantized cell by cell: pieces that stay in the first caches, from which the amaxes of tiles, their
// scales and then the codes are made, for each direction asked for.
#include "fp8lab/reference/quantize.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/tile_scale.hpp"
#include "hadamard.hpp"
#include "quantize_plan.hpp"
#include "transpose.hpp"

namespace fp8lab {
namespace {

// Of a cell of one row: the next is fetched while one is encoded, and both are to be in the first cache, with room.
constexpr std::size_t flat_bytes = 6144;
constexpr std::size_t tall_elements = 32768;  // of other cells: their rows are short otherwise

/// Rows and columns of x, from the first to below the last.
struct Cell {
  std::size_t row, row_end, column, column_end;
  [[nodiscard]] std::size_t width() const { return column_end - column; }
  [[nodiscard]] std::size_t height() const { return row_end - row; }
};

template <typename Source>
struct Matrix {
  std::span<const Source> values;
  std::size_t rows, columns;
};

struct Facts {
  TensorFacts tensor;
  bool finite;  // known that all values are
};

/// A cell's values, in x or apart.
template <typename Source>
struct Piece {
  Cell cell;
  std::span<const Source> values;
  std::size_t stride;
  [[nodiscard]] std::span<const Source> row(std::size_t r, const Cell& band) const {
    return values.subspan((r - cell.row) * stride + band.column - cell.column, band.width());
  }
};

/// What a thread needs room for.
struct Scratch {
  bool in_range = false;  // as the hint, of a band
  std::vector<std::uint32_t> amaxes, random;
  std::vector<float> factors, scale_inv, scaled;
  std::vector<std::uint8_t> scale_codes, codes, column;
};

/// One direction of a tensor.
template <typename Source>
class Quantizer {
 public:
  Quantizer(const Matrix<Source>& x, const Recipe& recipe, const QuantizePlan& plan, const Facts& facts,
            const RandomSource* random, Quantized& out)
      : x_(x),
        recipe_(recipe),
        plan_(plan),
        facts_(facts),
        random_(random),
        encoder_(plan.format, plan.policy),
        overflow_from_(overflow_from(plan.format)),
        out_(out) {
    if (plan.uniform) uniform_ = tile_scale(recipe, facts.tensor.amax, facts.tensor);
  }

  /// Precondition: the cell holds whole tiles, but at the tensor's ends.
  void run(const Piece<Source>& x, Scratch& scratch) const {
    const Cell& cell = x.cell;
    const std::size_t tile_rows = plan_.uniform ? cell.height() : plan_.tile_rows;
    for (std::size_t row = cell.row; row < cell.row_end; row += tile_rows) {
      const Cell band{row, std::min(row + tile_rows, cell.row_end), cell.column, cell.column_end};
      if (plan_.uniform) {
        scratch.factors.assign(1, uniform_.factor);
        scratch.in_range = facts_.finite && facts_.tensor.amax * uniform_.factor < overflow_from_;
      } else {
        make_scales(x, band, scratch);
      }
      encode_band(x, band, scratch);
    }
  }

  /// The tensor's scale, where it has one.
  void store_uniform() const {
    if (plan_.uniform) out_.scale_inv.assign(1, uniform_.scale_inv);
  }

 private:
  void make_scales(const Piece<Source>& x, const Cell& band, Scratch& scratch) const {
    const std::size_t tiles = blocks_of(band.width(), plan_.tile_columns);
    scratch.amaxes.assign(tiles, 0);
    scratch.factors.resize(tiles);
    scratch.scale_inv.resize(tiles);
    scratch.scale_codes.resize(tiles);
    bool finite = true;
    if (plan_.tile_columns == 1) {
      const std::size_t size = (band.height() - 1) * x.stride + band.width();
      const auto rows = x.values.subspan((band.row - x.cell.row) * x.stride, size);
      finite = add_amax_of_columns(rows, x.stride, plan_.nan, scratch.amaxes);
    } else {
      for (std::size_t r = band.row; r < band.row_end; ++r) {
        finite &= add_amax(x.row(r, band), plan_.tile_columns, plan_.nan, scratch.amaxes);
      }
    }
    tile_scales(recipe_, scratch.amaxes, facts_.tensor, {scratch.factors, scratch.scale_inv, scratch.scale_codes});
    // As integers, NaN and what has a sign are above all.
    std::uint32_t most = 0;
    for (std::size_t t = 0; t < tiles; ++t) {
      const float scaled = std::bit_cast<float>(scratch.amaxes[t]) * scratch.factors[t];
      most = std::max(most, std::bit_cast<std::uint32_t>(scaled));
    }
    scratch.in_range = finite && most < std::bit_cast<std::uint32_t>(overflow_from_);
    if (plan_.scale_codes) return store_scales<std::uint8_t>(band, scratch.scale_codes, out_.scale_codes);
    store_scales<float>(band, scratch.scale_inv, out_.scale_inv);
  }

  template <typename Value>
  void store_scales(const Cell& band, const std::vector<Value>& of_tiles, std::vector<Value>& out) const {
    const std::size_t height = plan_.scale_height(out_.direction);
    const std::size_t width = plan_.scale_width(out_.direction);
    const std::size_t first = band.column / width;
    const std::size_t count = blocks_of(band.width(), width);
    const std::size_t copies = plan_.tile_columns / width;  // of a tile's scale
    for (std::size_t u = band.row / height; u * height < band.row_end; ++u) {
      const std::size_t step = plan_.transposed ? out_.scale_columns : 1;
      Value* to = &out[plan_.transposed ? first * out_.scale_columns + u : u * out_.scale_columns + first];
      if (copies == 1 && step == 1) {
        std::copy_n(of_tiles.begin(), count, to);
      } else if (copies == 1) {
        for (std::size_t v = 0; v < count; ++v) to[v * step] = of_tiles[v];
      } else {
        for (std::size_t v = 0; v < count; ++v) to[v * step] = of_tiles[v / copies];
      }
    }
  }

  void encode_band(const Piece<Source>& x, const Cell& band, Scratch& scratch) const {
    const std::size_t width = band.width();
    const EncodeHints hints{.in_range = scratch.in_range, .ahead = x.cell.height() == 1 ? width : 0};
    const bool pairs = plan_.format.bits() == 4;
    const bool random = plan_.policy.rounding == Rounding::stochastic;
    const bool put_aside = plan_.transposed || (pairs && random);
    scratch.codes.resize(put_aside ? band.height() * width : 0);
    for (std::size_t r = band.row; r < band.row_end; ++r) {
      const auto row = x.row(r, band);
      const std::size_t tile = plan_.uniform ? width : plan_.tile_columns;
      const std::size_t from = r * x_.columns + band.column;
      const auto out = std::span(out_.codes).subspan(pairs ? from / 2 : from, pairs ? width / 2 : width);
      const auto codes = put_aside ? std::span(scratch.codes).subspan((r - band.row) * width, width) : out;
      if (random) {
        encode_stochastic(r, row, band, scratch, codes);
        if (!plan_.transposed) pack_pairs(codes, out);
      } else if (pairs && !plan_.transposed) {
        encoder_.encode_pairs(row, tile, plan_.operation, scratch.factors, out, hints);
      } else {
        encoder_(row, tile, plan_.operation, scratch.factors, codes, hints);
      }
    }
    if (plan_.transposed) store_transposed(band, scratch);
  }

  void encode_stochastic(std::size_t r, std::span<const Source> row, const Cell& band, Scratch& scratch,
                         std::span<std::uint8_t> codes) const {
    scratch.scaled.resize(codes.size());
    scratch.random.resize(codes.size());
    scale_tiles(row, plan_.tile_columns, plan_.operation, scratch.factors, scratch.scaled);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const std::size_t column = band.column + i;
      const std::size_t code = plan_.transposed ? column * x_.rows + r : r * x_.columns + column;
      scratch.random[i] = random_bits_of(plan_.format, *random_, code).value;
    }
    const RandomSource words{std::span<const std::uint32_t>(scratch.random), random_->count};
    encode(plan_.format, plan_.policy, std::span<const float>(scratch.scaled), words, codes);
  }

  void store_transposed(const Cell& band, Scratch& scratch) const {
    const std::size_t width = band.width();
    const std::size_t height = band.height();
    const std::uint8_t* codes = scratch.codes.data();
    const std::size_t to = band.column * x_.rows + band.row;
    if (plan_.format.bits() != 4) {
      return transpose_bytes(codes, height, width, width, &out_.codes[to], x_.rows);
    }
    scratch.column.resize(width * height);
    transpose_bytes(codes, height, width, width, scratch.column.data(), height);
    for (std::size_t i = 0; i < width; ++i) {
      const auto column = std::span<const std::uint8_t>(scratch.column).subspan(i * height, height);
      pack_pairs(column, std::span(out_.codes).subspan((to + i * x_.rows) / 2, height / 2));
    }
  }

  const Matrix<Source>& x_;
  const Recipe& recipe_;
  const QuantizePlan& plan_;
  const Facts& facts_;
  const RandomSource* random_;
  TileEncoder encoder_;
  float overflow_from_;
  Quantized& out_;
  TileScale uniform_{};
};

void check_values(std::size_t size, std::size_t rows, std::size_t columns) {
  const std::string shape = std::to_string(rows) + " x " + std::to_string(columns);
  if (rows == 0 || columns == 0) throw std::invalid_argument("x must not be empty: it is " + shape);
  if (size % columns != 0 || size / columns != rows) {
    throw std::invalid_argument("x must have " + shape + " elements, not " + std::to_string(size));
  }
}

void check_options(const Recipe& recipe, std::size_t codes, const QuantizeOptions& options) {
  const auto* nvfp4 = std::get_if<NvFp4>(&recipe);
  const bool stochastic = nvfp4 != nullptr && nvfp4->stochastic_rounding;
  if (stochastic && !options.random) throw std::invalid_argument("stochastic_rounding needs random bits");
  if (!stochastic && options.random) throw std::invalid_argument("random bits are for stochastic_rounding only");
  if (options.random) check_random(e2m1, *options.random, codes);
  const auto* current = std::get_if<JustInTime>(&recipe);
  if (options.amax_before_rounding && (current == nullptr || current->axis != Axis::tensor || !options.input_type)) {
    throw std::invalid_argument("amax_before_rounding is for JustInTime with axis 'tensor' and an input_type");
  }
  if (options.threads < 1)
    throw std::invalid_argument("threads must be 1 or more, not " + std::to_string(options.threads));
}

/// Makes room for a direction's codes and scales.
void prepare(Quantized& out, const Recipe& recipe, Direction direction, std::size_t rows, std::size_t columns,
             const QuantizePlan& plan, const Facts& facts) {
  out.recipe = recipe;
  out.direction = direction;
  out.rows = rows;
  out.columns = columns;
  out.format = plan.format;
  out.transposed = plan.transposed;
  out.codes.resize(plan.format.bits() == 4 ? rows * columns / 2 : rows * columns);
  const std::size_t high = plan.uniform ? 1 : blocks_of(rows, plan.scale_height(direction));
  const std::size_t wide = plan.uniform ? 1 : blocks_of(columns, plan.scale_width(direction));
  out.scale_rows = plan.transposed ? wide : high;
  out.scale_columns = plan.transposed ? high : wide;
  out.scale_inv.resize(plan.scale_codes ? 0 : high * wide);
  out.scale_codes.resize(plan.scale_codes ? high * wide : 0);
  out.amax = plan.tensor_amax ? facts.tensor.amax : 0;
}

/// The largest magnitude of a tensor, and whether all of it is finite.
struct TensorAmax {
  float value;
  bool finite;
};
template <typename Source>
TensorAmax amax_of(std::span<const Source> values, NanInAmax nan, int threads) {
  constexpr std::size_t piece = std::size_t{1} << 16;
  std::vector<std::uint32_t> amaxes(blocks_of(values.size(), piece), 0);
  std::atomic<bool> finite = true;
  parallel_for(amaxes.size(), threads, [&](std::size_t first, std::size_t last) {
    const auto part = values.subspan(first * piece, std::min(last * piece, values.size()) - first * piece);
    if (!add_amax(part, piece, nan, std::span(amaxes).subspan(first, last - first))) finite = false;
  });
  return {std::bit_cast<float>(*std::ranges::max_element(amaxes)), finite};
}

/// One direction that is asked for.
struct Request {
  Direction direction;
  Quantized& out;
};

/// Cells of whole tiles of every plan.
struct Cells {
  std::size_t rows = 1, columns = 1;  ///< of a cell

  Cells(std::span<const QuantizePlan> plans, std::size_t all_rows, std::size_t all_columns, std::size_t element_bytes) {
    for (const QuantizePlan& plan : plans) {
      const std::size_t high = plan.transposed ? 64 : 1;  // where the scale leaves it open
      rows = std::max(rows, plan.uniform ? high : plan.tile_rows);
      columns = std::max(columns, plan.uniform ? 1 : plan.tile_columns);
    }
    rows = std::min(rows, all_rows);
    const std::size_t room = std::max((rows == 1 ? flat_bytes / element_bytes : tall_elements) / rows, std::size_t{64});
    columns = std::min(blocks_of(room, columns) * columns, all_columns);
  }
};

/// Whether rows can be taken as one: no tile is higher than one, or shared by two.
bool is_flat(std::span<const QuantizePlan> plans, std::size_t columns) {
  return std::ranges::all_of(plans, [&](const QuantizePlan& plan) {
    return !plan.transposed && (plan.uniform || (plan.tile_rows == 1 && columns % plan.tile_columns == 0));
  });
}

/// A cell's rows one after the other: apart by the stride of x, which is often a power of two, few of them fit into a
/// cache at a time.
template <typename Source>
Piece<Source> copied(const Piece<Source>& x, std::vector<Source>& apart) {
  const std::size_t width = x.cell.width();
  apart.resize(x.cell.height() * width);
  for (std::size_t r = 0; r < x.cell.height(); ++r) {
    std::ranges::copy(x.values.subspan(r * x.stride, width), apart.begin() + static_cast<std::ptrdiff_t>(r * width));
  }
  return {x.cell, apart, width};
}

template <typename Source>
void run_cells(const Matrix<Source>& x, const Recipe& recipe, std::span<const QuantizePlan> plans, const Facts& facts,
               std::span<const Request> requests, const QuantizeOptions& options) {
  std::vector<Quantizer<Source>> quantizers;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    quantizers.emplace_back(x, recipe, plans[i], facts, options.random ? &*options.random : nullptr, requests[i].out);
    quantizers.back().store_uniform();
  }
  const Cells cells(plans, x.rows, x.columns, sizeof(Source));
  const std::size_t across = blocks_of(x.columns, cells.columns);
  const auto cell_at = [&](std::size_t i) {
    const std::size_t row = i / across * cells.rows;
    const std::size_t column = i % across * cells.columns;
    return Cell{row, std::min(row + cells.rows, x.rows), column, std::min(column + cells.columns, x.columns)};
  };
  parallel_for(blocks_of(x.rows, cells.rows) * across, options.threads, [&](std::size_t first, std::size_t last) {
    const DefaultEnvironment environment;
    Scratch scratch;
    std::vector<Source> apart;
    for (std::size_t i = first; i < last; ++i) {
      const Cell cell = cell_at(i);
      Piece<Source> piece{cell, x.values.subspan(cell.row * x.columns + cell.column), x.columns};
      if (cell.height() > 1) piece = copied(piece, apart);
      for (const Quantizer<Source>& one : quantizers) one.run(piece, scratch);
    }
  });
}

std::vector<QuantizePlan> plans_of(const Recipe& recipe, std::size_t rows, std::size_t columns,
                                   std::span<const Request> requests) {
  std::vector<QuantizePlan> plans;
  for (const Request& one : requests) plans.push_back(quantize_plan(recipe, one.direction, rows, columns));
  return plans;
}

/// All requests on the same values, by their plans. `amax`, where given, is the tensor's.
template <typename Source>
void quantize_planned(std::span<const Source> values, std::size_t rows, std::size_t columns, const Recipe& recipe,
                      std::span<const QuantizePlan> plans, std::optional<TensorAmax> amax,
                      std::span<const Request> requests, const QuantizeOptions& options) {
  constexpr Format own = std::is_same_v<Source, float> ? binary32 : bfloat16;
  if (plans[0].tensor_amax && !amax) amax = amax_of(values, plans[0].nan, options.threads);
  const Facts facts{{.amax = amax ? amax->value : 0, .input_type = options.input_type.value_or(own)},
                    amax && amax->finite};
  for (std::size_t i = 0; i < requests.size(); ++i) {
    prepare(requests[i].out, recipe, requests[i].direction, rows, columns, plans[i], facts);
  }
  const bool flat = is_flat(plans, columns);
  const Matrix<Source> x{values, flat ? 1 : rows, flat ? values.size() : columns};
  run_cells(x, recipe, plans, facts, requests, options);
}

template <typename Source>
void quantize_values(std::span<const Source> values, std::size_t rows, std::size_t columns, const Recipe& recipe,
                     std::optional<TensorAmax> amax, std::span<const Request> requests,
                     const QuantizeOptions& options) {
  quantize_planned(values, rows, columns, recipe, plans_of(recipe, rows, columns, requests), amax, requests, options);
}

/// fl(x) in another type, as float32.
template <typename Source>
std::vector<float> rounded_to(const Format& type, std::span<const Source> values, int threads) {
  constexpr CastPolicy ieee{
      .overflow = Overflow::to_special, .infinity = Overflow::to_special, .nan = NanCode::sign_and_payload};
  std::vector<std::uint16_t> words(values.size());
  encode(type, ieee, values, std::span(words), threads);
  std::vector<float> result(values.size());
  decode(type, std::span<const std::uint16_t>(words), std::span(result), threads);
  return result;
}

/// What the values are rounded to first, if to anything.
std::optional<Format> narrower_type(const QuantizeOptions& options) {
  if (!options.input_type || *options.input_type == binary32) return {};
  if (*options.input_type == binary16 || *options.input_type == bfloat16) return options.input_type;
  throw std::invalid_argument("input_type must be float32, float16 or bfloat16, not " +
                              format_name(*options.input_type));
}

template <typename Source>
void quantize_requests(std::span<const Source> values, std::size_t rows, std::size_t columns, const Recipe& recipe,
                       std::span<const Request> requests, const QuantizeOptions& options) {
  const DefaultEnvironment environment;
  check_values(values.size(), rows, columns);
  check_options(recipe, values.size(), options);
  static_cast<void>(plans_of(recipe, rows, columns, requests));
  // 1. What the values are rounded to first.
  if (const std::optional<Format> type = narrower_type(options)) {
    std::optional<TensorAmax> amax;
    if (options.amax_before_rounding) {
      amax = amax_of(values, quantize_plan(recipe, requests[0].direction, rows, columns).nan, options.threads);
      amax->finite = false;  // what is finite may become infinite
    }
    const std::vector<float> rounded = rounded_to(*type, values, options.threads);
    return quantize_values(std::span<const float>(rounded), rows, columns, recipe, amax, requests, options);
  }
  // 2. Columnwise copies may be turned, and have the amax of that; all others are of the values as they are.
  const auto* nvfp4 = std::get_if<NvFp4>(&recipe);
  if (nvfp4 == nullptr || !nvfp4->with_rht)
    return quantize_values(values, rows, columns, recipe, {}, requests, options);
  for (const Request& one : requests) {
    const std::span<const Request> alone(&one, 1);
    if (one.direction == Direction::rowwise) {
      quantize_values(values, rows, columns, recipe, {}, alone, options);
    } else {
      const std::vector<float> turned = hadamard_columns(values, rows, columns, nvfp4->round_rht, options.threads);
      quantize_values(std::span<const float>(turned), rows, columns, recipe, {}, alone, options);
    }
  }
}

/// What the history needs to be told, and tells.
struct DelayedState {
  const Delayed& recipe;
  Pass pass;
  AmaxHistory& history;
};

template <typename Source>
void cast_delayed(std::span<const Source> values, std::size_t rows, std::size_t columns, const DelayedState& state,
                  std::vector<QuantizePlan> plans, std::span<const Request> requests, const QuantizeOptions& options) {
  // 1. The amax, by which the scale may still change.
  const TensorAmax amax = amax_of(values, nan_in_amax(state.recipe, state.history), options.threads);
  record_amax(state.recipe, state.pass, state.history, amax.value);
  // 2. The cast with the scale, whatever it is.
  for (QuantizePlan& plan : plans) {
    plan.tensor_amax = true;
    if (state.recipe.version.history == HistoryRule::torchao) plan.policy = find_profile("clamp_then_cast").policy;
  }
  const GivenScale given{plans[0].format, state.history.scale};
  quantize_planned(values, rows, columns, given, plans, amax, requests, options);
}

template <typename Source>
void quantize_delayed(std::span<const Source> values, std::size_t rows, std::size_t columns, const DelayedState& state,
                      std::span<const Request> requests, const QuantizeOptions& options) {
  const DefaultEnvironment environment;
  const GivenScale any{.format = format_of(state.recipe, state.pass)};
  check(state.recipe);
  check_values(values.size(), rows, columns);
  check_options(any, values.size(), options);
  const std::vector<QuantizePlan> plans = plans_of(any, rows, columns, requests);
  const std::optional<Format> type = narrower_type(options);
  if (!type) return cast_delayed(values, rows, columns, state, plans, requests, options);
  const std::vector<float> rounded = rounded_to(*type, values, options.threads);
  cast_delayed(std::span<const float>(rounded), rows, columns, state, plans, requests, options);
}

template <typename Source>
void quantize_one(std::span<const Source> x, std::size_t rows, std::size_t columns, const Recipe& recipe,
                  Direction direction, Quantized& out, const QuantizeOptions& options) {
  const std::array requests{Request{direction, out}};
  quantize_requests(x, rows, columns, recipe, requests, options);
}
std::array<Request, 2> both(Quantized& rowwise, Quantized& columnwise) {
  if (&rowwise == &columnwise) throw std::invalid_argument("rowwise and columnwise must not be the same Quantized");
  return {Request{Direction::rowwise, rowwise}, Request{Direction::columnwise, columnwise}};
}
template <typename Source>
void quantize_two(std::span<const Source> x, std::size_t rows, std::size_t columns, const Recipe& recipe,
                  Quantized& rowwise, Quantized& columnwise, const QuantizeOptions& options) {
  const std::array requests = both(rowwise, columnwise);
  quantize_requests(x, rows, columns, recipe, requests, options);
}

}  // namespace

Direction find_direction(std::string_view name) {
  struct Named {
    std::string_view name;
    Direction value;
  };
  constexpr std::array directions{Named{"rowwise", Direction::rowwise}, Named{"columnwise", Direction::columnwise}};
  return find_named(directions, "direction", name).value;
}

void quantize(std::span<const float> x, std::size_t rows, std::size_t columns, const Recipe& recipe,
              Direction direction, Quantized& out, const QuantizeOptions& options) {
  quantize_one(x, rows, columns, recipe, direction, out, options);
}
void quantize(std::span<const BFloat16> x, std::size_t rows, std::size_t columns, const Recipe& recipe,
              Direction direction, Quantized& out, const QuantizeOptions& options) {
  quantize_one(x, rows, columns, recipe, direction, out, options);
}
Quantized quantize(std::span<const float> x, std::size_t rows, std::size_t columns, const Recipe& recipe,
                   Direction direction, const QuantizeOptions& options) {
  Quantized out;
  quantize_one(x, rows, columns, recipe, direction, out, options);
  return out;
}
Quantized quantize(std::span<const BFloat16> x, std::size_t rows, std::size_t columns, const Recipe& recipe,
                   Direction direction, const QuantizeOptions& options) {
  Quantized out;
  quantize_one(x, rows, columns, recipe, direction, out, options);
  return out;
}
void quantize_both(std::span<const float> x, std::size_t rows, std::size_t columns, const Recipe& recipe,
                   Quantized& rowwise, Quantized& columnwise, const QuantizeOptions& options) {
  quantize_two(x, rows, columns, recipe, rowwise, columnwise, options);
}
void quantize_both(std::span<const BFloat16> x, std::size_t rows, std::size_t columns, const Recipe& recipe,
                   Quantized& rowwise, Quantized& columnwise, const QuantizeOptions& options) {
  quantize_two(x, rows, columns, recipe, rowwise, columnwise, options);
}

void quantize(std::span<const float> x, std::size_t rows, std::size_t columns, const Delayed& recipe, Pass pass,
              AmaxHistory& history, Direction direction, Quantized& out, const QuantizeOptions& options) {
  quantize_delayed(x, rows, columns, {recipe, pass, history}, std::array{Request{direction, out}}, options);
}
void quantize(std::span<const BFloat16> x, std::size_t rows, std::size_t columns, const Delayed& recipe, Pass pass,
              AmaxHistory& history, Direction direction, Quantized& out, const QuantizeOptions& options) {
  quantize_delayed(x, rows, columns, {recipe, pass, history}, std::array{Request{direction, out}}, options);
}
void quantize_both(std::span<const float> x, std::size_t rows, std::size_t columns, const Delayed& recipe, Pass pass,
                   AmaxHistory& history, Quantized& rowwise, Quantized& columnwise, const QuantizeOptions& options) {
  const std::array requests = both(rowwise, columnwise);
  quantize_delayed(x, rows, columns, {recipe, pass, history}, requests, options);
}
void quantize_both(std::span<const BFloat16> x, std::size_t rows, std::size_t columns, const Delayed& recipe, Pass pass,
                   AmaxHistory& history, Quantized& rowwise, Quantized& columnwise, const QuantizeOptions& options) {
  const std::array requests = both(rowwise, columnwise);
  quantize_delayed(x, rows, columns, {recipe, pass, history}, requests, options);
}

}  // namespace fp8lab
