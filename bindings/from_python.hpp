// SPDX-License-Identifier: Apache-2.0
// Methods of a bound class that Python's part of the package has: for a notebook, and for packages that may be missing.
#pragma once

#include <string>

#include "module.hpp"

namespace fp8lab::bindings {

/// What a notebook shows of a value.
inline std::string html_by_python(const py::object& self) {
  return py::module_::import("fp8lab._html").attr("value_html")(self).cast<std::string>();
}

}  // namespace fp8lab::bindings
