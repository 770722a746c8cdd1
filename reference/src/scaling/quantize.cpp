// SPDX-License-Identifier: Apache-2.0
// A tensor is quantized cell by cell: pieces that stay in a core's caches, from which the amaxes of tiles, their scales
// and then the codes are made, for each direction asked for.
#include "fp8lab/reference/scaling/quantize.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "formats/simd/memory.hpp"
#include "formats/simd/tiles.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "scaling/cells.hpp"
#include "scaling/hadamard.hpp"
#include "scaling/quantize_plan.hpp"
#include "simd/transpose.hpp"

namespace fp8lab {
namespace {

template <typename Source>
constexpr Format format_of_elements = binary32;
template <>
constexpr Format format_of_elements<Half> = binary16;
template <>
constexpr Format format_of_elements<BFloat16> = bfloat16;

/// What is known of a tensor before it is quantized.
struct Facts {
  TensorFacts tensor;
  bool finite;  // known that all values are
};

/// What a thread needs room for, for one direction.
struct Scratch {
  bool finite = false, in_range = false;  // all of a cell; the latter as the hint
  std::vector<std::uint32_t> own_amaxes, random;
  std::span<const std::uint32_t> amaxes;  // of the cell's tiles
  std::vector<float> factors, scale_inv, scaled;
  std::vector<std::uint8_t> scale_codes, codes, column;
};

/// One direction of a tensor.
template <typename Source>
class Quantizer {
 public:
  Quantizer(const Tiling<Source>& tiling, const Recipe& recipe, const Facts& facts, const TileAmaxes& amaxes,
            const RandomSource* random, Quantized& out)
      : tiling_(tiling),
        x_(tiling.x),
        plan_(tiling.plan),
        recipe_(recipe),
        facts_(facts),
        amaxes_(amaxes),
        random_(random),
        encoder_(plan_.format, plan_.policy),
        overflow_from_(overflow_from(plan_.format)),
        out_(out),
        stream_(out.codes.size() >= streaming_bytes) {
    if (plan_.uniform) uniform_ = tile_scale(recipe, facts.tensor.amax, facts.tensor);
  }

  /// Whether a cell's values are read for its amaxes before they are for its codes.
  [[nodiscard]] bool reads_twice() const { return !plan_.uniform && !amaxes_.known(); }

  // What is done with a cell, in this order. Precondition: it holds whole tiles, but at the tensor's ends.
  void begin(const Cell& cell, Scratch& scratch) const {
    scratch.codes.resize(plan_.transposed ? cell.height() * apart_stride(cell) : 0);
    if (plan_.uniform) {
      scratch.factors.assign(1, uniform_.factor);
      scratch.in_range = facts_.finite && facts_.tensor.amax * uniform_.factor < overflow_from_;
      return;
    }
    const std::size_t tiles = tiling_.tiles(cell);
    scratch.factors.resize(tiles);
    scratch.scale_inv.resize(tiles);
    scratch.scale_codes.resize(tiles);
    if (amaxes_.known()) {
      scratch.finite = facts_.finite;
      scratch.amaxes = amaxes_.of(cell, tiles);
      return;
    }
    scratch.finite = true;
    scratch.own_amaxes.assign(tiles, 0);
    scratch.amaxes = scratch.own_amaxes;
  }

  /// Adds the amax of each tile in rows [first, last) of x. Where tiles have several rows, these lie in one row of
  /// tiles.
  void add_amaxes(const Cell& cell, std::size_t first, std::size_t last, Scratch& scratch) const {
    if (!reads_twice()) return;
    scratch.finite &= tiling_.add_amaxes(cell, first, last, scratch.own_amaxes).finite;
  }

  void make_scales(const Cell& cell, Scratch& scratch) const {
    if (plan_.uniform) return;
    const std::uint32_t most =
        tile_scales(recipe_, scratch.amaxes, facts_.tensor, {scratch.factors, scratch.scale_inv, scratch.scale_codes});
    scratch.in_range = scratch.finite && most < std::bit_cast<std::uint32_t>(overflow_from_);
    if (plan_.scale_codes) return store_scales<std::uint8_t>(cell, scratch.scale_codes, out_.scale_codes);
    store_scales<float>(cell, scratch.scale_inv, out_.scale_inv);
  }

