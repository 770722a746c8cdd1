// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/audit.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "checkpoints/alone.hpp"
#include "checkpoints/coded_matrix.hpp"
#include "checkpoints/dequantize.hpp"
#include "checkpoints/exclusion.hpp"
#include "checkpoints/explanation.hpp"
#include "checkpoints/file_findings.hpp"
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

std::size_t hash_of(std::span<const std::uint8_t> bytes) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}
std::size_t hash_of(std::span<const float> numbers) {
  return std::hash<std::string_view>{}({reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()});
}

/// What is remembered of a matrix until all have been seen.
struct Seen {
  const Weight* weight;
  std::uint64_t expert;
  std::size_t codes, scales;
  bool is_zero = false;
  std::optional<std::size_t> expected_codes = {}, expected_scales = {};
  bool is_right = false;
  bool is_accused = false;  ///< of what its bytes say alone
  std::string writer = {};  ///< of what is expected
  std::optional<std::size_t> codes_differing = {};
  std::size_t scales_differing = 0;
  std::optional<Explanation> explanation = {};
  double loss_db = std::numeric_limits<double>::quiet_NaN();
};

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
  return made.global && *made.global != 0 && std::abs(double{*given.global} / double{*made.global} - 1) < 0x1p-8;
}

/// The tensor that is accused: by what is wrong, the codes or their scales.
std::string accused(const Weight& weight, FindingKind kind) {
  switch (kind) {
    case FindingKind::inverted_scale:
    case FindingKind::transposed_scale:
    case FindingKind::rolled_scale:
    case FindingKind::exchanged_scales:
    case FindingKind::swizzled_scale:
    case FindingKind::exponent_offset:
    case FindingKind::bfloat16_scale:
    case FindingKind::e8m0_as_number:
    case FindingKind::nan_scale:
    case FindingKind::constant_scale:
    case FindingKind::negative_scale: return weight.scale != nullptr ? weight.scale->name : weight.codes->name;
    case FindingKind::inverted_global_scale:
    case FindingKind::stale_global_scale:
    case FindingKind::fused_global_scales:
      return weight.global_scale != nullptr ? weight.global_scale->name : weight.codes->name;
    case FindingKind::file:
    case FindingKind::config:
    case FindingKind::missing_scale:
    case FindingKind::missing_global_scale:
    case FindingKind::missing_expert:
    case FindingKind::scale_rounded_after:
    case FindingKind::other_block:
    case FindingKind::other_scale:
    case FindingKind::clipped:
    case FindingKind::unused_range:
    case FindingKind::kv_scale:
    case FindingKind::input_scale:
    case FindingKind::nan_codes:
    case FindingKind::nibble_order:
    case FindingKind::rows_permuted:
    case FindingKind::elements_shifted:
    case FindingKind::fnuz_codes:
    case FindingKind::e5m2_codes:
    case FindingKind::sign_lost:
    case FindingKind::toward_zero:
    case FindingKind::double_quantized:
    case FindingKind::random_codes:
    case FindingKind::zero_codes:
    case FindingKind::repeated_rows:
    case FindingKind::exchanged_tensors:
    case FindingKind::duplicate_tensor:
    case FindingKind::not_quantized:
    case FindingKind::quantized_though_excluded:
    case FindingKind::other_recipe:
    case FindingKind::damaged: break;
  }
  return weight.codes->name;
}

class Auditor {
 public:
  Auditor(const Checkpoint& quantized, const Recognition& recognition, const Checkpoint* original,
          const AuditOptions& options)
      : quantized_(quantized), recognition_(recognition), original_(original), options_(options) {}

  Audit run() {
    look_at_files();
    look_at_names();
    std::uint64_t all = 0;
    for (const Weight& weight : recognition_.weights) all += weight.elements();
    std::uint64_t done = 0;
    for (const Weight& weight : recognition_.weights) {
      checkpoint();
      look_at(weight);
      done += weight.elements();
      if (options_.progress && all != 0) options_.progress(static_cast<double>(done) / static_cast<double>(all));
    }
    if (original_ != nullptr) explain_by_usual_writers();
    compare_tensors();
    look_at_fused();
    tell();
    return std::move(audit_);
  }

