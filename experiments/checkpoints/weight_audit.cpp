// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/weight_audit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "checkpoints/accused.hpp"
#include "checkpoints/alone.hpp"
#include "checkpoints/coded_matrix.hpp"
#include "checkpoints/dequantize.hpp"
#include "checkpoints/matrices.hpp"
#include "checkpoints/original_names.hpp"
#include "checkpoints/writers.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/widen.hpp"

namespace fp8lab::experiments {

namespace {

/// The scales by which ModelOpt divided the columns before it quantized; none where there are none.
std::optional<std::vector<float>> scales_of_columns(const Checkpoint& quantized, const Weight& weight) {
  const StoredTensor* const tensor = weight.companion(Role::pre_quant_scale);
  if (tensor == nullptr) return {};
  return read_floats(quantized, *tensor);
}
bool are_scales_of_columns(const Weight& weight, const std::vector<float>& scales) {
  return scales.size() == weight.columns &&
         std::ranges::all_of(scales, [](float scale) { return std::isfinite(scale) && scale > 0; });
}

/// The original of one expert of a weight, as it was before it was quantized; none where there is no tensor of its name
/// and size with numbers.
std::optional<NumberMatrix> read_original(const Checkpoint& quantized, const Checkpoint& original, const Weight& weight,
                                          std::uint64_t expert) {
  const auto [tensor, slice] = find_original(original, weight, expert);
  if (tensor == nullptr) return {};
  auto matrix = read_numbers(original, *tensor,
                             {.slice = slice,
                              .rows = weight.rows,
                              .columns = weight.columns,
                              .transposed = weight.layout->transposed && tensor->shape.size() == 3});
  if (const auto scales = scales_of_columns(quantized, weight); matrix && scales) {
    if (!are_scales_of_columns(weight, *scales)) return {};
    divide_columns(*matrix, *scales);
  }
  return matrix;
}

/// dB: a scale of columns that is rounded to bfloat16 moves an element by at most 2^-8 of it, where the original is not
/// the rounded one's, and few codes; damage costs more.
constexpr double most_loss_by_scaled_columns = 0.5;

/// Whether it was scaled by columns before it was quantized, and the scale is stored in fewer bits than the one that
/// scaled it: codes and scales of the original may then differ in a few places.
bool is_scaled_before(const Weight& weight) { return weight.companion(Role::pre_quant_scale) != nullptr; }

/// Whether a matrix of low rank was subtracted before the weight was quantized, which nobody can make again.
bool has_low_rank_part(const Weight& weight) {
  return std::ranges::any_of(weight.companions, [](const Companion& companion) {
    return companion.tensor->name.find(".svdquant_lora_") != std::string::npos;
  });
}

/// 10 log10 of the original's energy over that of the error of codes and scales; infinite where they are equal. Nothing
/// is held beside the two matrices.
double sqnr_of(const NumberMatrix& original, const CodedMatrix& coded) {
  const std::vector<float> of_code = code_values(coded.format);
  double signal = 0;
  double noise = 0;
  std::visit(
      [&](const auto& all) {
        for (std::size_t row = 0; row < coded.rows; ++row) {
          checkpoint();
          for (std::size_t first = 0; first < coded.columns; first += coded.block_columns) {
            const float factor = factor_of(coded, coded.scale_of(row, first));
            const std::size_t end = std::min(coded.columns, first + coded.block_columns);
            for (std::size_t i = row * coded.columns + first; i < row * coded.columns + end; ++i) {
              const double x = widened(all[i]);
              const double error = double{of_code[coded.codes[i]] * factor} - x;
              signal += x * x;
              noise += error * error;
            }
          }
        }
      },
      original.values);
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(signal / noise);
}

std::uint64_t hash_of(std::span<const std::uint8_t> bytes) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}
std::uint64_t hash_of(std::span<const float> numbers) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
}

/// The recipe of a layout that comes nearest.
struct Nearest {
  std::string recipe;
  ExpectedMatrix maker;
  CodedMatrix made;
  Differences differ;
};

bool has_scale_of_tensor(const Recipe& recipe) {
  return recipe.tensor_scale != TensorScaleRule::none || (recipe.tile_across == 0 && recipe.tile_along == 0);
}

/// Whether the stored scale of the tensor is the one that was made, or that rounded to bfloat16: half a unit of 8 bits.
bool is_rounded(const CodedMatrix& given, const CodedMatrix& made) {
  if (!given.global || !made.global || *made.global == 0) return false;
  return std::abs(double{*given.global} / double{*made.global} - 1) < 0x1p-8;
}

/// Looks at one weight.
class WeightAuditor {
 public:
  WeightAuditor(const AuditedModel& model, const Weight& weight, AuditPart& part)
      : model_(model), weight_(weight), part_(part) {
    for (const FileProblem& problem : model.quantized->problems()) {
      is_lost_ = is_lost_ || std::ranges::any_of(problem.tensors, [&](const std::string& name) {
                   return name == weight.codes->name || (weight.scale != nullptr && name == weight.scale->name);
                 });
    }
  }

  void look();
  void compare(const WeightReader& reader, const CodedMatrix& given, const std::string& only, MatrixPart& matrix);

