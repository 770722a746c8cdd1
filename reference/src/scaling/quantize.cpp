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

#include "formats/simd/tiles.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/hadamard.hpp"
#include "scaling/cells.hpp"
#include "scaling/given_scales.hpp"
#include "scaling/quantize_plan.hpp"
#include "scaling/quantizer.hpp"

namespace fp8lab {
namespace {

template <typename Source>
constexpr Format format_of_elements = binary32;
template <>
constexpr Format format_of_elements<Half> = binary16;
template <>
constexpr Format format_of_elements<BFloat16> = bfloat16;

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
  check_given(recipe, options);
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
  out.amax = plan.tensor_amax && !recipe.tensor_scale_for_each_row ? facts.tensor.amax : 0;
  out.row_amaxes.clear();
  out.tensor_scale = facts.tensor.tensor_scale;
  out.tensor_scale_inv = facts.tensor.tensor_scale_inv;
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
  // Values that are read once, in the order of memory, need no prefetch: the processor does it.
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
void quantize_planned(const Matrix<Source>& matrix, const Recipe& recipe, std::span<const QuantizePlan> plans,
                      std::optional<TensorAmax> amax, std::span<const Request> requests, const QuantizeOptions& options,
                      std::span<const float> given_scales = {}) {
  const auto [values, rows, columns] = matrix;
  const Matrix<Source> x = is_flat(plans, columns) ? Matrix<Source>{values, 1, values.size()} : matrix;
  const Cells cells(plans, x.rows, x.columns, sizeof(Source));
  std::vector<Tiling<Source>> tilings;
  for (const QuantizePlan& plan : plans) tilings.push_back({x, plan});
  // 1. The tensor's amax, on which scales may depend, and those of tiles, where the caller has them.
  const GivenScales& own = options.given;
  std::vector<TileAmaxes> amaxes(requests.size());
  const bool takes_amaxes = !own.amaxes.empty() && !plans[0].uniform;
  if (takes_amaxes) take_amaxes(cells, std::span<const Tiling<Source>>(tilings), own.amaxes, amaxes);
  if (own.tensor_amax) amax = TensorAmax{*own.tensor_amax, false};
  if (!own.amaxes.empty() && plans[0].uniform) amax = TensorAmax{own.amaxes.front(), false};
  if (plans[0].tensor_amax && !amax) {
    amax = plans[0].uniform || takes_amaxes
               ? amax_of(values, plans[0].nan, options.threads)
               : amaxes_of_tiles(cells, std::span<const Tiling<Source>>(tilings), amaxes, options.threads);
  }
  const Facts facts{{.amax = amax ? amax->value : 0,
                     .input_type = options.input_type.value_or(format_of_elements<Source>),
                     .tensor_scale = own.tensor_scale,
                     .tensor_scale_inv = own.tensor_scale_inv},
                    amax && amax->finite && !takes_amaxes,
                    given_scales};
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

/// Each row (columnwise: column) as a tensor of its own, with its own tensor's scale.
template <typename Source>
void quantize_each_row(const Matrix<Source>& x, const Recipe& recipe, const QuantizePlan& plan, const Request& request,
                       const QuantizeOptions& options) {
  const bool rowwise = request.direction == Direction::rowwise;
  const std::size_t lines = rowwise ? x.rows : x.columns;
  const std::size_t length = rowwise ? x.columns : x.rows;
  const std::span<const float> amaxes = options.given.row_amaxes;
  if (!amaxes.empty() && amaxes.size() != lines) {
    refuse("row_amaxes must have ", lines, " elements, one for every row along K, not ", amaxes.size());
  }
  prepare(request.out, recipe, request.direction, x.rows, x.columns, plan, Facts{});
  request.out.row_amaxes.resize(lines);
  Recipe own = recipe;
  own.tensor_scale_for_each_row = false;
  parallel_for(lines, options.threads, [&](std::size_t first, std::size_t last) {
    QuantizeOptions alone = options;
    alone.threads = 1;
    const std::size_t at_once = rowwise ? 1 : 16;  // columns share cache lines
    std::vector<Source> some(at_once * length);
    Quantized q;
    for (std::size_t i = first; i < last; ++i) {
      checkpoint();
      const std::size_t within = (i - first) % at_once;
      for (std::size_t k = 0; k < length && within == 0; ++k) {
        for (std::size_t j = 0; j < std::min(at_once, last - i); ++j)
          some[j * length + k] = x.values[rowwise ? i * length + k : k * lines + i + j];
      }
      const auto line = std::span<const Source>(some).subspan(within * length, length);
      const std::array one{Request{Direction::rowwise, q}};
      const auto plans = plans_of(own, 1, length, one);
      if (!amaxes.empty()) alone.given.tensor_amax = amaxes[i];
      quantize_planned(Matrix<Source>{line, 1, length}, own, plans, {}, one, alone);
      std::ranges::copy(q.codes, &request.out.codes[i * q.codes.size()]);
      std::ranges::copy(q.scale_codes, &request.out.scale_codes[i * q.scale_codes.size()]);
      request.out.row_amaxes[i] = q.amax;
    }
  });
}

template <typename Source>
void quantize_values(const Matrix<Source>& x, const Recipe& given, std::optional<TensorAmax> amax,
                     std::span<const Request> requests, const QuantizeOptions& options) {
  const auto [recipe, scales] = given_tiles(given, options.given);
  const std::vector<QuantizePlan> plans = plans_of(recipe, x.rows, x.columns, requests);
  for (const QuantizePlan& plan : plans) check_given_sizes(options.given, plan, x.rows, x.columns);
  if (!recipe.tensor_scale_for_each_row) {
    return quantize_planned(x, recipe, plans, amax, requests, options, scales);
  }
  if (!options.given.amaxes.empty()) refuse("amaxes are not for a tensor_scale_for_each_row");
  if (!options.given.row_amaxes.empty() && requests.size() > 1) refuse("row_amaxes are those of one direction");
  for (std::size_t i = 0; i < requests.size(); ++i) quantize_each_row(x, recipe, plans[i], requests[i], options);
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

/// The type that the values are rounded to first, if to any.
std::optional<Format> narrower_type(const QuantizeOptions& options) {
  if (!options.input_type || *options.input_type == binary32) return {};
  if (*options.input_type == binary16 || *options.input_type == bfloat16) return options.input_type;
  throw std::invalid_argument("input_type must be float32, float16 or bfloat16, not " +
                              format_name(*options.input_type));
}

/// Throws where an array that is read overlaps one that is written: buffers that earlier calls filled serve again.
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
  check("amaxes", options.given.amaxes);
  check("scales", options.given.scales);
  check("scales_inv", options.given.scales_inv);
  check("row_amaxes", options.given.row_amaxes);
  if (options.random) std::visit([&](auto words) { check("random", words); }, options.random->words);
}

/// The values with rows and columns of zeros after them.
template <typename Source>
Buffer<Source> filled_up(const Matrix<Source>& x, std::size_t rows, std::size_t columns) {
  Buffer<Source> padded(rows * columns);
  std::ranges::fill(padded, Source{});
  for (std::size_t r = 0; r < x.rows; ++r) {
    std::ranges::copy(x.values.subspan(r * x.columns, x.columns),
                      padded.begin() + static_cast<std::ptrdiff_t>(r * columns));
  }
  return padded;
}

template <typename Source>
void quantize_requests(const Matrix<Source>& x, const Recipe& recipe, std::span<const Request> requests,
                       const QuantizeOptions& options);

/// Each request on a tensor that is filled up with zeros to its whole tiles.
template <typename Source>
void quantize_filled_up(const Matrix<Source>& x, const Recipe& recipe, std::span<const Request> requests,
                        const QuantizeOptions& options) {
  for (const Request& one : requests) {
    const bool rowwise = one.direction == Direction::rowwise;
    const std::size_t height = rowwise ? recipe.tile_across : recipe.tile_along;
    const std::size_t width = rowwise ? recipe.tile_along : recipe.tile_across;
    const std::size_t rows = blocks_of(x.rows, height) * height;
    const std::size_t columns = blocks_of(x.columns, width) * width;
    const Buffer<Source> padded = filled_up(x, rows, columns);
    quantize_requests(Matrix<Source>{padded, rows, columns}, recipe, {&one, 1}, options);
  }
}

/// Whether tiles reach beyond the tensor for a request.
template <typename Source>
bool has_short_tiles(const Matrix<Source>& x, const Recipe& recipe, std::span<const Request> requests) {
  return std::ranges::any_of(requests, [&](const Request& one) {
    const bool rowwise = one.direction == Direction::rowwise;
    return (rowwise ? x.columns : x.rows) % recipe.tile_along != 0 ||
           (rowwise ? x.rows : x.columns) % recipe.tile_across != 0;
  });
}

template <typename Source>
void quantize_requests(const Matrix<Source>& x, const Recipe& recipe, std::span<const Request> requests,
                       const QuantizeOptions& options) {
  check_lie(x.values, requests, options);
  check_recipe(recipe);
  if (recipe.pads_tiles && has_short_tiles(x, recipe, requests)) {
    return quantize_filled_up(x, recipe, requests, options);
  }
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

/// Delayed scaling of one tensor: its recipe, its pass, and the history that the call reads and updates.
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
  if (!options.given.scales.empty() || !options.given.scales_inv.empty()) {
    refuse("scales are not for delayed scaling, whose history gives them");
  }
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

std::span<const Named<Direction>> named_values(Direction /*any*/) {
  static constexpr std::array directions{Named{"rowwise", Direction::rowwise},
                                         Named{"columnwise", Direction::columnwise}};
  static_assert(is_in_order(directions));
  return directions;
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
