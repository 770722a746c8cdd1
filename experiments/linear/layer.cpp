// SPDX-License-Identifier: Apache-2.0
#include "linear/layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::experiments {
namespace {

constexpr int log2_most_elements = 26;

/// A tensor of the layer, and its dimensions.
struct Role {
  const char* name;
  const char* shape;        // in words
  const char* dimensions;   // how many, in words
  std::size_t least, most;  // how many
  const char* rows;         // what they are called
  const char* columns;
  const char* columns_unit;  // what a column is
};
constexpr std::size_t any_number = std::numeric_limits<std::size_t>::max();
constexpr Role x_role{"x", "(tokens, in)", "two dimensions or more", 2, any_number, "tokens", "in", "columns"};
constexpr Role w_role{"w", "(out, in)", "two dimensions", 2, 2, "out", "in", "columns"};
constexpr Role dy_role{"dy", "(tokens, out)", "two dimensions or more", 2, any_number, "tokens", "out", "columns"};
constexpr Role bias_role{"bias", "(out,)", "one dimension", 1, 1, "", "out", "elements"};

void check_layer_size(const char* name, long long size) {
  constexpr long long most = 1LL << log2_most_elements;
  if (size < 1 || size > most) refuse(name, " must be from 1 to 2^", log2_most_elements, ", not ", size);
}

void check_factor(const char* name, double factor, bool may_be_zero) {
  const auto rounded = static_cast<float>(factor);
  if (rounded > 0 && std::isfinite(rounded)) return;
  if (may_be_zero && factor == 0) return;
  refuse(name, " must be positive and finite in float32", may_be_zero ? ", or 0," : ",", " not ", factor);
}

void check_layer_draws(const LayerDraws& draws) {
  const std::pair<const char*, long long> sizes[]{
      {"tokens", draws.tokens}, {"in_features", draws.in}, {"out_features", draws.out}};
  for (const auto& [name, size] : sizes) check_layer_size(name, size);
  for (const auto& [a, b] : {std::pair{0, 1}, {1, 2}, {0, 2}}) {
    if (sizes[a].second * sizes[b].second <= 1LL << log2_most_elements) continue;
    refuse(sizes[a].first, " * ", sizes[b].first, " must be at most 2^", log2_most_elements, ", not ", sizes[a].second,
           " * ", sizes[b].second);
  }
  check_factor("x_factor", draws.x_factor, false);
  check_factor("w_factor", draws.w_factor, false);
  check_factor("dy_factor", draws.dy_factor, false);
  check_factor("bias_factor", draws.bias_factor, true);
}

/// Draws of which all rows are multiplied by the factor.
Draws multiplied(Draws draws, double factor) {
  if (factor != 1) draws.outlier_rows = {draws.rows, factor};
  return draws;
}

bool fits(const Role& role, const SourceTensor& facts) {
  const std::size_t dimensions = facts.shape.size();
  // (1024, 1, 512, 1) is a matrix, too.
  const auto longer = static_cast<std::size_t>(std::ranges::count_if(facts.shape, [](auto n) { return n != 1; }));
  return dimensions >= role.least && (dimensions <= role.most || (longer == role.most && role.most > 1));
}

void check_layer_tensor(const Role& role, const SourceTensor& facts, const std::string& called) {
  if (fits(role, facts)) return;
  refuse(called, "must have ", role.dimensions, ", ", role.shape, ", not shape ", shape_text(facts.shape));
}

std::optional<TensorStream> open_stream(const Role& role, const std::optional<TensorSource>& source, int threads) {
  if (!source) return {};
  const StreamOptions options{.log2_most_elements = log2_most_elements,
                              .loads = Loads::quantizable,
                              .threads = threads,
                              .splits_experts = role.most == 2,
                              .unfit = [&](const SourceTensor& facts) {
                                if (fits(role, facts)) return std::string();
                                return fmt::format("must have {}, {}, not shape {}", role.dimensions, role.shape,
                                                   shape_text(facts.shape));
                              }};
  try {
    TensorStream stream(*source, options);
    if (std::holds_alternative<Draws>(*source)) return stream;
    for (std::size_t i = 0; i < stream.count(); ++i) check_layer_tensor(role, stream.facts(i), stream.called(i));
    return stream;
  } catch (const std::invalid_argument& error) {
    const bool is_held = std::holds_alternative<HeldTensors>(*source);  // whose messages begin with the name
    refuse(is_held ? "" : std::string(role.name) + ": ", error.what());
  }
}

/// A dimension of a tensor in a step, in words.
struct Dimension {
  const Role* role;
  bool is_rows;
  const SourceTensor* facts;

