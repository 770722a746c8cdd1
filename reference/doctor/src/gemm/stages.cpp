// SPDX-License-Identifier: Apache-2.0
#include "gemm/stages.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gemm/plain_rows.hpp"
#include "reference/src/tensor_core/misfit.hpp"

namespace fp8lab::doctor {
namespace {

/// The operand as the tensor core gets it that reads it so.
Operand as_read(Operand operand, const SideReading& side, const GemmReading& reading) {
  if (side.as_other_format) operand.format = format_read_for(operand.format).value_or(operand.format);
  if (reading.blocks_as_tiles) operand.scales = {};
  return operand;
}

/// Where a tail of K begins that may be dropped: the last multiple of usual tiles.
std::vector<std::size_t> depths_without_tail(std::size_t depth) {
  std::vector<std::size_t> all;
  for (const std::size_t unit : {8, 16, 32, 64, 128, 256}) {
    if (depth <= unit) continue;
    const std::size_t kept = (depth - 1) / unit * unit;
    if (std::ranges::find(all, kept) == all.end()) all.push_back(kept);
  }
  return all;
}

}  // namespace

void GemmStages::add(std::vector<GemmCandidate>& all, const GemmDeparture* departure, std::size_t depth,
                     GemmSearch search, std::span<const std::size_t> blocks, bool is_suggested) const {
  if (is_left_out(departure)) return;
  const GemmReading& reading = reading_of(departure);
  const Operand a = as_read(problem_.a(), reading.a, reading);
  const Operand b = as_read(problem_.b(), reading.b, reading);
  const auto add_model = [&](const MmaModel& model) {
    const GemmFacts facts = problem_.facts_for(model, reading.blocks_as_tiles);
    const auto k = static_cast<std::size_t>(model.k());
    const bool is_core = !is_cuda_cores(model);
    if (is_core && facts.tile_depth != 0 && (k == 0 || facts.tile_depth % k != 0)) return;
    if (departure != nullptr && !is_suggested && !is_searched(*departure, problem_.facts_for(model))) return;
    for (GemmCandidate& one : gemm_hypotheses(model, facts, departure, depth, search, blocks)) {
      one.recipe.dequantized = dequantized_;
      all.push_back(std::move(one));
    }
  };
  for (const MmaModel& model : models) {
    if (!model.is_fp64() && takes(model, a) && takes(model, b)) add_model(model);
  }
  if (reading.blocks_as_tiles) add_model(cuda_cores);
}

/// Whether the operands are what GEMMs without a tensor core usually take.
bool GemmStages::are_float32() const {
  constexpr Format single = binary32;
  return problem_.a().format == single && problem_.b().format == single;
}

/// Float32 sums without a tensor core. Products of up to 12 bits each are exact, so that fma makes no difference.
void GemmStages::add_cuda_cores(std::vector<GemmCandidate>& all) const {
  if (problem_.facts().block != 0) return;
  constexpr Format single = binary32;
  for (const MmaModel* model : {&cuda_cores, &cuda_cores_fma}) {
    if (model == &cuda_cores_fma && problem_.a().format != single && problem_.b().format != single) continue;
    std::ranges::move(gemm_hypotheses(*model, problem_.facts(), nullptr, problem_.facts().depth),
                      std::back_inserter(all));
  }
}

std::vector<GemmCandidate> GemmStages::usual() const {
  std::vector<GemmCandidate> all;
  if (are_float32() || dequantized_ != StepType::as_given) add_cuda_cores(all);
  add(all, nullptr, problem_.facts().depth);
  if (all.empty()) {
    refuse("no model takes such operands: a is ", format_name(problem_.a().format), " and b ",
           format_name(problem_.b().format), problem_.facts().block != 0 ? " with block scales" : "");
  }
  return all;
}

std::vector<GemmCandidate> GemmStages::unusual() const {
  std::vector<GemmCandidate> all;
  for (const GemmSearch search : {GemmSearch::orders, GemmSearch::zeros, GemmSearch::rounded_sums}) {
    add(all, nullptr, problem_.facts().depth, search);
  }
  if (!are_float32()) add_cuda_cores(all);
  for (GemmCandidate& one : usual()) {
    if (!is_rounded_once(one.recipe)) continue;
    one.recipe.activation = GemmActivation::relu;
    all.push_back(std::move(one));
  }
  return all;
}

std::vector<GemmCandidate> GemmStages::defects() const {
  std::vector<GemmCandidate> all;
  for (const GemmDeparture& one : gemm_departures()) {
    const bool has_number = one.drops_tail || (one.reading.products != ProductReading::own &&
                                               one.reading.promotion == PromotionReading::own);
    if (!has_number) add(all, &one, problem_.facts().depth);
  }
  for (const std::size_t depth : depths_without_tail(problem_.facts().depth)) {
    if (depth % std::max<std::size_t>(problem_.facts().block, 1) == 0) add(all, &dropped_tail(), depth);
  }
  const std::size_t unit_of_scales = std::max({problem_.facts().block, problem_.facts().tile_depth, std::size_t{1}});
  for (const GemmDeparture& one : gemm_departures()) {
    const ProductReading products = one.reading.products;
    if (products == ProductReading::own || products == ProductReading::blocks) continue;
    for (const std::size_t length : {16, 32, 64, 128, 256}) {
      if (length >= problem_.facts().depth || length % unit_of_scales != 0) continue;
      if (products == ProductReading::descending && problem_.facts().depth % length != 0) continue;
      add(all, &one, length);
    }
  }
  return all;
}

std::vector<GemmCandidate> GemmStages::with(const GemmDeparture& departure, std::size_t number,
                                            std::span<const std::size_t> blocks) const {
  std::vector<GemmCandidate> all;
  add(all, &departure, number, GemmSearch::usual, blocks, true);
  return all;
}

std::vector<GemmCandidate> GemmStages::missing_addends() const {
  std::vector<GemmCandidate> all;
  for (const GemmDeparture& one : gemm_departures()) {
    const bool is_missing = one.reading.c == CReading::missing || one.reading.bias == BiasReading::missing;
    if (is_missing) add(all, &one, problem_.facts().depth);
  }
  return all;
}

bool GemmStages::is_left_out(const GemmDeparture* departure) const {
  if (departure == nullptr || without_.empty()) return false;
  return std::ranges::any_of(parts_of(*departure), [&](const GemmDeparture* one) {
    return std::ranges::find(without_, one->name) != without_.end();
  });
}

}  // namespace fp8lab::doctor