 private:
  void add(std::string tensor, FindingKind kind, std::string words, std::string where = {},
           double loss = std::numeric_limits<double>::quiet_NaN()) {
    audit_.findings.push_back({std::move(tensor), kind, std::move(words), std::move(where), loss});
  }

  // 1. Files and names.
  void look_at_files() {
    for (const FileProblem& problem : quantized_.problems()) {
      lost_.insert(problem.tensors.begin(), problem.tensors.end());
    }
    audit_.findings = findings_of_files(quantized_);
  }
  void look_at_names();
  void look_at_exclusions();
  void look_at_cache_scales();
  void look_at_input_scales();
  void look_at_experts();

  // 2. One weight.
  void look_at(const Weight& weight);
  void look_at(const WeightReader& reader, std::uint64_t expert, AuditedWeight& row);
  void compare(const WeightReader& reader, std::uint64_t expert, const CodedMatrix& given, AuditedWeight& row,
               Seen seen);
  /// Whether a file's problem tells of it already.
  [[nodiscard]] bool is_lost(const Weight& weight) const {
    return lost_.contains(weight.codes->name) || (weight.scale != nullptr && lost_.contains(weight.scale->name));
  }
  std::optional<Nearest> nearest(const Weight& weight, std::uint64_t expert, const CodedMatrix& given,
                                 const NumberMatrix& values, bool global_divides);
  std::optional<float> group_amax(const Weight& weight, std::uint64_t expert, const NumberMatrix& own);

  /// Whoever made most weights of a layout is taken to have made the others: what explains the rest starts there.
  void explain_by_usual_writers();

  // 3. Tensors beside each other.
  void compare_tensors();
  void look_at_fused();
  void tell();

  const Checkpoint& quantized_;
  const Recognition& recognition_;
  const Checkpoint* original_;
  const AuditOptions& options_;
  Audit audit_;
  std::vector<Seen> seen_;
  std::map<const Layout*, std::string> usual_;  ///< who made most weights of a layout, once all have been seen
  std::set<std::string> lost_;                  ///< tensors of which a file's problem tells
  std::set<std::string> accused_alone_;         ///< stems that something was said of already
};

void Auditor::look_at_names() {
  const bool has_lost_tensors = !lost_.empty();
  for (const Incomplete& one : recognition_.incomplete) {
    if (has_lost_tensors && std::any_of(lost_.begin(), lost_.end(), [&](const std::string& name) {
          return one.lacks.find(name) != std::string::npos;
        })) {
      continue;
    }
    const bool lacks_global = one.nearest != nullptr && one.nearest->global != GlobalScale::none &&
                              one.lacks.find(one.nearest->global_scale) != std::string::npos;
    add(one.codes->name, lacks_global ? FindingKind::missing_global_scale : FindingKind::missing_scale, one.lacks);
  }
  for (const std::string& words : recognition_.disagreements) add("config.json", FindingKind::config, words);
  // The configuration is blamed for what disagrees with several weights.
  std::map<std::string, std::vector<const Weight*>> of_words;
  for (const Weight& weight : recognition_.weights) {
    if (!weight.grid_fits) continue;
    for (const std::string& words : weight.disagreements) of_words[words].push_back(&weight);
  }
  for (const auto& [words, weights] : of_words) {
    if (weights.size() == 1) {
      add(weights.front()->name, FindingKind::config, words);
    } else {
      add("config.json", FindingKind::config,
          fmt::format("{}; of {} weights, {} the first", words, weights.size(), weights.front()->name));
    }
  }
  look_at_exclusions();
  look_at_cache_scales();
  look_at_input_scales();
  look_at_experts();
}