  [[nodiscard]] std::size_t size() const { return is_rows ? facts->rows : facts->columns; }
  [[nodiscard]] std::string words() const {
    return fmt::format("{} has {} {} ({})", role->name, size(), is_rows ? "rows" : role->columns_unit,
                       is_rows ? role->rows : role->columns);
  }
};

void check_equal(const std::optional<Dimension>& one, const std::optional<Dimension>& other, std::size_t step,
                 std::size_t steps) {
  if (!one || !other || one->size() == other->size()) return;
  const std::string where = steps > 1 ? fmt::format("step {}: ", step) : "";
  refuse(where, one->words(), " and ", other->words(), "; they must be as many");
}

std::size_t index_of(const TensorStream& stream, std::size_t step) { return stream.count() == 1 ? 0 : step; }

std::optional<Dimension> dimension(const Role& role, bool is_rows, const std::optional<TensorStream>& stream,
                                   std::size_t step) {
  if (!stream) return {};
  return Dimension{&role, is_rows, &stream->facts(index_of(*stream, step))};
}

}  // namespace

Layer::Layer(const LayerSource& source, int threads) {
  std::visit([&](const auto& kind) { open(kind, threads); }, source);
  for (std::size_t step = 0; step < steps_; ++step) check_step(step);
}

void Layer::open(const LayerDraws& draws, int threads) {
  check_layer_draws(draws);
  const Draws changing{.distribution = draws.distribution, .steps = draws.steps, .kind = draws.kind};
  const auto drawn = [&](Draws like, std::uint64_t offset, long long rows, long long columns, double factor) {
    like.seed = draws.seed + offset;
    like.rows = rows;
    like.columns = columns;
    return std::optional<TensorSource>(multiplied(like, factor));
  };
  steps_ = static_cast<std::size_t>(draws.steps);
  x_stream_ = open_stream(x_role, drawn(changing, 0, draws.tokens, draws.in, draws.x_factor), threads);
  w_stream_ = open_stream(w_role, drawn({}, 1, draws.out, draws.in, draws.w_factor), threads);
  dy_stream_ = open_stream(dy_role, drawn(changing, 2, draws.tokens, draws.out, draws.dy_factor), threads);
  if (draws.bias_factor != 0) {
    bias_stream_ = open_stream(bias_role, drawn({}, 3, 1, draws.out, draws.bias_factor), threads);
  }
  description_ = fmt::format(
      "{} tokens, {} to {} features, seed {}; x {} times {:g}, w normal times {:g}, dy {} times {:g}, bias normal "
      "times "
      "{:g}",
      draws.tokens, draws.in, draws.out, draws.seed, draws.distribution.name, draws.x_factor, draws.w_factor,
      draws.distribution.name, draws.dy_factor, draws.bias_factor);
  if (draws.steps > 1) {
    description_ += fmt::format("; {} steps, {}: {}", draws.steps, name_of(draws.kind), entry_of(draws.kind).words);
  }
}

