// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/tensor_core/models.hpp"

#include "fp8lab/formats/named.hpp"

namespace fp8lab {

const MmaModel& find_model(std::string_view name) { return find_named(models, "model", name); }

}  // namespace fp8lab