 private:
  void add(std::string tensor, FindingKind kind, std::string words) {
    part_.findings.push_back({std::move(tensor), kind, std::move(words)});
  }
  [[nodiscard]] bool can_be_read();
  void look_at_scales_of_columns();
  void look_at_misreading();
  void look(const WeightReader& reader, std::uint64_t expert);
  [[nodiscard]] std::optional<float> group_amax(std::uint64_t expert, const NumberMatrix& own) const;
  [[nodiscard]] std::optional<Nearest> nearest(std::uint64_t expert, const CodedMatrix& given,
                                               const NumberMatrix& values, const std::string& only) const;
  void take(const Nearest& best, const NumberMatrix& values, const CodedMatrix& given, MatrixPart& matrix);

  const AuditedModel& model_;
  const Weight& weight_;
  AuditPart& part_;
  bool is_lost_ = false;  ///< a file's problem tells of it already
};

/// False where nothing of it can be looked at, which the row says.
bool WeightAuditor::can_be_read() {
  for (const StoredTensor* tensor : {weight_.codes, weight_.scale, weight_.global_scale}) {
    if (tensor == nullptr || model_.quantized->has_data(*tensor)) continue;
    part_.row.verdict = "not read: its file ends before";
    return false;
  }
  if (weight_.grid_fits) return true;
  const std::string words = fmt::format("{}", fmt::join(weight_.disagreements, "; "));
  const bool is_turned = words.find("transposed") != std::string::npos;
  part_.row.verdict = words;
  add(accused(weight_, FindingKind::transposed_scale), is_turned ? FindingKind::transposed_scale : FindingKind::config,
      words);
  return false;
}

void WeightAuditor::look_at_scales_of_columns() {
  const auto scales = scales_of_columns(*model_.quantized, weight_);
  if (!scales || are_scales_of_columns(weight_, *scales)) return;
  add(weight_.companion(Role::pre_quant_scale)->name, FindingKind::input_scale,
      fmt::format("pre_quant_scale has {} numbers of {} columns, or some that are not positive", scales->size(),
                  weight_.columns));
}

void WeightAuditor::look_at_misreading() {
  if (weight_.layout->grouping != Grouping::block || weight_.rows % weight_.block_rows == 0) return;
  if (weight_.rows % weight_.grid_rows != 0) return;
  part_.misreads.push_back({weight_.codes->name, "transformers, Quark",
                            fmt::format("they derive the block from the shapes and read blocks of {} rows, not of {}",
                                        weight_.rows / weight_.grid_rows, weight_.block_rows)});
}

void WeightAuditor::look() {
  if (!can_be_read()) return;
  look_at_scales_of_columns();
  try {
    const WeightReader reader(*model_.quantized, weight_);
    for (std::uint64_t expert = 0; expert < weight_.experts; ++expert) look(reader, expert);
  } catch (const std::runtime_error& error) {
    part_.row.verdict = error.what();
    if (!is_lost_) add(weight_.codes->name, FindingKind::damaged, error.what());
  } catch (const std::invalid_argument& error) {
    part_.row.verdict = error.what();
    add(weight_.codes->name, FindingKind::damaged, error.what());
  }
  look_at_misreading();
}

void WeightAuditor::look(const WeightReader& reader, std::uint64_t expert) {
  const CodedMatrix given = read_coded_matrix(reader, expert);
  MatrixPart matrix{.expert = expert, .codes = hash_of(given.codes), .scales = hash_of(given.scales)};
  matrix.is_zero =
      std::ranges::all_of(given.codes, [&](std::uint8_t code) { return (code & given.format.magnitude_mask()) == 0; });
  // 1. What the bytes say of themselves.
  const MatrixNames names{
      .codes = weight_.codes->name,
      .scale = weight_.scale != nullptr ? weight_.scale->name : weight_.codes->name,
      .global_scale = weight_.global_scale != nullptr ? weight_.global_scale->name : weight_.codes->name,
      .at = weight_.stacked ? fmt::format("expert {}: ", expert) : ""};
  for (CheckpointFinding& finding : findings_alone(given, names)) {
    part_.row.verdict = finding.words;
    part_.findings.push_back(std::move(finding));
    matrix.is_accused = true;
  }
  // 2. What the original says.
  if (model_.original != nullptr) compare(reader, given, "", matrix);
  part_.matrices.push_back(std::move(matrix));
}

std::optional<float> WeightAuditor::group_amax(std::uint64_t expert, const NumberMatrix& own) const {
  const std::vector<std::string> names = fused_names(*weight_.layout, weight_.name);
  if (names.empty()) return {};
  float largest = own.amax();
  for (const std::string& name : names) {
    const Weight* member = model_.recognition->find(name);
    if (member == nullptr || member == &weight_) continue;
    if (const auto values = read_original(*model_.quantized, *model_.original, *member, expert)) {
      largest = std::max(largest, values->amax());
    }
  }
  return largest;
}