/// A name without its numbers: what layers have in common.
std::string role_of(const std::string& name) {
  std::string role;
  for (const char letter : name) {
    const bool is_digit = letter >= '0' && letter <= '9';
    if (!is_digit) role += letter;
    if (is_digit && (role.empty() || role.back() != '#')) role += '#';
  }
  return role;
}

/// Modules that the configuration excludes and the file has quantized, and the other way round.
void Auditor::look_at_exclusions() {
  if (recognition_.weights.empty() || recognition_.method.empty()) return;
  std::map<std::string, const Layout*> roles;
  std::map<const Layout*, Excluded> excluded;
  const auto module_of = [](std::string name) {
    constexpr std::string_view suffix = ".weight";
    if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
    return name;
  };
  for (const Weight& weight : recognition_.weights) {
    const Layout* layout = weight.layout;
    roles.try_emplace(role_of(weight.name), layout);
    const auto [place, is_new] = excluded.try_emplace(layout);
    if (is_new) place->second = excluded_modules(quantized_, *layout);
    const std::string why = place->second.reason(layout->exclusion, module_of(weight.name));
    if (!why.empty()) {
      add(weight.name, FindingKind::quantized_though_excluded, fmt::format("it is quantized, though {}", why));
    }
  }
  for (const StoredTensor* tensor : recognition_.plain) {
    const auto role = roles.find(role_of(tensor->name));
    if (role == roles.end() || tensor->shape.size() != 2) continue;
    if (!excluded.at(role->second).reason(role->second->exclusion, module_of(tensor->name)).empty()) continue;
    add(tensor->name, FindingKind::not_quantized,
        fmt::format("it is stored as {}, and nothing in the configuration excludes it: its list must name it",
                    tensor->dtype));
  }
}

