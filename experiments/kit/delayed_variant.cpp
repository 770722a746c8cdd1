// SPDX-License-Identifier: Apache-2.0
#include "kit/delayed_variant.hpp"

#include <variant>

#include "fp8lab/formats/text_stream.hpp"

namespace fp8lab::experiments {

std::string DelayedVariant::name() const {
  const AmaxComputeAlgo algorithm = std::get<AmaxComputeAlgo>(recipe.amax_compute_algo);
  TextStream text;
  text << recipe.version.name << ' ' << name_of(algorithm);
  if (algorithm == AmaxComputeAlgo::max) text << ' ' << recipe.amax_history_len;
  if (pass == Pass::backward) text << " e5m2";
  return text.str();
}

}  // namespace fp8lab::experiments
