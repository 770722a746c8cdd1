// SPDX-License-Identifier: Apache-2.0
// Whether a quantized checkpoint is right: what each weight was made by, what is damaged, what a loader misreads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/finding.hpp"
#include "checkpoints/recognize.hpp"
#include "kit/parted_run.hpp"

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
  std::function<void(double)> progress = {};             ///< the share of elements that is done
  std::optional<std::filesystem::path> checkpoint = {};  ///< where what is known of weights is kept
  bool resume = false;                                   ///< go on from the checkpoint
  std::function<void(const std::string&)> kept = {};     ///< a sentence about what is kept
};

/// An audit whose parts are weights: what the quantized checkpoint's own files say of each, and its original, where
/// that is given and its name is found. What is known of a weight does not depend on others; these are compared at the
/// end.
class AuditRun final : public PartedRun {
 public:
  /// `recognition` is that of `quantized`; all three must outlive the run. Throws what KeptLines does.
  AuditRun(const Checkpoint& quantized, const Recognition& recognition, const Checkpoint* original,
           const AuditOptions& options = {});
  ~AuditRun() override;

  [[nodiscard]] const Checkpoint& quantized() const;
  [[nodiscard]] const Checkpoint* original() const;
  [[nodiscard]] std::vector<Part> missing() const override;
  [[nodiscard]] std::string line_of(std::size_t part) const override;
  void take(std::string_view lines, const std::string& whose) override;
  /// Looks at what is missing, and gives the result of all.
  [[nodiscard]] Audit result();

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

/// The result of such a run.
[[nodiscard]] Audit audit(const Checkpoint& quantized, const Recognition& recognition, const Checkpoint* original,
                          const AuditOptions& options = {});

}  // namespace fp8lab::experiments