  /// The same rows; `fetch` as the hint, `out_ahead` in codes.
  void encode(const Cell& cell, std::size_t first, std::size_t last, const EncodeHints& fetch, Scratch& scratch) const {
    const std::size_t factor_stride = tiling_.tile_stride(cell);
    const float* factors = &scratch.factors[tiling_.first_tile(cell, first)];
    const bool pairs = plan_.format.bits() == 4 && !plan_.transposed;
    const std::size_t bytes = pairs ? 2 : 1;  // codes in them
    std::uint8_t* out = plan_.transposed ? &scratch.codes[(first - cell.row) * apart_stride(cell)]
                                         : &out_.codes[tiling_.place(cell, first) / bytes];
    const std::size_t out_stride = plan_.transposed ? apart_stride(cell) : x_.columns / bytes;
    if (plan_.policy.rounding == Rounding::stochastic) {
      for (std::size_t r = first; r < last; ++r) {
        const std::size_t k = r - first;
        encode_stochastic(cell, r, factors + k * factor_stride, pairs, scratch, out + k * out_stride);
      }
      return;
    }
    encoder_(tiling_.rows_of(cell, first, last), plan_.operation, factors, factor_stride, pairs, out, out_stride,
             {.in_range = scratch.in_range,
              .stream = stream_ && !plan_.transposed,
              .ahead = fetch.ahead,
              .out_ahead = plan_.transposed || stream_ ? 0 : fetch.out_ahead / bytes});
  }

  void finish(const Cell& cell, Scratch& scratch) const {
    if (plan_.transposed) store_transposed(cell, scratch);
  }

  /// The tensor's scale, where it has one.
  void store_uniform() const {
    if (plan_.uniform) out_.scale_inv.assign(1, uniform_.scale_inv);
  }

 private:
  /// The distance between rows of codes that are to be transposed. It is no power of two, so that a cache has room for
  /// many rows.
  [[nodiscard]] static std::size_t apart_stride(const Cell& cell) { return cell.width() + 64; }

  template <typename Value>
  void store_scales(const Cell& cell, const std::vector<Value>& of_tiles, std::vector<Value>& out) const {
    const std::size_t height = plan_.scale_height(out_.direction);
    const std::size_t width = plan_.scale_width(out_.direction);
    const std::size_t first = cell.column / width;
    const std::size_t count = blocks_of(cell.width(), width);
    const std::size_t copies = plan_.tile_columns / width;  // of a tile's scale
    const std::size_t step = plan_.transposed ? out_.scale_columns : 1;
    for (std::size_t u = cell.row / height; u * height < cell.row_end; ++u) {
      const std::size_t row = (u * height - cell.row) / plan_.tile_rows;
      const Value* from = &of_tiles[row * tiling_.tiles_across(cell)];
      Value* to = &out[plan_.transposed ? first * out_.scale_columns + u : u * out_.scale_columns + first];
      if (copies == 1 && step == 1) {
        std::copy_n(from, count, to);
      } else if (copies == 1) {
        for (std::size_t v = 0; v < count; ++v) to[v * step] = from[v];
      } else {
        for (std::size_t v = 0; v < count; ++v) to[v * step] = from[v / copies];
      }
    }
  }

