// SPDX-License-Identifier: Apache-2.0
#include "check/check.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "check/kept.hpp"
#include "check/plain_tensors.hpp"
#include "files/stored_tensors.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "kit/draws.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::size_t most_rows = std::size_t{1} << 24;

void check_arguments(const CheckArguments& arguments) {
  std::vector<std::string> names;
  for (const ChosenRecipe& one : arguments.recipes) {
    names.push_back(one.name);
    check_recipe(one.recipe);
    if (is_stochastic(one.recipe)) refuse(one.name, " needs random bits, which this experiment does not draw");
  }
  check_filled_list("recipes", names);
  if (arguments.min_sqnr && arguments.bits_per_weight) refuse("min_sqnr cannot be given with bits_per_weight");
  if (arguments.plan && !arguments.min_sqnr && !arguments.bits_per_weight) {
    refuse("plan needs min_sqnr or bits_per_weight, which say what may stay as it is");
  }
  if (arguments.activation_rows == 0) refuse("activation_rows must be 1 or more, not 0");
  if (arguments.min_sqnr && !std::isfinite(*arguments.min_sqnr)) {
    refuse("min_sqnr must be finite, not ", *arguments.min_sqnr);
  }
  if (arguments.bits_per_weight) {
    const bool fits = *arguments.bits_per_weight > 0 && *arguments.bits_per_weight <= 64;  // a NaN does not
    if (!fits) refuse("bits_per_weight must be above 0 and at most 64, not ", *arguments.bits_per_weight);
  }
  for (const auto& [name, value] :
       {std::pair{"tolerance", arguments.tolerance}, std::pair{"row_tolerance", arguments.row_tolerance},
        std::pair{"zeroed_tolerance", arguments.zeroed_tolerance}}) {
    if (!(value >= 0) || std::isinf(value)) refuse(name, " must be 0 or more and finite, not ", value);
  }
}

/// Why a stored tensor is not measured; empty: it is.
std::string reason_to_leave(const CheckArguments& arguments, const SourceTensor& facts) {
  if (facts.shape.size() < 2) return "it has fewer than two dimensions; checkpoints keep such tensors in their type";
  for (const std::string& pattern : arguments.ignore) {
    if (names_tensor(pattern, facts.own_name)) return "ignore names it: " + pattern;
  }
  if (facts.rows > most_rows) return "it has more than 2^24 rows";
  for (const ChosenRecipe& chosen : arguments.recipes) {
    try {
      (void)tile_shape(chosen.recipe, Direction::rowwise, facts.rows, facts.columns);
    } catch (const std::invalid_argument& error) {
      return chosen.name + ": " + error.what();
    }
  }
  return "";
}

/// Files with names and none chosen: all tensors.
TensorSource with_all_names(TensorSource source) {
  auto* stored = std::get_if<StoredTensors>(&source);
  if (stored == nullptr || stored->found) return source;
  stored->found = find_plain_tensors(stored->paths, stored->names);
  if (stored->found || !stored->names.empty()) return source;
  const auto has_no_names = [](const std::filesystem::path& path) {
    return !is_several_files(path) && !has_names(path);
  };
  if (std::ranges::none_of(stored->paths, has_no_names)) stored->names = {"*"};
  return source;
}

TensorStream opened(const CheckArguments& arguments) {
  const DefaultEnvironment environment;
  check_arguments(arguments);
  return TensorStream(with_all_names(arguments.source),
                      {.threads = arguments.threads, .splits_experts = true, .unfit = [&](const SourceTensor& facts) {
                         return reason_to_leave(arguments, facts);
                       }});
}

/// The inputs of layers, where they are given.
std::optional<TensorStream> inputs_of_layers(const CheckArguments& arguments) {
  std::optional<TensorStream> inputs;
  if (!arguments.activations) return inputs;
  try {
    inputs.emplace(with_all_names(*arguments.activations),
                   StreamOptions{.threads = arguments.threads,
                                 .unfit = [](const SourceTensor& /*any*/) { return std::string(); }});
  } catch (const std::invalid_argument& error) {
    refuse("activations: ", error.what());
  }
  return inputs;
}

void check_cluster(const CheckArguments& arguments, const Context& context) {
  if (!arguments.scheduler) return;
  check_cluster(context);
  if (!std::holds_alternative<StoredTensors>(arguments.source)) {
    refuse("scheduler needs a model in files, which its workers read");
  }
}

CheckedTensor normal_tensor(const std::vector<ChosenRecipe>& recipes, int threads) {
  constexpr std::size_t rows = 256;
  constexpr std::size_t columns = 4096;
  std::vector<float> values(rows * columns);
  draw({.distribution = find_distribution("normal"), .seed = 41, .rows = rows, .columns = columns}, 0, 0, values);
  std::vector<BFloat16> words;
  words.reserve(values.size());
  for (const float x : values) words.push_back({static_cast<std::uint16_t>(encode(bfloat16, CastPolicy{}, x))});
  const TensorStream stream(HeldTensors{{.values = MatrixView(words, rows, columns), .name = "normal values"}});
  return check_tensor(stream, 0, recipes, threads);
}

}  // namespace