void Layer::open(const LayerTensors& tensors, int threads) {
  x_stream_ = open_stream(x_role, tensors.x, threads);
  w_stream_ = open_stream(w_role, tensors.w, threads);
  dy_stream_ = open_stream(dy_role, tensors.dy, threads);
  bias_stream_ = open_stream(bias_role, tensors.bias, threads);
  const std::pair<const char*, const std::optional<TensorStream>*> all[]{
      {"x", &x_stream_}, {"w", &w_stream_}, {"dy", &dy_stream_}, {"bias", &bias_stream_}};
  const char* longest = "";
  for (const auto& [name, stream] : all) {
    if (!*stream) continue;
    description_ += fmt::format("{}{}: {}", description_.empty() ? "" : "; ", name, (*stream)->description());
    if ((*stream)->count() <= steps_) continue;
    steps_ = (*stream)->count();
    longest = name;
  }
  for (const auto& [name, stream] : all) {
    if (!*stream || (*stream)->count() == 1 || (*stream)->count() == steps_) continue;
    refuse(name, " has ", (*stream)->count(), " tensors and ", longest, " has ", steps_,
           "; each needs one for every step, or one for all");
  }
}

void Layer::check_step(std::size_t step) const {
  const auto x_tokens = dimension(x_role, true, x_stream_, step);
  const auto x_in = dimension(x_role, false, x_stream_, step);
  const auto w_out = dimension(w_role, true, w_stream_, step);
  const auto w_in = dimension(w_role, false, w_stream_, step);
  const auto dy_tokens = dimension(dy_role, true, dy_stream_, step);
  const auto dy_out = dimension(dy_role, false, dy_stream_, step);
  check_equal(x_in, w_in, step, steps_);
  check_equal(dy_tokens, x_tokens, step, steps_);
  check_equal(dy_out, w_out, step, steps_);
  check_equal(dimension(bias_role, false, bias_stream_, step), w_out, step, steps_);
}

const std::optional<TensorStream>& Layer::stream_of(LinearTensor tensor) const {
  switch (tensor) {
    case LinearTensor::x: break;
    case LinearTensor::w: return w_stream_;
    case LinearTensor::dy: return dy_stream_;
  }
  return x_stream_;
}

bool Layer::has(LinearPass pass) const {
  const LinearFactors factors = factors_of(pass);
  return has(factors.a.tensor) && has(factors.b.tensor);
}

LinearShape Layer::shape(std::size_t step) const {
  const auto size = [&](const std::optional<Dimension>& one, const std::optional<Dimension>& other) {
    if (one) return one->size();
    return other ? other->size() : 0;
  };
  return {.tokens = size(dimension(x_role, true, x_stream_, step), dimension(dy_role, true, dy_stream_, step)),
          .in = size(dimension(x_role, false, x_stream_, step), dimension(w_role, false, w_stream_, step)),
          .out = size(dimension(w_role, true, w_stream_, step), dimension(dy_role, false, dy_stream_, step))};
}

std::vector<LeftOutTensor> Layer::left_out() const {
  std::vector<LeftOutTensor> all;
  for (const auto* stream : {&x_stream_, &w_stream_, &dy_stream_, &bias_stream_}) {
    if (*stream) all.insert(all.end(), (*stream)->left_out().begin(), (*stream)->left_out().end());
  }
  return all;
}

std::vector<LayerTensorFacts> Layer::facts() const {
  std::vector<LayerTensorFacts> all;
  const auto add = [&](const char* name, const std::optional<TensorStream>& stream) {
    if (!stream) return;
    for (const SourceTensor& facts : stream->all_facts()) all.push_back({name, facts});
  };
  add("x", x_stream_);
  add("w", w_stream_);
  add("dy", dy_stream_);
  add("bias", bias_stream_);
  return all;
}

void Layer::load(std::size_t step) {
  const auto read = [&](const std::optional<TensorStream>& stream, Tensor& into) {
    if (!stream || (step > 0 && stream->count() == 1)) return;
    stream->load(index_of(*stream, step), into);
  };
  read(x_stream_, x_);
  read(w_stream_, w_);
  read(dy_stream_, dy_);
  read(bias_stream_, bias_tensor_);
  if (!bias_tensor_.has_values()) return;
  bias_.resize(bias_tensor_.size());
  bias_tensor_.widen(0, bias_);
}

const MatrixView& Layer::view(LinearTensor tensor) const {
  switch (tensor) {
    case LinearTensor::x: break;
    case LinearTensor::w: return w_.view();
    case LinearTensor::dy: return dy_.view();
  }
  return x_.view();
}

}  // namespace fp8lab::experiments