  void encode_stochastic(const Cell& cell, std::size_t r, const float* factors, bool pairs, Scratch& scratch,
                         std::uint8_t* out) const {
    const TileRows<Source> row = tiling_.rows_of(cell, r, r + 1);
    scratch.scaled.resize(row.width);
    scratch.random.resize(row.width);
    scratch.column.resize(row.width);
    scale_tiles(row.row(0), row.tile, plan_.operation, {factors, row.across()}, scratch.scaled);
    for (std::size_t i = 0; i < row.width; ++i) {
      const std::size_t column = cell.column + i;
      const std::size_t code = plan_.transposed ? column * x_.rows + r : r * x_.columns + column;
      scratch.random[i] = random_bits_of(plan_.format, *random_, code).value;
    }
    const RandomSource words{std::span<const std::uint32_t>(scratch.random), random_->count};
    const auto codes = pairs ? std::span(scratch.column) : std::span(out, row.width);
    fp8lab::encode(plan_.format, plan_.policy, std::span<const float>(scratch.scaled), words, codes);
    if (pairs) pack_pairs(codes, {out, row.width / 2});
  }

  void store_transposed(const Cell& cell, Scratch& scratch) const {
    const std::size_t width = cell.width();
    const std::size_t height = cell.height();
    const std::uint8_t* codes = scratch.codes.data();
    const std::size_t to = cell.column * x_.rows + cell.row;
    if (plan_.format.bits() != 4) {
      return transpose_bytes(codes, height, width, apart_stride(cell), &out_.codes[to], x_.rows, stream_);
    }
    scratch.column.resize(width * height);
    transpose_bytes(codes, height, width, apart_stride(cell), scratch.column.data(), height);
    for (std::size_t i = 0; i < width; ++i) {
      const auto column = std::span<const std::uint8_t>(scratch.column).subspan(i * height, height);
      pack_pairs(column, std::span(out_.codes).subspan((to + i * x_.rows) / 2, height / 2));
    }
  }

