// SPDX-License-Identifier: Apache-2.0
// GEMM kernels on arrays that Python has.
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/gpu/gemm.hpp"
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

/// a, b, scale_a, scale_b, tile_scales_a, tile_scales_b, bias and out.
using GemmPlaces =
    std::tuple<MaybePlace, MaybePlace, MaybePlace, MaybePlace, MaybePlace, MaybePlace, MaybePlace, MaybePlace>;

void gemm_at(const std::string& kernel, std::size_t m, std::size_t n, std::size_t k, const std::string& type_a,
             const std::string& type_b, const GemmPlaces& places, std::size_t promote_k, const std::string& out_dtype,
             const std::string& chip, const TeamFields& fields) {
  const Team team = team_of(fields);
  const auto& [a, b, scale_a, scale_b, tile_scales_a, tile_scales_b, bias, out] = places;
  check_places(team, {&a, &b, &scale_a, &scale_b, &tile_scales_a, &tile_scales_b, &bias, &out});
  gpu::GemmArguments arguments{.m = m,
                               .n = n,
                               .k = k,
                               .type_a = find_named(mma_type_names, "format_a", type_a).value,
                               .type_b = find_named(mma_type_names, "format_b", type_b).value,
                               .a = span_at<const std::uint8_t>(a),
                               .b = span_at<const std::uint8_t>(b),
                               .scale_a = span_at<const float>(scale_a),
                               .scale_b = span_at<const float>(scale_b),
                               .tile_scales_a = span_at<const float>(tile_scales_a),
                               .tile_scales_b = span_at<const float>(tile_scales_b),
                               .bias = span_at<const float>(bias),
                               .promote_k = promote_k,
                               .out = span_at<float>(out)};
  if (out_dtype == "bfloat16") arguments.out = span_at<BFloat16>(out);
  if (out_dtype == "float16") arguments.out = span_at<Half>(out);
  const gpu::GemmKernel which = gpu::find_gemm_kernel(kernel);
  const gpu::HostChip host_chip = find_named(chip_names, "chip", chip).value;
  const py::gil_scoped_release release;
  if (team.on_device) return gpu::gemm_on_device(which, arguments, team.stream);
  gpu::gemm_on_host(which, arguments, team.order, host_chip);
}

}  // namespace

void bind_gpu_gemm(py::module_& module) {
  module.def("gpu_gemm_kernels", [] {
    std::vector<std::string> names;
    for (const auto kernel :
         {gpu::GemmKernel::wgmma_fast, gpu::GemmKernel::wgmma_promoted, gpu::GemmKernel::wgmma_scaled_1d2d,
          gpu::GemmKernel::wgmma_scaled_1d1d, gpu::GemmKernel::mma_sync, gpu::GemmKernel::mma_sync_float16}) {
      names.emplace_back(gpu::name_of(kernel));
    }
    return names;
  });
  module.def(
      "nearest_float32",
      [](double x) {
        const DefaultEnvironment environment;
        return static_cast<float>(x);
      },
      py::arg("x"));
  module.def("gpu_gemm", &gemm_at, py::arg("kernel"), py::arg("m"), py::arg("n"), py::arg("k"), py::arg("type_a"),
             py::arg("type_b"), py::arg("places"), py::arg("promote_k"), py::arg("out_dtype"), py::arg("chip"),
             py::arg("team"));
}

}  // namespace fp8lab::bindings