std::optional<Nearest> WeightAuditor::nearest(std::uint64_t expert, const CodedMatrix& given,
                                              const NumberMatrix& values, const std::string& only) const {
  const std::optional<float> of_group = group_amax(expert, values);
  std::optional<Nearest> best;
  const auto weight_of = [](const Differences& d) { return d.codes + d.scales + (d.global ? 1 : 0); };
  for (const Writer& writer : writers_of(weight_)) {
    if (!only.empty() && writer.name != only) continue;
    ExpectedMatrix maker{.original = values.view(),
                         .recipe = writer.recipe,
                         .global_divides = weight_.layout->global == GlobalScale::divisor,
                         .threads = model_.threads,
                         .make = writer.make};
    // 1. The tensor's own amax; 2. that of its fused group; 3. the scale of the tensor that is stored, where
    // it is this tensor's up to a rounding to bfloat16.
    for (const int way : {1, 2, 3}) {
      if (way == 2 && (!of_group || !has_scale_of_tensor(writer.recipe))) continue;
      if (way == 3 && (!best || !is_rounded(given, best->made))) continue;
      if (way == 2) maker.group_amax = of_group;
      if (way == 3) maker.stored_global = given.global;
      CodedMatrix made = quantized_as(maker);
      if (!made.global && given.global == 1.0F) made.global = 1;  // which GGUF may state or leave out
      const Differences differ = differences(given, made);
      if (!best || weight_of(differ) < weight_of(best->differ))
        best = Nearest{writer.name, maker, std::move(made), differ};
      if (best->differ.none()) return best;
    }
  }
  return best;
}

void WeightAuditor::compare(const WeightReader& reader, const CodedMatrix& given, const std::string& only,
                            MatrixPart& matrix) {
  if (has_low_rank_part(reader.weight())) {
    part_.row.verdict = "not compared: a matrix of low rank, svdquant_lora_a and _b, was taken from it before";
    return;
  }
  const auto values = read_original(*model_.quantized, *model_.original, weight_, matrix.expert);
  if (!values) {
    part_.is_without_original = part_.is_without_original || matrix.expert == 0;
    return;
  }
  const auto best = nearest(matrix.expert, given, *values, only);
  part_.row.sqnr_db = sqnr_of(*values, given);
  if (best) take(*best, *values, given, matrix);
}

void WeightAuditor::take(const Nearest& best, const NumberMatrix& values, const CodedMatrix& given,
                         MatrixPart& matrix) {
  AuditedWeight& row = part_.row;
  matrix.expected_codes = hash_of(best.made.codes);
  matrix.expected_scales = hash_of(best.made.scales);
  matrix.is_right = best.differ.none();
  matrix.writer = best.recipe;
  if (matrix.codes_differing) {  // by another rule, before
    row.codes_differing -= *matrix.codes_differing;
    row.scales_differing -= matrix.scales_differing;
  }
  matrix.codes_differing = best.differ.codes;
  matrix.scales_differing = best.differ.scales;
  row.codes_differing += best.differ.codes;
  row.scales_differing += best.differ.scales;
  row.nearest = best.recipe;
  matrix.loss_db = matrix.is_right ? 0 : sqnr_of(values, best.made) - row.sqnr_db;
  row.loss_db = std::isnan(row.loss_db) ? matrix.loss_db : std::max(row.loss_db, matrix.loss_db);
  if (matrix.is_right) {
    if (matrix.expert == 0) row.recipe = best.recipe;
    return;
  }
  row.recipe.clear();
  if (matrix.is_accused) return tell_loss(weight_, matrix.loss_db, part_.findings);
  if (is_lost_) return;
  if (is_scaled_before(weight_) && matrix.loss_db < most_loss_by_scaled_columns) {
    row.verdict = fmt::format("made by {}, but for what the rounding of pre_quant_scale leaves open", best.recipe);
    return;
  }
  std::vector<Recipe> rules;
  for (const Writer& writer : writers_of(weight_)) rules.push_back(writer.recipe);
  matrix.explanation = explain(given, best.made, best.maker, rules);
}

}  // namespace

AuditedWeight row_of(const Weight& weight) {
  return {.name = weight.name, .layout = std::string(weight.layout->name), .elements = weight.elements()};
}

AuditPart audit_weight(const AuditedModel& model, const Weight& weight) {
  AuditPart part{.row = row_of(weight)};
  WeightAuditor(model, weight, part).look();
  return part;
}

void compare_by(const AuditedModel& model, const Weight& weight, const std::string& writer, MatrixPart& matrix,
                AuditPart& part) {
  const WeightReader reader(*model.quantized, weight);
  WeightAuditor(model, weight, part).compare(reader, read_coded_matrix(reader, matrix.expert), writer, matrix);
}

void tell_loss(const Weight& weight, double loss_db, std::vector<CheckpointFinding>& findings) {
  for (CheckpointFinding& finding : findings) {
    const bool is_own = finding.tensor == weight.codes->name ||
                        (weight.scale != nullptr && finding.tensor == weight.scale->name) ||
                        (weight.global_scale != nullptr && finding.tensor == weight.global_scale->name);
    if (is_own && std::isnan(finding.loss_db)) finding.loss_db = loss_db;
  }
}

}  // namespace fp8lab::experiments