  Tiling<Source> tiling_;
  const Matrix<Source>& x_;
  const QuantizePlan& plan_;
  const Recipe& recipe_;
  const Facts& facts_;
  const TileAmaxes& amaxes_;
  const RandomSource* random_;
  TileEncoder encoder_;
  float overflow_from_;
  Quantized& out_;
  bool stream_;
  TileScale uniform_{};
};

void check_not_empty(const MatrixView& x) {
  if (x.size() != 0) return;
  refuse("x must not be empty: it is ", x.rows(), " x ", x.columns());
}

/// Calls run(matrix) with a Matrix of x's type: where all templates begin.
template <typename Run>
void with_matrix(const MatrixView& x, const Run& run) {
  x.visit([&]<typename Source>(std::span<const Source> values) {
    if constexpr (std::is_same_v<Source, double>) {
      throw std::invalid_argument("x must be float32, float16 or bfloat16, not float64: no kernel reads that");
    } else {
      run(Matrix<Source>{values, x.rows(), x.columns()});
    }
  });
}

void check_options(const Recipe& recipe, std::size_t codes, const QuantizeOptions& options) {
  const bool stochastic = is_stochastic(recipe);
  if (stochastic && !options.random) throw std::invalid_argument("stochastic_rounding needs random bits");
  if (!stochastic && options.random) throw std::invalid_argument("random bits are for stochastic_rounding only");
  if (options.random) check_random(recipe.format, *options.random, codes);
  if (options.amax_before_rounding && (recipe.tile_across != 0 || is_given(recipe) || !options.input_type)) {
    throw std::invalid_argument("amax_before_rounding is for one scale of the tensor's amax, and an input_type");
  }
  check_threads(options.threads);
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
/// The amax of pieces 0 to below `count`; `of(i)` gives that of piece i.
template <typename Of>
TensorAmax amax_of_pieces(std::size_t count, int threads, const Of& of) {
  std::vector<AmaxSeen> seen(count);
  parallel_for(count, threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      seen[i] = of(i);
    }
  });
  const auto& largest = *std::ranges::max_element(seen, {}, &AmaxSeen::largest);
  return {std::bit_cast<float>(largest.largest), std::ranges::all_of(seen, &AmaxSeen::finite)};
}
template <typename Source>
TensorAmax amax_of(std::span<const Source> values, NanInAmax nan, int threads) {
  constexpr std::size_t piece = std::size_t{1} << 16;
  return amax_of_pieces(blocks_of(values.size(), piece), threads, [&](std::size_t i) {
    const auto part = values.subspan(i * piece, std::min(piece, values.size() - i * piece));
    std::uint32_t amax = 0;
    return add_amax({part.data(), 1, part.size(), part.size(), part.size()}, nan, &amax, 0);
  });
}

/// One direction that is asked for.
struct Request {
  Direction direction;
  Quantized& out;
};

/// The amaxes of all tiles, and of the tensor, from one pass for all directions.
template <typename Source>
TensorAmax amaxes_of_tiles(const Cells& cells, std::span<const Tiling<Source>> tilings, std::span<TileAmaxes> amaxes,
                           int threads) {
  for (std::size_t k = 0; k < tilings.size(); ++k) {
    amaxes[k].of_cell = tilings[k].tiles(cells.at(0));  // no cell has more
    amaxes[k].values = std::make_unique_for_overwrite<std::uint32_t[]>(amaxes[k].of_cell * cells.count());
  }
  return amax_of_pieces(cells.count(), threads, [&](std::size_t i) {
    const Cell cell = cells.at(i);
    const auto of = [&](std::size_t k) { return amaxes[k].of(cell, tilings[k].tiles(cell)); };
    AmaxSeen all{0, true};
    for (std::size_t k = 0; k < tilings.size(); ++k) std::ranges::fill(of(k), 0);
    for_some_rows(cell, [&](std::size_t r, std::size_t end) {
      for (std::size_t k = 0; k < tilings.size(); ++k) {
        const AmaxSeen seen = tilings[k].add_amaxes(cell, r, end, of(k));
        all = {std::max(all.largest, seen.largest), all.finite && seen.finite};
      }
    });
    return all;
  });
}

template <typename Source>
void run_cells(const Cells& cells, std::span<const Quantizer<Source>> quantizers, std::size_t columns, int threads) {
  // What is read once, in the order of memory, is fetched without.
  const bool fetches = cells.at(0).height() > 1 || std::ranges::any_of(quantizers, &Quantizer<Source>::reads_twice);
  parallel_for(cells.count(), threads, [&](std::size_t first, std::size_t last) {
    std::vector<Scratch> scratch(quantizers.size());
    const auto each = [&](const auto& f) {
      for (std::size_t k = 0; k < quantizers.size(); ++k) f(quantizers[k], scratch[k]);
    };
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      const Cell cell = cells.at(i);
      const Cell next = cells.at(std::min(i + 1, last - 1));
      const std::size_t start = cell.row * columns + cell.column;
      const std::size_t ahead = fetches ? next.row * columns + next.column - start : 0;
      const std::size_t out_ahead = cell.height() > 1 ? ahead : 0;  // rows that follow are fetched without
      each([&](const auto& one, Scratch& own) { one.begin(cell, own); });
      for_some_rows(cell, [&](std::size_t r, std::size_t end) {
        each([&](const auto& one, Scratch& own) { one.add_amaxes(cell, r, end, own); });
      });
      each([&](const auto& one, Scratch& own) { one.make_scales(cell, own); });
      for_some_rows(cell, [&](std::size_t r, std::size_t end) {
        each([&](const auto& one, Scratch& own) {
          one.encode(cell, r, end,
                     {.ahead = &own == scratch.data() ? ahead * sizeof(Source) : 0, .out_ahead = out_ahead}, own);
        });
      });
      each([&](const auto& one, Scratch& own) { one.finish(cell, own); });
    }
    TileEncoder::flush();
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
void quantize_planned(const Matrix<Source>& given, const Recipe& recipe, std::span<const QuantizePlan> plans,
                      std::optional<TensorAmax> amax, std::span<const Request> requests,
                      const QuantizeOptions& options) {
  const auto [values, rows, columns] = given;
  const Matrix<Source> x = is_flat(plans, columns) ? Matrix<Source>{values, 1, values.size()} : given;
  const Cells cells(plans, x.rows, x.columns, sizeof(Source));
  std::vector<Tiling<Source>> tilings;
  for (const QuantizePlan& plan : plans) tilings.push_back({x, plan});
  // 1. The tensor's amax, on which scales may depend.
  std::vector<TileAmaxes> amaxes(requests.size());
  if (plans[0].tensor_amax && !amax) {
    amax = plans[0].uniform ? amax_of(values, plans[0].nan, options.threads)
                            : amaxes_of_tiles(cells, std::span<const Tiling<Source>>(tilings), amaxes, options.threads);
  }
  const Facts facts{
      {.amax = amax ? amax->value : 0, .input_type = options.input_type.value_or(format_of_elements<Source>)},
      amax && amax->finite};
  // 2. Scales and codes.
  std::vector<Quantizer<Source>> quantizers;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    prepare(requests[i].out, recipe, requests[i].direction, rows, columns, plans[i], facts);
    const RandomSource* random = options.random ? &*options.random : nullptr;
    quantizers.emplace_back(tilings[i], recipe, facts, amaxes[i], random, requests[i].out);
    quantizers.back().store_uniform();
  }
  run_cells(cells, std::span<const Quantizer<Source>>(quantizers), x.columns, options.threads);
}

template <typename Source>
void quantize_values(const Matrix<Source>& x, const Recipe& recipe, std::optional<TensorAmax> amax,
                     std::span<const Request> requests, const QuantizeOptions& options) {
  quantize_planned(x, recipe, plans_of(recipe, x.rows, x.columns, requests), amax, requests, options);
}

/// fl(x) in another type, as float32.
template <typename Source>
Buffer<float> rounded_to(const Format& type, std::span<const Source> values, int threads) {
  Buffer<std::uint16_t> words(values.size());
  encode(type, ieee_policy, values, std::span(words), threads);
  Buffer<float> result(values.size());
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

/// What is read lies apart from what has served before and is written again.
template <typename Source>
void check_lie(std::span<const Source> values, std::span<const Request> requests, const QuantizeOptions& options) {
  const auto check = [&](std::string_view name, auto in) {
    for (const Request& one : requests) {
      check_apart(name, in, "out.codes", std::span(one.out.codes));
      check_apart(name, in, "out.scale_inv", std::span(one.out.scale_inv));
      check_apart(name, in, "out.scale_codes", std::span(one.out.scale_codes));
    }
  };
  check("x", values);
  if (options.random) std::visit([&](auto words) { check("random", words); }, options.random->words);
}

template <typename Source>
void quantize_requests(const Matrix<Source>& x, const Recipe& recipe, std::span<const Request> requests,
                       const QuantizeOptions& options) {
  check_lie(x.values, requests, options);
  static_cast<void>(plans_of(recipe, x.rows, x.columns, requests));
  // 1. What the values are rounded to first.
  if (const std::optional<Format> type = narrower_type(options)) {
    std::optional<TensorAmax> amax;
    if (options.amax_before_rounding) {
      const NanInAmax nan = quantize_plan(recipe, requests[0].direction, x.rows, x.columns).nan;
      amax = amax_of(x.values, nan, options.threads);
      amax->finite = false;  // what is finite may become infinite
    }
    const Buffer<float> rounded = rounded_to(*type, x.values, options.threads);
    return quantize_values(Matrix<float>{rounded, x.rows, x.columns}, recipe, amax, requests, options);
  }
  // 2. Columnwise copies may be turned, and have the amax of that; all others are of the values as they are.
  if (recipe.transform == Transform::none) return quantize_values(x, recipe, {}, requests, options);
  for (const Request& one : requests) {
    const std::span<const Request> alone(&one, 1);
    if (one.direction == Direction::rowwise) {
      quantize_values(x, recipe, {}, alone, options);
    } else {
      const MatrixView view(x.values, x.rows, x.columns);
      const bool rounds = recipe.transform == Transform::hadamard_columnwise_bfloat16;
      const Buffer<float> turned = hadamard_columns(view, rounds, options.threads);
      quantize_values(Matrix<float>{turned, x.rows, x.columns}, recipe, {}, alone, options);
    }
  }
}

void quantize_all(const MatrixView& x, const Recipe& recipe, std::span<const Request> requests,
                  const QuantizeOptions& options) {
  const DefaultEnvironment environment;
  check_not_empty(x);
  check_options(recipe, x.size(), options);
  with_matrix(x, [&](const auto& matrix) { quantize_requests(matrix, recipe, requests, options); });
}

/// What the history needs to be told, and tells.
struct DelayedState {
  const Delayed& recipe;
  Pass pass;
  AmaxHistory& history;
};

template <typename Source>
void cast_delayed(const Matrix<Source>& x, const DelayedState& state, std::vector<QuantizePlan> plans,
                  std::span<const Request> requests, const QuantizeOptions& options) {
  // 1. The amax, by which the scale may still change.
  const TensorAmax amax = amax_of(x.values, nan_in_amax(state.recipe, state.history), options.threads);
  AmaxHistory history = state.history;
  record_amax(state.recipe, state.pass, history, amax.value);
  // 2. The cast with the scale, whatever it is.
  for (QuantizePlan& plan : plans) plan.tensor_amax = true;
  const Recipe given = cast_recipe(state.recipe, state.pass, history.scale);
  quantize_planned(x, given, plans, amax, requests, options);
  state.history = std::move(history);  // not before all is done: the cast may be interrupted
}

void quantize_delayed(const MatrixView& x, const DelayedState& state, std::span<const Request> requests,
                      const QuantizeOptions& options) {
  const DefaultEnvironment environment;
  const Recipe any = cast_recipe(state.recipe, state.pass, 1);
  check(state.recipe);
  check_not_empty(x);
  check_options(any, x.size(), options);
  with_matrix(x, [&](const auto& matrix) {
    check_lie(matrix.values, requests, options);
    check_apart("x", matrix.values, "the history", std::span(state.history.amaxes));
    const std::vector<QuantizePlan> plans = plans_of(any, x.rows(), x.columns(), requests);
    const std::optional<Format> type = narrower_type(options);
    if (!type) return cast_delayed(matrix, state, plans, requests, options);
    const Buffer<float> rounded = rounded_to(*type, matrix.values, options.threads);
    cast_delayed(Matrix<float>{rounded, x.rows(), x.columns()}, state, plans, requests, options);
  });
}

std::array<Request, 2> both(Quantized& rowwise, Quantized& columnwise) {
  if (&rowwise == &columnwise) throw std::invalid_argument("rowwise and columnwise must not be the same Quantized");
  return {Request{Direction::rowwise, rowwise}, Request{Direction::columnwise, columnwise}};
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

void quantize(const MatrixView& x, const Recipe& recipe, Direction direction, Quantized& out,
              const QuantizeOptions& options) {
  quantize_all(x, recipe, std::array{Request{direction, out}}, options);
}
Quantized quantize(const MatrixView& x, const Recipe& recipe, Direction direction, const QuantizeOptions& options) {
  Quantized out;
  quantize(x, recipe, direction, out, options);
  return out;
}
void quantize_both(const MatrixView& x, const Recipe& recipe, Quantized& rowwise, Quantized& columnwise,
                   const QuantizeOptions& options) {
  quantize_all(x, recipe, both(rowwise, columnwise), options);
}

Recipe cast_recipe(const Delayed& recipe, Pass pass, float scale) {
  Recipe given = GivenScale{format_of(recipe, pass), scale};
  if (recipe.version.history == HistoryRule::torchao) given.cast = find_profile("clamp_then_cast").policy;
  return given;
}

void quantize(const MatrixView& x, const Delayed& recipe, Pass pass, AmaxHistory& history, Direction direction,
              Quantized& out, const QuantizeOptions& options) {
  quantize_delayed(x, {recipe, pass, history}, std::array{Request{direction, out}}, options);
}
void quantize_both(const MatrixView& x, const Delayed& recipe, Pass pass, AmaxHistory& history, Quantized& rowwise,
                   Quantized& columnwise, const QuantizeOptions& options) {
  quantize_delayed(x, {recipe, pass, history}, both(rowwise, columnwise), options);
}

}  // namespace fp8lab
