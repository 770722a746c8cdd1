// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "kit/parted_run.hpp"
#include "module.hpp"

namespace fp8lab::bindings {

/// Does the parts of a run on the Dask cluster of that scheduler. Called without the GIL.
void do_elsewhere(const std::string& scheduler, experiments::PartedRun& run);

/// Adds what the workers of a cluster call.
void bind_cluster(py::module_& module);

}  // namespace fp8lab::bindings