/// The number of a tensor of one element; NaN where it is none.
float scalar_of(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  if (tensor.elements() != 1 || !checkpoint.has_data(tensor)) return std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::byte> bytes = checkpoint.read_whole(tensor);
  if (tensor.dtype == "F32" && bytes.size() == sizeof(float)) {
    float value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  std::uint16_t word = 0;
  if (bytes.size() == sizeof word) std::memcpy(&word, bytes.data(), sizeof word);
  if (tensor.dtype == "BF16") return widened(BFloat16{word});
  if (tensor.dtype == "F16") return widened(Half{word});
  return std::numeric_limits<float>::quiet_NaN();
}

/// Whether a static scale can be one: a positive number.
bool is_usable(float scale) { return std::isfinite(scale) && scale > 0; }

void Auditor::look_at_cache_scales() {
  static const std::regex part("(.*?)[.](?:[kv]_proj[.])?([kvq])_scale");
  std::map<std::string, std::map<std::string, const StoredTensor*>> layers;
  for (const StoredTensor* tensor : recognition_.cache_scales) {
    std::smatch found;
    const std::string& name = tensor->name;
    if (std::regex_match(name, found, part)) layers[found[1]][found[2]] = tensor;
    if (tensor->elements() != 1) continue;
    const float scale = scalar_of(quantized_, *tensor);
    if (!is_usable(scale)) {
      add(name, FindingKind::kv_scale,
          fmt::format("the scale of a KV cache is {:.6g}, which is no positive number", scale));
    }
  }
  for (const auto& [layer, scales] : layers) {
    const bool has_k = scales.contains("k");
    const bool has_v = scales.contains("v");
    if (has_k == has_v) continue;
    add(scales.at(has_k ? "k" : "v")->name, FindingKind::kv_scale,
        fmt::format("{} has {}_scale and no {}_scale", layer, has_k ? "k" : "v", has_k ? "v" : "k"));
  }
}

void Auditor::look_at_input_scales() {
  std::map<const Layout*, std::pair<std::size_t, std::vector<const Weight*>>> by_layout;
  for (const Weight& weight : recognition_.weights) {
    auto& [with, without] = by_layout[weight.layout];
    const StoredTensor* scale = weight.companion(Role::input_scale);
    if (scale == nullptr) scale = weight.companion(Role::input_global_scale);
    if (scale == nullptr) {
      without.push_back(&weight);
      continue;
    }
    ++with;
    if (const float value = scalar_of(quantized_, *scale); scale->elements() == 1 && !is_usable(value)) {
      add(scale->name, FindingKind::input_scale,
          fmt::format("the static scale of an input is {:.6g}, which is no positive number", value));
    }
  }
  for (const auto& [layout, counts] : by_layout) {
    const auto& [with, without] = counts;
    if (with < 4 * without.size() || without.empty()) continue;
    std::string_view suffix;
    for (const CompanionName& name : layout->companions) {
      if (name.role == Role::input_scale || name.role == Role::input_global_scale) suffix = name.suffix;
    }
    for (const Weight* weight : without) {
      add(weight->stem + std::string(suffix), FindingKind::input_scale,
          fmt::format("{} has no static scale of its input, and {} others have", weight->name, with));
    }
  }
}

void Auditor::look_at_experts() {
  static const std::regex part("(.*[.]experts)[.]([0-9]+)[.].*");
  std::map<std::string, std::set<unsigned long>> experts;
  for (const StoredTensor& tensor : quantized_.tensors()) {
    std::smatch found;
    if (std::regex_match(tensor.name, found, part)) experts[found[1]].insert(std::stoul(found[2]));
  }
  for (const auto& [layer, numbers] : experts) {
    for (unsigned long number = 0; number < *numbers.rbegin(); ++number) {
      if (numbers.contains(number)) continue;
      add(fmt::format("{}.{}", layer, number), FindingKind::missing_expert,
          fmt::format("expert {} of {} and more has no tensors", number, *numbers.rbegin() + 1));
    }
  }
}

void Auditor::look_at(const Weight& weight) {
  AuditedWeight row{.name = weight.name, .layout = std::string(weight.layout->name), .elements = weight.elements()};
  const auto has_data = [&](const StoredTensor* tensor) { return tensor == nullptr || quantized_.has_data(*tensor); };
  if (!has_data(weight.codes) || !has_data(weight.scale) || !has_data(weight.global_scale)) {
    row.verdict = "not read: its file ends before";
    audit_.weights.push_back(std::move(row));
    return;
  }
  if (!weight.grid_fits) {
    const std::string words = fmt::format("{}", fmt::join(weight.disagreements, "; "));
    const bool is_turned = words.find("transposed") != std::string::npos;
    const FindingKind kind = is_turned ? FindingKind::transposed_scale : FindingKind::config;
    row.verdict = words;
    add(accused(weight, FindingKind::transposed_scale), kind, words);
    audit_.weights.push_back(std::move(row));
    return;
  }
  if (const auto scales = scales_of_columns(quantized_, weight); scales && !are_scales_of_columns(weight, *scales)) {
    add(weight.companion(Role::pre_quant_scale)->name, FindingKind::input_scale,
        fmt::format("pre_quant_scale has {} numbers of {} columns, or some that are not positive", scales->size(),
                    weight.columns));
  }
  try {
    const WeightReader reader(quantized_, weight);
    for (std::uint64_t expert = 0; expert < weight.experts; ++expert) look_at(reader, expert, row);
  } catch (const std::runtime_error& error) {
    row.verdict = error.what();
    if (!is_lost(weight)) add(weight.codes->name, FindingKind::damaged, error.what());
  } catch (const std::invalid_argument& error) {
    row.verdict = error.what();
    add(weight.codes->name, FindingKind::damaged, error.what());
  }
  if (weight.layout->grouping == Grouping::block && weight.rows % weight.block_rows != 0 &&
      weight.rows % weight.grid_rows == 0) {
    audit_.misreads.push_back(
        {weight.codes->name, "transformers, Quark",
         fmt::format("they derive the block from the shapes and read blocks of {} rows, not of {}",
                     weight.rows / weight.grid_rows, weight.block_rows)});
  }
  audit_.weights.push_back(std::move(row));
}

std::optional<float> Auditor::group_amax(const Weight& weight, std::uint64_t expert, const NumberMatrix& own) {
  const std::vector<std::string> names = fused_names(*weight.layout, weight.name);
  if (names.empty()) return {};
  float largest = own.amax();
  for (const std::string& name : names) {
    const Weight* member = recognition_.find(name);
    if (member == nullptr || member == &weight) continue;
    if (const auto values = read_original(quantized_, *original_, *member, expert))
      largest = std::max(largest, values->amax());
  }
  return largest;
}

std::optional<Nearest> Auditor::nearest(const Weight& weight, std::uint64_t expert, const CodedMatrix& given,
                                        const NumberMatrix& values, bool global_divides) {
  const std::optional<float> of_group = group_amax(weight, expert, values);
  std::optional<Nearest> best;
  const auto weight_of = [](const Differences& d) { return d.codes + d.scales + (d.global ? 1 : 0); };
  const auto usual = usual_.find(weight.layout);
  for (const Writer& writer : writers_of(weight)) {
    if (usual != usual_.end() && writer.name != usual->second) continue;
    ExpectedMatrix maker{.original = values.view(),
                         .recipe = writer.recipe,
                         .global_divides = global_divides,
                         .threads = options_.threads,
                         .make = writer.make};
    // 1. The tensor's own amax; 2. that of its fused group; 3. the scale of the tensor that is stored, where
    // it is this tensor's up to a rounding to bfloat16.
    for (const int way : {1, 2, 3}) {
      if (way == 2 && (!of_group || !has_scale_of_tensor(writer.recipe))) continue;
      if (way == 3 && (!given.global || !best || !is_rounded(given, best->made))) continue;
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

void Auditor::look_at(const WeightReader& reader, std::uint64_t expert, AuditedWeight& row) {
  const Weight& weight = reader.weight();
  const CodedMatrix given = read_coded_matrix(reader, expert);
  Seen seen{.weight = &weight, .expert = expert, .codes = hash_of(given.codes), .scales = hash_of(given.scales)};
  seen.is_zero = std::all_of(given.codes.begin(), given.codes.end(),
                             [&](std::uint8_t code) { return (code & given.format.magnitude_mask()) == 0; });
  // 1. What the bytes say of themselves.
  const MatrixNames names{
      .codes = weight.codes->name,
      .scale = weight.scale != nullptr ? weight.scale->name : weight.codes->name,
      .global_scale = weight.global_scale != nullptr ? weight.global_scale->name : weight.codes->name,
      .at = weight.stacked ? fmt::format("expert {}: ", expert) : ""};
  std::vector<CheckpointFinding> alone = findings_alone(given, names);
  const bool is_accused = !alone.empty();
  if (is_accused) accused_alone_.insert(weight.stem);
  for (CheckpointFinding& finding : alone) {
    row.verdict = finding.words;
    audit_.findings.push_back(std::move(finding));
  }
  // 2. The original's.
  seen.is_accused = is_accused;
  compare(reader, expert, given, row, std::move(seen));
}

void Auditor::compare(const WeightReader& reader, std::uint64_t expert, const CodedMatrix& given, AuditedWeight& row,
                      Seen seen) {
  const Weight& weight = reader.weight();
  if (original_ != nullptr && has_low_rank_part(weight)) {
    row.verdict = "not compared: a matrix of low rank, svdquant_lora_a and _b, was taken from it before";
    seen_.push_back(std::move(seen));
    return;
  }
  const auto values = original_ == nullptr ? std::nullopt : read_original(quantized_, *original_, weight, expert);
  if (!values) {
    if (original_ != nullptr && expert == 0) audit_.without_original.push_back(weight.name);
    seen_.push_back(std::move(seen));
    return;
  }
  const auto best = nearest(weight, expert, given, *values, weight.layout->global == GlobalScale::divisor);
  row.sqnr_db = sqnr_of(*values, given);
  if (!best) {
    seen_.push_back(std::move(seen));
    return;
  }
  seen.expected_codes = hash_of(best->made.codes);
  seen.expected_scales = hash_of(best->made.scales);
  seen.is_right = best->differ.none();
  seen.writer = best->recipe;
  if (seen.codes_differing) {  // by another rule, before
    row.codes_differing -= *seen.codes_differing;
    row.scales_differing -= seen.scales_differing;
  }
  seen.codes_differing = best->differ.codes;
  seen.scales_differing = best->differ.scales;
  row.codes_differing += best->differ.codes;
  row.scales_differing += best->differ.scales;
  row.nearest = best->recipe;
  seen.loss_db = seen.is_right ? 0 : sqnr_of(*values, best->made) - row.sqnr_db;
  row.loss_db = std::isnan(row.loss_db) ? seen.loss_db : std::max(row.loss_db, seen.loss_db);
  if (seen.is_right) {
    if (expert == 0) row.recipe = best->recipe;
  } else {
    row.recipe.clear();
    if (is_scaled_before(weight) && seen.loss_db < most_loss_by_scaled_columns) {
      row.verdict = fmt::format("made by {}, but for what the rounding of pre_quant_scale leaves open", best->recipe);
    } else if (!seen.is_accused && !is_lost(weight)) {
      std::vector<Recipe> rules;
      for (const Writer& writer : writers_of(weight)) rules.push_back(writer.recipe);
      seen.explanation = explain(given, best->made, best->maker, rules);
    }
  }
  if (!seen.is_right && seen.is_accused) {
    for (CheckpointFinding& finding : audit_.findings) {
      const bool is_own = finding.tensor == weight.codes->name ||
                          (weight.scale != nullptr && finding.tensor == weight.scale->name) ||
                          (weight.global_scale != nullptr && finding.tensor == weight.global_scale->name);
      if (is_own && std::isnan(finding.loss_db)) finding.loss_db = seen.loss_db;
    }
  }
  seen_.push_back(std::move(seen));
}

void Auditor::explain_by_usual_writers() {
  std::map<const Layout*, std::map<std::string, std::size_t>> counts;
  for (const Seen& seen : seen_) {
    if (seen.is_right) ++counts[seen.weight->layout][seen.writer];
  }
  for (const auto& [layout, writers] : counts) {
    usual_[layout] = std::max_element(writers.begin(), writers.end(), [](const auto& a, const auto& b) {
                       return a.second < b.second;
                     })->first;
  }
  const std::vector<Seen> before = std::exchange(seen_, {});
  for (const Seen& seen : before) {
    const bool is_done = seen.is_right || !seen.expected_codes || seen.writer == usual_[seen.weight->layout] ||
                         usual_[seen.weight->layout].empty();
    if (is_done) {
      seen_.push_back(seen);
      continue;
    }
    checkpoint();
    const auto row = std::find_if(audit_.weights.begin(), audit_.weights.end(),
                                  [&](const AuditedWeight& one) { return one.name == seen.weight->name; });
    const WeightReader reader(quantized_, *seen.weight);
    compare(reader, seen.expert, read_coded_matrix(reader, seen.expert), *row, seen);
  }
}

/// Weights with the codes or scales of another, and two with the same bytes.
void Auditor::compare_tensors() {
  std::unordered_map<std::size_t, const Seen*> by_codes, by_expected_codes, by_expected_scales;
  for (const Seen& seen : seen_) {
    if (seen.expected_codes) by_expected_codes.try_emplace(*seen.expected_codes, &seen);
    if (seen.expected_scales) by_expected_scales.try_emplace(*seen.expected_scales, &seen);
  }
  for (Seen& seen : seen_) {
    const auto [first, is_new] = by_codes.try_emplace(seen.codes, &seen);
    if (!is_new && !seen.is_zero && !seen.is_right && first->second->weight->elements() >= 64) {
      seen.explanation.reset();
      add(seen.weight->codes->name, FindingKind::duplicate_tensor,
          fmt::format("its codes are those of {}", first->second->weight->codes->name), {}, seen.loss_db);
      continue;
    }
    if (!seen.explanation) continue;
    const auto other_codes = by_expected_codes.find(seen.codes);
    if (other_codes != by_expected_codes.end() && other_codes->second->weight != seen.weight) {
      seen.explanation =
          Explanation{FindingKind::exchanged_tensors,
                      fmt::format("its codes are those of the original of {}", other_codes->second->weight->name)};
      continue;
    }
    const auto other_scales = by_expected_scales.find(seen.scales);
    if (seen.codes == seen.expected_codes && other_scales != by_expected_scales.end() &&
        other_scales->second->weight != seen.weight) {
      seen.explanation = Explanation{FindingKind::exchanged_scales,
                                     fmt::format("its scales are those of {}", other_scales->second->weight->name)};
    }
  }
}

/// Parts of a fused layer have one scale of the tensor, or a server takes one of them for all.
void Auditor::look_at_fused() {
  std::map<std::string, std::vector<std::pair<const Weight*, float>>> groups;
  for (const Weight& weight : recognition_.weights) {
    const bool divides = weight.layout->global == GlobalScale::divisor;
    if ((!divides && weight.layout->global != GlobalScale::multiplier) || weight.global_scale == nullptr ||
        weight.stacked) {
      continue;
    }
    for (const auto& group : weight.layout->fused) {
      for (const std::string_view part : group) {
        const std::size_t at = weight.name.rfind(part);
        if (at == std::string::npos) continue;
        std::string key = weight.name;
        key.replace(at, part.size(), group.front());
        groups[key].emplace_back(&weight, scalar_of(quantized_, *weight.global_scale));
      }
    }
  }
  for (const auto& [key, parts] : groups) {
    float largest = 0;
    bool differ = false;
    for (const auto& [weight, scale] : parts) {
      if (accused_alone_.contains(weight->stem) || !is_usable(scale)) {
        differ = false;
        break;
      }
      differ = differ || scale != parts.front().second;
      largest = std::max(largest, scale);
    }
    // With the original at hand, a part that is stale is told by itself.
    if (!differ || std::any_of(seen_.begin(), seen_.end(), [&](const Seen& seen) {
          return seen.explanation && seen.explanation->kind == FindingKind::stale_global_scale &&
                 std::any_of(parts.begin(), parts.end(), [&](const auto& part) { return part.first == seen.weight; });
        })) {
      continue;
    }
    for (const auto& [weight, scale] : parts) {
      const bool divides = weight->layout->global == GlobalScale::divisor;
      add(weight->global_scale->name, FindingKind::fused_global_scales,
          fmt::format("the parts of this fused layer have other scales of the tensor: a server that takes one for all "
                      "multiplies this part by {:.6g}",
                      divides ? scale / largest : largest / scale));
    }
  }
}

void Auditor::tell() {
  std::unordered_map<std::string_view, AuditedWeight*> rows;
  for (AuditedWeight& row : audit_.weights) rows[row.name] = &row;
  std::set<std::pair<const Weight*, FindingKind>> told;
  for (const Seen& seen : seen_) {
    AuditedWeight& row = *rows.at(seen.weight->name);
    if (!seen.explanation) continue;
    row.verdict = seen.explanation->words;
    if (!told.insert({seen.weight, seen.explanation->kind}).second) continue;  // another expert
    const std::string prefix = seen.weight->stacked ? fmt::format("expert {}: ", seen.expert) : "";
    add(accused(*seen.weight, seen.explanation->kind), seen.explanation->kind, prefix + seen.explanation->words,
        seen.explanation->where, seen.loss_db);
  }
  for (AuditedWeight& row : audit_.weights) {
    if (row.verdict.empty()) row.verdict = row.recipe.empty() ? "nothing to say" : "made by " + row.recipe;
  }
}

}  // namespace

Audit audit(const Checkpoint& quantized, const Recognition& recognition, const Checkpoint* original,
            const AuditOptions& options) {
  return Auditor(quantized, recognition, original, options).run();
}

}  // namespace fp8lab::experiments
