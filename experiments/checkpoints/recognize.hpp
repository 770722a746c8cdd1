// SPDX-License-Identifier: Apache-2.0
// Finds out which layout each weight of a checkpoint has, from its tensors; the configuration is compared, not
// believed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/layout.hpp"

namespace fp8lab::experiments {

struct Companion {
  Role role;
  const StoredTensor* tensor;
};

/// A quantized weight. Pointers are into the checkpoint.
struct Weight {
  std::string name;  ///< of the weight before: "model.layers.0.mlp.up_proj.weight"
  std::string stem;  ///< what the names of its tensors begin with
  const Layout* layout = nullptr;
  const StoredTensor* codes = nullptr;
  const StoredTensor* scale = nullptr;         ///< nullptr: the scales lie beside the codes
  const StoredTensor* global_scale = nullptr;  ///< nullptr where the layout has none, or GGUF left it out
  std::vector<Companion> companions = {};      ///< all tensors that belong to it but the codes; in the layout's order

  std::uint64_t experts = 1;                      ///< of a stack; 1 otherwise
  bool stacked = false;                           ///< the stored tensor has an index of experts
  std::uint64_t rows = 0, columns = 0;            ///< of each, in elements, as the codes lie: N and K
  std::uint64_t block_rows = 0, group = 0;        ///< what shares a scale: of the tensor, all rows and columns
  std::uint64_t grid_rows = 0, grid_columns = 0;  ///< scales of each expert; in tile order, without the padding
  bool tile_order = false;                        ///< the scales are in tiles of 128x4
  bool grid_fits = true;                          ///< false: no block size that is known gives the grid

  std::string evidence = {};  ///< what told the layout, a sentence without a full stop
  std::vector<std::string> disagreements =
      {};  ///< with the configuration or the metadata, sentences without full stops

  [[nodiscard]] const StoredTensor* companion(Role role) const;
  /// The shape of the weight before: (rows, columns), (experts, rows, columns), or (experts, columns, rows).
  [[nodiscard]] std::vector<std::uint64_t> shape() const;
  [[nodiscard]] std::uint64_t elements() const { return experts * rows * columns; }
};

/// Codes that miss what their layout needs.
struct Incomplete {
  const StoredTensor* codes;
  const Layout* nearest;  ///< the layout that fits but for what is missing; nullptr: none does
  std::string lacks;      ///< a sentence without a full stop
};

/// Tensors of like names that no layout claims and that are no plain numbers: their suffix, how many, and one of them.
struct UnknownSuffix {
  std::string suffix;
  std::uint64_t count = 0;
  const StoredTensor* example = nullptr;
};

struct Recognition {
  std::vector<Weight> weights = {};                    ///< in the order of Checkpoint::tensors()
  std::vector<const StoredTensor*> plain = {};         ///< F32, BF16, F16 and other numbers that belong to no weight
  std::vector<const StoredTensor*> cache_scales = {};  ///< of a KV cache: k_scale, v_scale, ...
  std::vector<const StoredTensor*> orphans = {};       ///< companions by their names, whose weight is not there
  std::vector<Incomplete> incomplete = {};
  std::vector<UnknownSuffix> unknown = {};
  std::string method;                           ///< quant_method of the configuration; empty: none
  std::vector<std::string> disagreements = {};  ///< of the configuration with the checkpoint as a whole

  /// The weight of that name, or nullptr.
  [[nodiscard]] const Weight* find(std::string_view name) const;
};

/// Reads markers and metadata, no values. `checkpoint` must outlive the result.
[[nodiscard]] Recognition recognize(const Checkpoint& checkpoint);

}  // namespace fp8lab::experiments
