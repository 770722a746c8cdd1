// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kit/chosen.hpp"
#include "kit/document.hpp"
#include "kit/experiment.hpp"
#include "kit/magnitudes.hpp"
#include "kit/parted_run.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {

class KeptTensors;

/// The arguments of the experiment: what each recipe makes of the weights of a model.
struct CheckArguments {
  TensorSource source = Draws{.rows = 256, .columns = 1024};
  std::vector<ChosenRecipe> recipes = {choose_recipe("modelopt_fp8"),
                                       choose_recipe("compressed_tensors_channel"),
                                       choose_recipe("compressed_tensors_block"),
                                       choose_recipe("ocp_mxfp8_e4m3"),
                                       choose_recipe("ocp_mxfp4"),
                                       choose_recipe("modelopt_nvfp4")};
  /// Patterns of tensors that are not measured and stay in their type, as checkpoints leave them.
  std::vector<std::string> ignore = {"*lm_head*", "*embed*", "*norm*", "*router*", "*.gate.weight"};
  double tolerance = 3;                        ///< dB below normal values that the median row of a tensor may have
  double row_tolerance = 12;                   ///< the same for its worst row
  double zeroed_tolerance = 0.02;              ///< the share of elements that become zero, above that of normal values
  std::optional<double> min_sqnr = {};         ///< dB of the median row: what the plan quantizes
  std::optional<double> bits_per_weight = {};  ///< what the plan may take
  std::optional<std::filesystem::path> plan = {};        ///< a folder for its files
  std::optional<std::filesystem::path> checkpoint = {};  ///< where the results of tensors are kept
  bool resume = false;                                   ///< go on from the checkpoint
  std::optional<std::string> scheduler = {};             ///< of a cluster that measures, which the context gives
  /// Inputs of layers, (tokens, columns of the weight), by the names of their weights, with or without ".weight" or
  /// ".input" behind: with them the errors of outputs are measured, too.
  std::optional<TensorSource> activations = {};
  std::size_t activation_rows = 32;         ///< of each, in equal steps; a scale of the tensor is made of them alone
  std::vector<MmaModel> tensor_cores = {};  ///< what multiplies; empty: one of H100 or B200 that takes the recipe
  int threads = 1;                          ///< changes nothing but the time
};

/// What a recipe makes of one tensor. SQNRs are in dB of what comes back in float32, infinite without error, NaN where
/// there is nothing to compare. Rows of zeros alone have none.
struct CheckedRecipe {
  double sqnr_db = 0;
  double median_row_sqnr_db = 0;  ///< of an even number of rows the lower one of the middle
  double worst_row_sqnr_db = 0;
  std::uint64_t worst_row = 0;       ///< the first of these
  std::uint64_t zeroed = 0;          ///< finite nonzero elements that came back as zero
  std::uint64_t subnormal = 0;       ///< codes below the format's smallest normal value, zero excluded
  std::uint64_t blocks = 0;          ///< groups of elements with a scale
  std::uint64_t clipped_blocks = 0;  ///< those with an element above the format's largest value after scaling
  double bits_per_weight = 0;        ///< codes and scales
};

/// A tensor and what the recipes make of it, in their order.
struct CheckedTensor {
  std::string name;      ///< as SourceTensor has it
  std::string own_name;  ///< the same
  std::uint64_t rows = 0, columns = 0;
  double amax = 0;               ///< of the finite elements
  double rms = 0;                ///< of these
  std::uint64_t not_finite = 0;  ///< infinities and NaNs, which count as 0 where errors are added up
  std::uint64_t zero_rows = 0;   ///< rows without anything else
  std::optional<Concentration> concentration = {};
  std::vector<CheckedRecipe> recipes = {};

  [[nodiscard]] std::uint64_t size() const { return rows * columns; }
  [[nodiscard]] double crest() const { return rms > 0 ? amax / rms : 0; }
};

/// How a recipe suits a tensor.
enum class Suitability : std::uint8_t {
  suits,   ///< as well as normal values
  rows,    ///< the median row does, but a row is worse than row_tolerance allows
  small,   ///< more elements than zeroed_tolerance allows become zero
  hurts,   ///< the median row is worse than tolerance allows
  broken,  ///< elements, or all that comes back, are not finite
};
[[nodiscard]] std::span<const Named<Suitability>> named_values(Suitability of_type);

/// The outputs y = x w^T of a layer by a recipe on a tensor core, in float32, beside the real products of the values
/// before their cast: SQNRs in dB, as those of CheckedRecipe.
struct CheckedOutputs {
  std::size_t tensor = 0;  ///< of CheckResult::tensors
  std::size_t recipe = 0;  ///< of CheckArguments::recipes
  std::string core = {};
  std::uint64_t rows = 0, of_rows = 0;  ///< of the inputs: those that were taken, and all
  double sqnr_db = 0;
  double weight_sqnr_db = 0;        ///< where the weight's cast alone is at work
  double inputs_sqnr_db = 0;        ///< where the inputs' cast alone is
  double accumulation_sqnr_db = 0;  ///< where the factors are as cast, and the core's sums alone err
  double worst_row_sqnr_db = std::numeric_limits<double>::quiet_NaN();
  std::uint64_t worst_row = 0;   ///< of all rows of the inputs; the first of these
  std::uint64_t not_finite = 0;  ///< outputs that are left out, because a number of theirs is not finite
};

