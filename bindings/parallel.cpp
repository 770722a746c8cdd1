// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <tuple>
#include <vector>

#include "fp8lab/reference/linear/shape_rules.hpp"
#include "fp8lab/reference/linear/tensor_parallel.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

TensorParallel parallel_of(const std::string& mode, int ranks, bool sequence_parallel) {
  return {find_parallel_mode(mode), ranks, sequence_parallel};
}

/// pass, tensor, dimension, multiple, ranks, check, system, source, size, below, above, and in words.
using FitFields = std::tuple<std::string, std::string, std::string, std::size_t, std::size_t, std::string, std::string,
                             std::string, std::size_t, std::size_t, std::size_t, std::string>;

std::vector<FitFields> fits_of(const LinearRecipe& recipe, std::size_t tokens, std::size_t in_features,
                               std::size_t out_features, const std::string& mode, int ranks, bool sequence_parallel) {
  std::vector<FitFields> all;
  const LinearShape shape{tokens, in_features, out_features};
  for (const ShapeFit& fit : shape_fits(recipe, shape, parallel_of(mode, ranks, sequence_parallel))) {
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
             py::arg("out_features"), py::arg("mode"), py::arg("ranks"), py::arg("sequence_parallel"));
  module.def(
      "check_tensor_parallel",
      [](const std::string& mode, int ranks, bool sequence_parallel) {
        check_tensor_parallel(parallel_of(mode, ranks, sequence_parallel));
      },
      py::arg("mode"), py::arg("ranks"), py::arg("sequence_parallel"));
}

}  // namespace fp8lab::bindings
