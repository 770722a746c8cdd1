// SPDX-License-Identifier: Apache-2.0
#include "gemm/stages.hpp"

#include <algorithm>
#include <utility>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gemm/sample.hpp"
#include "reference/src/tensor_core/misfit.hpp"

namespace fp8lab::doctor {

void GemmStages::add(std::vector<GemmCandidate>& all, GemmDefect defect, std::size_t depth, GemmSearch search) const {
  for (const MmaModel& model : models) {
    if (model.is_fp64() || !takes(model, a_) || !takes(model, b_)) continue;
    const GemmFacts facts = problem_.facts_for(model);
    const auto k = static_cast<std::size_t>(model.k());
    if (facts.tile_depth != 0 && (k == 0 || facts.tile_depth % k != 0)) continue;
    for (GemmHypothesis& h : gemm_hypotheses(model, facts, defect, depth, search)) {
      h.dequantized = dequantized_;
      all.push_back({std::move(h), &model});
    }
  }
}

/// Whether the operands are what GEMMs without a tensor core usually take.
bool GemmStages::are_float32() const {
  constexpr Format single = binary32;
  return a_.format == single && b_.format == single;
}

/// Float32 sums without a tensor core. Products of up to 12 bits each are exact, so that fma makes no difference.
void GemmStages::add_cuda_cores(std::vector<GemmCandidate>& all) const {
  if (problem_.facts().block != 0) return;
  constexpr Format single = binary32;
  for (const std::string_view name : {cuda_cores_name, cuda_cores_fma_name}) {
    if (name == cuda_cores_fma_name && a_.format != single && b_.format != single) continue;
    const MmaModel& model = gemm_model(name);
    for (GemmHypothesis& h : gemm_hypotheses(model, problem_.facts(), GemmDefect::none, a_.depth)) {
      all.push_back({std::move(h), &model});
    }
  }
}

std::vector<GemmCandidate> GemmStages::usual() const {
  std::vector<GemmCandidate> all;
  if (are_float32()) add_cuda_cores(all);
  add(all, GemmDefect::none, a_.depth);
  if (all.empty()) {
    refuse("no model takes such operands: a is ", format_name(a_.format), " and b ", format_name(b_.format),
           problem_.facts().block != 0 ? " with block scales" : "");
  }
  return all;
}

std::vector<GemmCandidate> GemmStages::unusual() const {
  std::vector<GemmCandidate> all;
  add(all, GemmDefect::none, a_.depth, GemmSearch::orders);
  add(all, GemmDefect::none, a_.depth, GemmSearch::zeros);
  add(all, GemmDefect::none, a_.depth, GemmSearch::rounded_sums);
  if (!are_float32()) add_cuda_cores(all);
  return all;
}

std::vector<GemmCandidate> GemmStages::defects() const {
  using enum GemmDefect;
  std::vector<GemmCandidate> all;
  for (const GemmDefect defect : {a_transposed,
                                  b_transposed,
                                  out_transposed,
                                  scale_a_missing,
                                  scale_b_missing,
                                  scales_missing,
                                  scale_a_twice,
                                  scale_b_twice,
                                  scales_twice,
                                  scale_a_inverted,
                                  scale_b_inverted,
                                  scales_inverted,
                                  scale_a_of_previous_tile,
                                  scale_b_of_previous_tile,
                                  scales_of_previous_tile,
                                  tensor_scale_a_missing,
                                  tensor_scale_b_missing,
                                  tensor_scales_missing,
                                  block_scales_a_missing,
                                  block_scales_b_missing,
                                  block_scales_missing,
                                  scale_layout_a,
                                  scale_layout_b,
                                  scale_layouts,
                                  c_missing,
                                  c_transposed,
                                  bias_missing,
                                  addends_missing,
                                  bias_along_rows,
                                  bias_in_each_range,
                                  scale_out_missing,
                                  scale_out_inverted}) {
    if (defect == out_transposed && (a_.rows == 1 || b_.rows == 1)) continue;
    add(all, defect, a_.depth);
  }
  std::vector<std::size_t> depths;
  for (const std::size_t unit : {8, 16, 32, 64, 128, 256}) {
    if (a_.depth <= unit) continue;
    const std::size_t depth = (a_.depth - 1) / unit * unit;
    if (std::ranges::find(depths, depth) == depths.end()) depths.push_back(depth);
  }
  for (const std::size_t depth : depths) {
    if (depth % std::max<std::size_t>(problem_.facts().block, 1) == 0) add(all, tail_dropped, depth);
  }
  return all;
}

std::vector<GemmCandidate> GemmStages::missing_addends() const {
  std::vector<GemmCandidate> all;
  for (const GemmDefect defect : {GemmDefect::c_missing, GemmDefect::bias_missing, GemmDefect::addends_missing}) {
    add(all, defect, a_.depth);
  }
  return all;
}

}  // namespace fp8lab::doctor