std::span<const Named<Suitability>> named_values(Suitability /*any*/) {
  static constexpr std::array all{Named{"suits", Suitability::suits}, Named{"rows", Suitability::rows},
                                  Named{"small", Suitability::small}, Named{"hurts", Suitability::hurts},
                                  Named{"broken", Suitability::broken}};
  static_assert(is_in_order(all));
  return all;
}

Suitability suitability(const CheckArguments& arguments, const CheckedTensor& normal, const CheckedTensor& tensor,
                        std::size_t recipe) {
  const CheckedRecipe& one = tensor.recipes[recipe];
  const CheckedRecipe& usual = normal.recipes[recipe];
  if (tensor.not_finite > 0) return Suitability::broken;
  if (std::isnan(one.median_row_sqnr_db)) return Suitability::suits;  // zeros alone
  if (std::isnan(one.sqnr_db) || one.worst_row_sqnr_db == -std::numeric_limits<double>::infinity())
    return Suitability::broken;
  const double expected = usual.median_row_sqnr_db;
  if (one.median_row_sqnr_db < expected - arguments.tolerance) return Suitability::hurts;
  const auto share = [](const CheckedTensor& of, const CheckedRecipe& with) {
    return static_cast<double>(with.zeroed) / static_cast<double>(of.size());
  };
  if (share(tensor, one) > share(normal, usual) + arguments.zeroed_tolerance) return Suitability::small;
  if (one.worst_row_sqnr_db < expected - arguments.row_tolerance) return Suitability::rows;
  return Suitability::suits;
}

CheckRun::CheckRun(CheckArguments arguments, Context context)
    : arguments_(std::move(arguments)), context_(std::move(context)), stream_(opened(arguments_)) {
  kept_ = std::make_unique<KeptTensors>(arguments_, stream_);
  before_ = kept_->elements();
  if (!std::holds_alternative<StoredTensors>(arguments_.source)) return;
  for (const SourceTensor& facts : stream_.all_facts()) {
    bytes_ += static_cast<double>(facts.size()) * static_cast<double>(bytes_of(facts.type));
  }
}

CheckRun::~CheckRun() = default;

std::vector<PartedRun::Part> CheckRun::missing() const {
  std::vector<Part> all;
  for (std::size_t i = 0; i < stream_.count(); ++i) {
    if (kept_->find(i) == nullptr) all.push_back({i, stream_.facts(i).size()});
  }
  return all;
}

std::string CheckRun::line_of(std::size_t part) const {
  if (part >= stream_.count()) {
    refuse("there are ", stream_.count(), " tensors here, and more where the run began");
  }
  return line_of(part, {});
}

std::string CheckRun::line_of(std::size_t tensor, const Progress& progress) const {
  const DefaultEnvironment environment;
  try {
    return kept_->line_of(tensor, check_tensor(stream_, tensor, arguments_.recipes, arguments_.threads, progress));
  } catch (const std::invalid_argument& error) {
    refuse(stream_.called(tensor), error.what());
  }
}

void CheckRun::take(std::string_view lines, const std::string& whose) {
  try {
    kept_->take(lines);
  } catch (const std::invalid_argument& error) {
    refuse(whose, ": ", error.what());
  }
  tell();
}

/// How far the run is, and what is kept of it.
void CheckRun::tell() const {
  tell(kept_->elements());
  if (context_.kept && arguments_.checkpoint) {
    context_.kept("the results of " + std::to_string(kept_->count()) + " of " + std::to_string(stream_.count()) +
                  " tensors are kept in " + printable(arguments_.checkpoint->native()) +
                  "; --resume goes on from them");
  }
}

void CheckRun::tell(double elements) const {
  const double share = elements / stream_.elements();
  if (bytes_ > 0 && context_.bytes) {
    return context_.bytes({share * bytes_, bytes_, before_ / stream_.elements() * bytes_});
  }
  if (context_.progress) context_.progress(share);
}

CheckResult CheckRun::result() {
  const DefaultEnvironment environment;
  const std::optional<TensorStream> inputs = inputs_of_layers(arguments_);  // wrong ones are told before hours of work
  CheckResult result{.arguments = arguments_, .source = stream_.description(), .left_out = stream_.left_out()};
  result.normal = normal_tensor(arguments_.recipes, arguments_.threads);
  tell();
  for (std::size_t i = 0; i < stream_.count(); ++i) {
    const double known = kept_->elements();
    const auto size = static_cast<double>(stream_.facts(i).size());
    const Progress progress = [&](double share) { tell(known + share * size); };
    if (kept_->find(i) == nullptr) take(line_of(i, progress), "this process");
    result.tensors.push_back(*kept_->find(i));
  }
  if (inputs) check_outputs(arguments_, stream_, *inputs, result);
  return result;
}

void check_cluster(const Context& context) {
  if (context.cluster) return;
  refuse("scheduler needs Python: the command line of the Python package has it (pip install '.[dask]')");
}

CheckResult run_check(const CheckArguments& arguments, const Context& context) {
  const DefaultEnvironment environment;
  check_cluster(arguments, context);
  CheckRun run(arguments, context);
  if (arguments.scheduler) context.cluster(*arguments.scheduler, run);
  return run.result();
}

}  // namespace fp8lab::experiments
