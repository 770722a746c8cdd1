// SPDX-License-Identifier: Apache-2.0
// The tensors that a layout makes of a weight, and their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/coded_matrix.hpp"
#include "checkpoints/layout.hpp"

namespace fp8lab::experiments {

/// A weight that is to be written.
struct WeightFacts {
  std::string name;   ///< of the weight: "model.layers.0.mlp.up_proj.weight"
  std::string dtype;  ///< its type before, as .safetensors spells it
  std::uint64_t experts = 1;
  bool stacked = false;
  std::uint64_t rows = 0, columns = 0;  ///< as the codes lie: N and K
};

/// What a stored tensor holds of a weight.
enum class WeightPart : std::uint8_t { codes, scale, global_scale, marker };

struct LayoutTensor {
  WeightPart part;
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;
};

/// Why a layout cannot have a weight of these sizes, a sentence without a full stop; empty: it can.
[[nodiscard]] std::string reason_not_to_fit(const Layout& layout, const WeightFacts& facts);

/// What the names of a weight's tensors begin with.
[[nodiscard]] std::string stem_of(const Layout& layout, const std::string& weight);

/// Precondition: the weight fits.
[[nodiscard]] std::vector<LayoutTensor> layout_tensors(const Layout& layout, const WeightFacts& facts);

/// The bytes of one expert in such a tensor; of a marker all.
[[nodiscard]] std::vector<std::byte> bytes_of(const Layout& layout, const LayoutTensor& tensor,
                                              const CodedMatrix& matrix);

}  // namespace fp8lab::experiments
