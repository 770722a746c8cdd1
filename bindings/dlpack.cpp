// SPDX-License-Identifier: Apache-2.0
// Arrays by DLPack: what a capsule holds, views of those on the host, and capsules of codes.
#include "dlpack.hpp"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/formats/text.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

/// What both kinds of capsules hold. Before version 1.0 nothing tells whether elements may be written.
struct CapsuleTensor {
  const dlpack::Tensor* tensor;
  bool is_read_only;
};

CapsuleTensor tensor_in(const py::capsule& capsule) {
  const std::string name = capsule.name() == nullptr ? "" : capsule.name();
  if (name == dlpack::old_name) return {&capsule.get_pointer<dlpack::ManagedTensor>()->tensor, false};
  if (name != dlpack::versioned_name) {
    throw py::type_error("__dlpack__ must give a capsule named dltensor or dltensor_versioned");
  }
  const auto* managed = capsule.get_pointer<dlpack::VersionedTensor>();
  if (managed->version.major != 1) {  // whose fields may lie elsewhere
    throw py::type_error("__dlpack__ must give an array of DLPack 1, not of version " +
                         std::to_string(managed->version.major));
  }
  return {&managed->tensor, (managed->flags & dlpack::read_only) != 0};
}

std::vector<std::int64_t> numbers_of(const dlpack::Tensor& tensor, const std::int64_t* from) {
  return {from, from + tensor.dimensions};
}

/// address, shape, strides in elements (None: C-contiguous), element type and whether it is read-only.
py::tuple dlpack_facts(const py::capsule& capsule) {
  const auto [tensor, is_read_only] = tensor_in(capsule);
  std::optional<std::vector<std::int64_t>> strides;
  if (tensor->strides != nullptr) strides = numbers_of(*tensor, tensor->strides);
  return py::make_tuple(reinterpret_cast<std::uintptr_t>(tensor->data) + tensor->byte_offset,
                        numbers_of(*tensor, tensor->shape), strides, dlpack::name_of(tensor->type), is_read_only);
}

/// A view of an array on the host, and the name of its element type: of the NumPy type `words`, which has as many
/// bytes. The capsule keeps the memory.
py::array dlpack_view(const py::capsule& capsule, const py::dtype& words) {
  const auto [tensor, is_read_only] = tensor_in(capsule);
  std::vector<std::int64_t> strides;
  if (tensor->strides != nullptr) {
    strides = numbers_of(*tensor, tensor->strides);
    for (std::int64_t& stride : strides) stride *= words.itemsize();
  }
  py::array view(words, numbers_of(*tensor, tensor->shape), strides,
                 static_cast<const std::byte*>(tensor->data) + tensor->byte_offset, capsule);
  if (is_read_only) view.attr("flags").attr("writeable") = false;
  return view;
}

/// An array that a capsule gives away: `Managed` is the structure of the capsule's version.
template <typename Managed>
struct GivenArray {
  Managed managed{};
  std::vector<std::int64_t> shape, strides;
  py::object owner;

  /// The consumer's last word; it may hold no lock of Python's.
  static void end(Managed* managed) {
    if (!Py_IsInitialized()) return;
    const py::gil_scoped_acquire gil;
    delete static_cast<GivenArray*>(managed->context);
  }
};

template <typename Managed>
py::capsule capsule_of(std::unique_ptr<GivenArray<Managed>> given, const char* name) {
  Managed* managed = &given->managed;
  managed->context = given.get();
  managed->deleter = &GivenArray<Managed>::end;
  // Whoever takes the array renames the capsule; otherwise the array ends with it.
  const auto destroy = [](PyObject* object) {
    for (const char* own : {dlpack::old_name, dlpack::versioned_name}) {
      if (PyCapsule_IsValid(object, own) == 0) continue;
      auto* left = static_cast<Managed*>(PyCapsule_GetPointer(object, own));
      left->deleter(left);
      return;
    }
  };
  py::capsule capsule(managed, name, destroy);
  std::ignore = given.release();
  return capsule;
}

template <typename Managed>
std::unique_ptr<GivenArray<Managed>> given_array(const py::array& codes, const dlpack::DataType& type) {
  auto given = std::make_unique<GivenArray<Managed>>();
  given->shape.assign(codes.shape(), codes.shape() + codes.ndim());
  for (py::ssize_t i = 0; i < codes.ndim(); ++i)
    given->strides.push_back(codes.strides(i));  // of bytes, as elements are
  given->owner = codes;
  given->managed.tensor = {
      const_cast<void*>(codes.data()), {1, 0}, static_cast<std::int32_t>(codes.ndim()), type, given->shape.data(),
      given->strides.data(),           0};
  return given;
}

/// A capsule of codes of one byte each, of E2M1 two in each, as elements of that format; without a version as before
/// DLPack 1.0.
py::capsule dlpack_capsule(const py::array& codes, const std::string& format, bool is_versioned, bool was_copied) {
  for (const dlpack::SmallFloat& one : dlpack::small_floats) {
    if (one.format != format) continue;
    const dlpack::DataType type{one.code, one.bits, static_cast<std::uint16_t>(one.bits == 4 ? 2 : 1)};
    if (!is_versioned) {
      if (one.bits == 6 || !codes.writeable()) {
        throw py::buffer_error(
            "only DLPack 1 tells read-only arrays, and floats of 6 bits of which each has a byte: "
            "ask for max_version=(1, 0)");
      }
      return capsule_of(given_array<dlpack::ManagedTensor>(codes, type), dlpack::old_name);
    }
    auto given = given_array<dlpack::VersionedTensor>(codes, type);
    given->managed.version = {1, 1};
    given->managed.flags = (codes.writeable() ? 0 : dlpack::read_only) | (was_copied ? dlpack::is_copied : 0) |
                           (one.bits == 6 ? dlpack::padded : 0);
    return capsule_of(std::move(given), dlpack::versioned_name);
  }
  throw py::buffer_error("DLPack has no element type for codes of " + one_line(format));
}

}  // namespace

void bind_dlpack(py::module_& module) {
  module.def("dlpack_facts", &dlpack_facts, py::arg("capsule"));
  module.def("dlpack_view", &dlpack_view, py::arg("capsule"), py::arg("words"));
  module.def("dlpack_capsule", &dlpack_capsule, py::arg("codes").noconvert(), py::arg("format"),
             py::arg("is_versioned"), py::arg("was_copied"));
}

}  // namespace fp8lab::bindings