struct CheckResult {
  CheckArguments arguments = {};
  std::string source = {};  ///< in words, one line
  std::vector<CheckedTensor> tensors = {};
  std::vector<LeftOutTensor> left_out = {};
  std::vector<CheckedOutputs> outputs = {};  ///< of the layers whose inputs are known
  CheckedTensor normal = {};                 ///< what the recipes make of 256 x 4096 normal values in bfloat16
};

/// What a recipe makes of the tensor beside what it makes of normal values.
[[nodiscard]] Suitability suitability(const CheckArguments& arguments, const CheckedTensor& normal,
                                      const CheckedTensor& tensor, std::size_t recipe);

/// Measures every recipe on every tensor, a band of rows at a time: what is in memory does not grow with the rows of a
/// tensor, but for 8 bytes a row and recipe. Scales of a tensor are made of the amax of its finite elements. Nothing
/// depends on threads or bands.
///
/// Throws std::invalid_argument for wrong arguments, recipes with random bits or scales for more than 256 rows but not
/// all, and what TensorStream throws.
[[nodiscard]] CheckResult run_check(const CheckArguments& arguments, const Context& context = {});

/// A run whose parts are the tensors of the stream. Which process measured what changes nothing in the result.
class CheckRun final : public PartedRun {
 public:
  /// Reads the headers of the files, and the checkpoint where the run goes on from one. Throws what run_check() throws.
  explicit CheckRun(CheckArguments arguments, Context context = {});
  ~CheckRun() override;

  [[nodiscard]] const CheckArguments& arguments() const { return arguments_; }
  [[nodiscard]] const TensorStream& stream() const { return stream_; }
  [[nodiscard]] std::vector<Part> missing() const override;
  [[nodiscard]] std::string line_of(std::size_t part) const override;
  void take(std::string_view lines, const std::string& whose) override;
  /// Measures what is missing, and gives the result of all.
  [[nodiscard]] CheckResult result();

 private:
  [[nodiscard]] std::string line_of(std::size_t tensor, const Progress& progress) const;
  void tell() const;
  /// So many elements are done, of the tensors that are known and the one that is measured.
  void tell(double elements) const;

  CheckArguments arguments_;
  Context context_;
  TensorStream stream_;
  std::unique_ptr<KeptTensors> kept_;
  double before_ = 0;  // elements that the checkpoint knew
  double bytes_ = 0;   // of all tensors; 0 where they are of no file
};

/// Throws std::invalid_argument where a run asks for a scheduler and this process has no library for clusters.
void check_cluster(const Context& context);

/// The measures of one tensor of a stream by all recipes. `progress` is called on the calling thread.
[[nodiscard]] CheckedTensor check_tensor(const TensorStream& stream, std::size_t tensor,
                                         const std::vector<ChosenRecipe>& recipes, int threads,
                                         const Progress& progress = {});

/// Measures the outputs of the layers whose inputs there are, and tells which cannot be. Throws std::invalid_argument
/// where no inputs have the name of a weight.
void check_outputs(const CheckArguments& arguments, const TensorStream& weights, const TensorStream& inputs,
                   CheckResult& result);

/// What a tensor is stored as in a plan: the index of a recipe, or none for its own type.
struct PlannedGroup {
  std::vector<std::string> modules;  ///< names without ".weight"
  std::vector<std::size_t> tensors;  ///< indices in CheckResult::tensors
  std::optional<std::size_t> recipe;
  double sqnr_db = 0;  ///< of the median row of its worst tensor
};
struct Plan {
  std::vector<PlannedGroup> groups;
  double bits_per_weight = 0;  ///< of all measured tensors
};
/// For min_sqnr: the recipe of the fewest bits by which the median row of each tensor of a group has it. For
/// bits_per_weight: those that leave the least noise, relative to each tensor's energy, within the bits (by the largest
/// decrease a bit, on the convex hull of each group). Tensors that servers fuse (q, k, v; gate, up; the experts of a
/// layer) are a group. Recipes that break a tensor are no choice.
[[nodiscard]] Plan plan_of(const CheckResult& result);
/// Writes the plan as other tools read it, one file each: the quantization_config of compressed-tensors and of
/// ModelOpt. Throws std::runtime_error where it cannot be written, std::invalid_argument for a recipe that a tool has
/// not.
void write_plan(const CheckResult& result, const Plan& plan, const std::filesystem::path& folder);

/// The result as tables and words.
[[nodiscard]] Document document_of(const CheckResult& result);

}  // namespace fp8lab::experiments
