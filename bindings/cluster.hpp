// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "module.hpp"

namespace fp8lab::bindings {

/// Sets what measures where a check has a scheduler, and adds what its workers call.
void bind_cluster(py::module_& module);

}  // namespace fp8lab::bindings
