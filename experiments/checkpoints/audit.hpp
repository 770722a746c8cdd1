// SPDX-License-Identifier: Apache-2.0
// Whether a quantized checkpoint is right: what each weight was made by, what is damaged, what a loader misreads.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/finding.hpp"
#include "checkpoints/recognize.hpp"

namespace fp8lab::experiments {

/// A weight beside its original, or alone.
struct AuditedWeight {
  std::string name;
  std::string layout;
  std::uint64_t elements = 0;
  std::string recipe = {};   ///< which made every byte; empty: none that is known, or there is no original
  std::string nearest = {};  ///< the layout's recipe with the fewest other codes, where none makes every byte
  std::uint64_t codes_differing = 0, scales_differing = 0;    ///< from `nearest`
  double sqnr_db = std::numeric_limits<double>::quiet_NaN();  ///< against the original
  /// What is lost beyond `nearest`, in dB; 0 where a recipe made it.
  double loss_db = std::numeric_limits<double>::quiet_NaN();
  std::string verdict = {};
};

/// A tensor that some loader reads otherwise than its layout means.
struct Misread {
  std::string tensor;
  std::string loaders;
  std::string words;
};

struct Audit {
  std::vector<AuditedWeight> weights = {};
  std::vector<CheckpointFinding> findings = {};
  std::vector<Misread> misreads = {};
  std::vector<std::string> without_original = {};  ///< weights whose original is not there
};

struct AuditOptions {
  int threads = 1;
  std::function<void(double)> progress = {};  ///< the share of elements that is done
};

/// What can be said of the checkpoint from its own files; and of each weight beside its original, where that is given
/// and its name is found. `recognition` is that of `quantized`.
[[nodiscard]] Audit audit(const Checkpoint& quantized, const Recognition& recognition, const Checkpoint* original,
                          const AuditOptions& options = {});

}  // namespace fp8lab::experiments
