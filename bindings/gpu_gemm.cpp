// SPDX-License-Identifier: Apache-2.0
// GEMM kernels on arrays that Python has.
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/gpu/gemm.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "fp8lab/reference/scaling/scale_rule.hpp"
#include "gpu_places.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

constexpr Named<gpu::MmaType> mma_type_names[] = {{"e4m3", gpu::MmaType::e4m3}, {"e5m2", gpu::MmaType::e5m2}};
constexpr Named<gpu::HostChip> chip_names[] = {{"ampere", gpu::HostChip::ampere},
                                               {"ada", gpu::HostChip::ada},
                                               {"hopper", gpu::HostChip::hopper},
                                               {"blackwell", gpu::HostChip::blackwell},
                                               {"rtx_blackwell", gpu::HostChip::rtx_blackwell}};

/// a, b, block_scales_a, block_scales_b, scale_a, scale_b, tile_scales_a, tile_scales_b, bias and out.
using GemmPlaces = std::tuple<MaybePlace, MaybePlace, MaybePlace, MaybePlace, MaybePlace, MaybePlace, MaybePlace,
                              MaybePlace, MaybePlace, MaybePlace>;
/// The facts of a, or of b: the format of codes of a byte, whether block scales are swizzled, and what its scale is
/// divided by.
using SideFacts = std::tuple<std::string, bool, float>;

gpu::MmaType type_of(const char* argument, const std::string& name) {
  return name == "e2m1" ? gpu::MmaType::e4m3 : find_named(mma_type_names, argument, name).value;
}
BlockScaleCodes scales_at(const MaybePlace& place, bool is_swizzled) {
  return {.codes = span_at<const std::uint8_t>(place),
          .layout = is_swizzled ? ScaleLayout::swizzled : ScaleLayout::compact};
}
std::optional<gpu::HostChip> chip_called(const std::optional<std::string>& name) {
  return name ? std::optional(find_named(chip_names, "chip", *name).value) : std::nullopt;
}
void set_out(gpu::GemmArguments& arguments, const MaybePlace& out, const std::string& dtype) {
  arguments.out = span_at<float>(out);
  if (dtype == "bfloat16") arguments.out = span_at<BFloat16>(out);
  if (dtype == "float16") arguments.out = span_at<Half>(out);
}

void gemm_at(const std::string& kernel, std::size_t m, std::size_t n, std::size_t k, const SideFacts& facts_a,
             const SideFacts& facts_b, const GemmPlaces& places, std::size_t promote_k, const std::string& out_dtype,
             const std::optional<std::string>& chip, const TeamFields& fields) {
  const Team team = team_of(fields);
  const auto& [a, b, block_a, block_b, scale_a, scale_b, tile_scales_a, tile_scales_b, bias, out] = places;
  check_places(team, {&a, &b, &block_a, &block_b, &scale_a, &scale_b, &tile_scales_a, &tile_scales_b, &bias, &out});
  const auto& [type_a, is_swizzled_a, divisor_a] = facts_a;
  const auto& [type_b, is_swizzled_b, divisor_b] = facts_b;
  gpu::GemmArguments arguments{.m = m,
                               .n = n,
                               .k = k,
                               .type_a = type_of("format_a", type_a),
                               .type_b = type_of("format_b", type_b),
                               .a = span_at<const std::uint8_t>(a),
                               .b = span_at<const std::uint8_t>(b),
                               .block_scales_a = scales_at(block_a, is_swizzled_a),
                               .block_scales_b = scales_at(block_b, is_swizzled_b),
                               .scale_a = span_at<const float>(scale_a),
                               .scale_b = span_at<const float>(scale_b),
                               .divisor_a = divisor_a,
                               .divisor_b = divisor_b,
                               .tile_scales_a = span_at<const float>(tile_scales_a),
                               .tile_scales_b = span_at<const float>(tile_scales_b),
                               .bias = span_at<const float>(bias),
                               .promote_k = promote_k};
  set_out(arguments, out, out_dtype);
  const gpu::GemmKernel which = find_value<gpu::GemmKernel>("kernel", kernel);
  const auto host_chip = chip_called(chip);
  const py::gil_scoped_release release;
  if (team.on_device) return gpu::gemm_on_device(which, arguments, team.stream);
  gpu::gemm_on_host(which, arguments, team.order, host_chip);
}

/// Multiplies two Quantized on the host.
void gemm_quantized(const std::string& kernel, const Quantized& a, const Quantized& b, const MaybePlace& bias,
                    const MaybePlace& out, std::size_t promote_k, const std::string& out_dtype,
                    const std::optional<std::string>& chip, const TeamFields& fields) {
  gpu::GemmArguments others{.bias = span_at<const float>(bias), .promote_k = promote_k};
  set_out(others, out, out_dtype);
  const gpu::GemmKernel which = find_value<gpu::GemmKernel>("kernel", kernel);
  const auto host_chip = chip_called(chip);
  const gpu::HostOrder order = team_of(fields).order;
  const py::gil_scoped_release release;
  gpu::gemm_on_host(which, a, b, others, order, host_chip);
}

}  // namespace

void bind_gpu_gemm(py::module_& module) {
  module.def("gpu_gemm_kernels", [] {
    std::vector<std::string> names;
    for (const gpu::GemmKernel kernel : gpu::gemm_kernels()) names.emplace_back(name_of(kernel));
    return names;
  });
  module.def(
      "nearest_float32",
      [](double x) {
        const DefaultEnvironment environment;
        return static_cast<float>(x);
      },
      py::arg("x"));
  module.def(
      "gpu_tensor_divisor",
      [](const Recipe& recipe) {
        const DefaultEnvironment environment;
        return scale_constants(recipe, {}).tensor_top;
      },
      py::arg("recipe"));
  module.def("gpu_gemm", &gemm_at, py::arg("kernel"), py::arg("m"), py::arg("n"), py::arg("k"), py::arg("facts_a"),
             py::arg("facts_b"), py::arg("places"), py::arg("promote_k"), py::arg("out_dtype"), py::arg("chip"),
             py::arg("team"));
  module.def("gpu_gemm_quantized", &gemm_quantized, py::arg("kernel"), py::arg("a"), py::arg("b"), py::arg("bias"),
             py::arg("out"), py::arg("promote_k"), py::arg("out_dtype"), py::arg("chip"), py::arg("team"));
}

}  // namespace fp8lab::bindings
