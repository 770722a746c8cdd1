// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <tuple>
#include <vector>

#include "fp8lab/reference/linear/shape_rules.hpp"
#include "parallel.hpp"

namespace fp8lab::bindings {

TensorParallel parallel_of(const ParallelFields& fields) {
  const auto& [mode, ranks, sequence_parallel, order, rank_order, in_float32] = fields;
  return {find_value<ParallelMode>("parallel mode", mode),
          ranks,
          sequence_parallel,
          {find_value<ReductionOrder>("order", order), rank_order, in_float32}};
}

namespace {

/// pass, tensor, dimension, multiple, ranks, check, system, source, size, below, above, and in words.
using FitFields = std::tuple<std::string, std::string, std::string, std::size_t, std::size_t, std::string, std::string,
                             std::string, std::size_t, std::size_t, std::size_t, std::string>;

std::vector<FitFields> fits_of(const LinearRecipe& recipe, std::size_t tokens, std::size_t in_features,
                               std::size_t out_features, const ParallelFields& parallel) {
  std::vector<FitFields> all;
  const LinearShape shape{tokens, in_features, out_features};
  for (const ShapeFit& fit : shape_fits(recipe, shape, parallel_of(parallel))) {
    const ShapeRule& rule = fit.rule;
    all.emplace_back(name_of(rule.pass), name_of(rule.tensor), name_of(rule.dimension), rule.multiple, rule.ranks,
                     name_of(rule.check), name_of(rule.system), rule.source, fit.size, fit.below, fit.above,
                     describe(fit));
  }
  return all;
}

}  // namespace

void bind_parallel(py::module_& module) {
  module.def("shape_fits", &fits_of, py::arg("recipe"), py::arg("tokens"), py::arg("in_features"),
             py::arg("out_features"), py::arg("parallel"));
  module.def(
      "check_tensor_parallel", [](const ParallelFields& parallel) { check_tensor_parallel(parallel_of(parallel)); },
      py::arg("parallel"));
}

}  // namespace fp8lab::bindings
