// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "files/amax_trace.hpp"
#include "fp8lab/reference/scaling/delayed_scaling.hpp"
#include "kit/chosen.hpp"
#include "kit/delayed_variant.hpp"
#include "kit/document.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

/// The arguments of the experiment: it replays a trace by every combination of format, version, algorithm and history
/// length.
struct DelayedArguments {
  AmaxTrace trace = example_amax_trace();
  std::vector<ChosenFormat> formats{{"e4m3", e4m3}};  ///< E4M3, E5M2, or both
  std::vector<DelayedVersion> versions{te_current, te_current_unfused, te_1_6, te_0_1, ms_amp, torchao_delayed};
  std::vector<AmaxComputeAlgo> algorithms{AmaxComputeAlgo::max, AmaxComputeAlgo::most_recent};
  std::vector<long long> histories{1024, 16};  ///< amax_history_len
  int margin = 0;                              ///< of the versions that have one
  bool reduce_amax = true;                     ///< ranks share their largest amax; otherwise each has its own scales
};

/// Where scales part from those of the format's first variant; steps are indices into the trace.
struct Parting {
  std::size_t first;     ///< step
  double factor;         ///< this scale over the other, there
  std::size_t count;     ///< of steps with different scales
  std::size_t widest;    ///< step of the largest factor, either way
  double widest_factor;  ///< there
};

/// The scales of one variant.
struct ReplayedScales {
  std::vector<float> scales;       ///< that of each step's cast, and of the one after the last
  std::optional<Parting> parting;  ///< none where they never part
  std::size_t clipped = 0;         ///< steps whose amax * scale rounds to more than the format's largest value
  double unused_binades = 0;       ///< mean log2(fp8_max / (amax * scale)) of the steps where that is a number
};

/// One tensor, or one tensor of one rank.
struct ReplayedTensor {
  std::string name;
  std::vector<float> amaxes;             ///< a step; the largest of the ranks' where they are reduced
  std::vector<ReplayedScales> variants;  ///< in the order of DelayedResult::variants
};

struct DelayedResult {
  DelayedArguments arguments;
  std::vector<DelayedVariant> variants;
  std::vector<ReplayedTensor> tensors;
};

/// The variants that the arguments ask for: formats, then versions, algorithms and history lengths. The most recent
/// amax depends on no length, and so has one variant a version; ms_amp and torchao take the maximum whatever is asked
/// for.
///
/// Throws std::invalid_argument for lists that are empty or have an entry twice, other formats, what check() refuses of
/// a recipe, steps above 2^63 - 1, and more than 2^24 scales.
[[nodiscard]] std::vector<DelayedVariant> variants_of(const DelayedArguments& arguments);

/// Replays a run from its amaxes alone, one cast of every tensor a step. Throws as variants_of() does.
[[nodiscard]] DelayedResult run_delayed(const DelayedArguments& arguments, const Progress& progress = {});

/// The tables `variants`, `summary` and `scales`, and for each of the first 8 tensors the variants with the same scales
/// together, where they part, their scales side by side, and curves of scale against step.
[[nodiscard]] Document document_of(const DelayedResult& result);

}  // namespace fp8lab::experiments
