// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace fp8lab::experiments {

/// Called now and then with the share done; an exception from it cancels the run.
using Progress = std::function<void(double)>;

}  // namespace fp8lab::experiments
