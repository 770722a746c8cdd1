// SPDX-License-Identifier: Apache-2.0
#include "module.hpp"

#include <exception>
#include <new>
#include <optional>
#include <stdexcept>

#include "cluster.hpp"
#include "dlpack.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/text.hpp"
#include "fp8lab/gpu/cuda_error.hpp"
#include "kit/provenance.hpp"

namespace fp8lab::bindings {
namespace {

/// Lets Ctrl-C through, whoever has the GIL.
void check_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

/// function(*positional, **named) in the environment in which results are defined. In C++, so that no signal comes
/// between entering and leaving it. What is long of it is ended by Ctrl-C, with a KeyboardInterrupt.
py::object call(const py::object& function, const py::tuple& positional, const py::dict& named) {
  const DefaultEnvironment environment;
  const Interruptible scope(check_signals);
  PyObject* result = PyObject_Call(function.ptr(), positional.ptr(), named.ptr());
  if (result == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(result);
}

}  // namespace

MatrixView matrix_of(const py::array& x, const std::string& source) {
  std::optional<MatrixView> matrix;
  with_source(x, source, [&](auto values) {
    matrix.emplace(values, static_cast<std::size_t>(x.shape(0)), static_cast<std::size_t>(x.shape(1)));
  });
  return *matrix;
}

namespace {

void fill(py::module_& module) {
  module.attr("version") = std::string(fp8lab::experiments::version());
  py::register_local_exception_translator([](std::exception_ptr error) {
    constexpr const char* out_of_memory = "fp8lab: out of memory; smaller or fewer arrays, or fewer threads, take less";
    try {
      if (error) std::rethrow_exception(error);
    } catch (const fp8lab::gpu::DeviceMemoryError& failed) {
      PyErr_SetString(PyExc_MemoryError, failed.what());
    } catch (const std::bad_alloc&) {
      PyErr_SetString(PyExc_MemoryError, out_of_memory);
    } catch (const std::invalid_argument& refused) {  // a path in it may have any bytes
      PyErr_SetString(PyExc_ValueError, fp8lab::one_line(refused.what()).c_str());
    } catch (const std::length_error&) {  // sizes that no memory has
      PyErr_SetString(PyExc_MemoryError, out_of_memory);
    }
  });
  module.def("call", &call, py::arg("function"), py::arg("positional"), py::arg("named"));
  bind_casts(module);
  bind_cluster(module);
  bind_random(module);
  bind_delayed(module);
  bind_distributions(module);
  bind_models(module);
  bind_products(module);
  bind_measures(module);
  bind_recipes(module);
  bind_gemm_recipes(module);
  bind_scaling(module);
  bind_compare(module);
  bind_diagnose(module);
  bind_dlpack(module);
  bind_gemm_doctor(module);
  bind_linear(module);
  bind_operators(module);
  bind_parallel(module);
  bind_fp8_state(module);
  bind_gpu(module);
  bind_gpu_kernels(module);
  bind_gpu_gemm(module);
  bind_experiments(module);
}

}  // namespace
}  // namespace fp8lab::bindings

// A free-threaded Python keeps its lock off: what calls share is constant, of one thread, or has a lock of its own.
#if PYBIND11_VERSION_HEX >= 0x020D0000
PYBIND11_MODULE(_core, module, fp8lab::bindings::py::mod_gil_not_used()) { fp8lab::bindings::fill(module); }
#else
PYBIND11_MODULE(_core, module) { fp8lab::bindings::fill(module); }
#endif
