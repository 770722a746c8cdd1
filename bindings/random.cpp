// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/measure/random.hpp"

#include "module.hpp"

namespace fp8lab::bindings {

void bind_random(py::module_& module) {
  module.def("philox4x32", &philox4x32, py::arg("counter"), py::arg("key"));
  module.def(
      "torch_cpu_uniform",
      [](Array<float> out, std::uint64_t seed) {
        const auto values = mutable_view(out);
        const py::gil_scoped_release release;
        torch_cpu_uniform(seed, values);
      },
      py::arg("out").noconvert(), py::arg("seed"));
  module.def(
      "torch_cuda_uniform",
      [](Array<float> out, double low, double high, const std::string& type, std::uint64_t seed, std::uint64_t offset,
         int sms, int blocks_per_sm) {
        const auto values = mutable_view(out);
        const UniformDraw draw{low, high, type == "float32" ? binary32 : find_format(type).format};
        const py::gil_scoped_release release;
        torch_cuda_uniform(seed, offset, {sms, blocks_per_sm}, values, draw);
      },
      py::arg("out").noconvert(), py::arg("low"), py::arg("high"), py::arg("type"), py::arg("seed"), py::arg("offset"),
      py::arg("sms"), py::arg("blocks_per_sm"));
  module.def(
      "torch_cuda_normal",
      [](Array<float> out, float mean, float std, std::uint64_t seed, std::uint64_t offset, int sms,
         int blocks_per_sm) {
        const auto values = mutable_view(out);
        const py::gil_scoped_release release;
        torch_cuda_normal(seed, offset, {sms, blocks_per_sm}, mean, std, values);
      },
      py::arg("out").noconvert(), py::arg("mean"), py::arg("std"), py::arg("seed"), py::arg("offset"), py::arg("sms"),
      py::arg("blocks_per_sm"));
}

}  // namespace fp8lab::bindings
