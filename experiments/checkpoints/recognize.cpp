// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/recognize.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "files/tensor_file.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"

namespace fp8lab::experiments {
namespace {

using ConfigJson = nlohmann::json;

std::uint64_t rounded_up(std::uint64_t x, std::uint64_t by) { return by == 0 ? 0 : x / by + (x % by != 0 ? 1 : 0); }

std::string size_words(std::uint64_t rows, std::uint64_t columns) {
  return std::to_string(rows) + "x" + std::to_string(columns);
}

/// A text of an object, or empty.
std::string text_of(const ConfigJson& object, const char* key) {
  if (!object.is_object()) return "";
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
std::optional<std::uint64_t> number_of(const ConfigJson& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  return found->get<std::uint64_t>();
}

/// What configuration and metadata claim, which is compared with the tensors.
struct Claims {
  std::string method;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> block;  ///< rows and columns of weight_block_size
  std::vector<std::uint64_t> groups;                             ///< all group_size there are
  std::map<std::string, ConfigJson, std::less<>> torchao;        ///< by the weight's name
  std::map<std::string, std::string, std::less<>> comfy;         ///< the format of each layer, of the header's metadata

  explicit Claims(const Checkpoint& checkpoint) {
    const ConfigJson& config = checkpoint.quantization();
    method = text_of(config, "quant_method");
    std::ranges::replace(method, '_', '-');
    if (!method.starts_with("compressed")) method = text_of(config, "quant_method");
    const ConfigJson& hf = checkpoint.hf_quant_config();
    if (method.empty() && hf.is_object() && hf.contains("quantization")) method = "modelopt";
    find_blocks(config);
    if (hf.is_object() && hf.contains("quantization")) find_blocks(hf["quantization"]);
    find_metadata(checkpoint.metadata());
  }

 private:
  void find_blocks(const ConfigJson& config) {
    if (!config.is_object()) return;
    const auto size = config.find("weight_block_size");
    if (size != config.end()) set_block(*size);
    if (const auto group = number_of(config, "group_size")) add_group(*group);
    const auto groups_of = config.find("config_groups");
    if (groups_of == config.end() || !groups_of->is_object()) return;
    for (const auto& entry : *groups_of) {
      if (!entry.is_object() || !entry.contains("weights")) continue;
      const ConfigJson& weights = entry["weights"];
      if (const auto group = number_of(weights, "group_size")) add_group(*group);
      if (weights.is_object() && weights.contains("block_structure")) set_block(weights["block_structure"]);
    }
  }
  void set_block(const ConfigJson& size) {
    if (size.is_array() && size.size() == 2 && size[0].is_number_unsigned() && size[1].is_number_unsigned() &&
        size[0] != 0 && size[1] != 0) {
      block = {size[0].get<std::uint64_t>(), size[1].get<std::uint64_t>()};
    }
  }
  void add_group(std::uint64_t group) {
    if (group != 0 && std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
  }
  void find_metadata(const ConfigJson& metadata) {
    if (metadata.contains("tensor_names")) {
      for (const auto& [name, words] : metadata.items()) {
        if (!words.is_string() || name == "tensor_names") continue;
        ConfigJson about = ConfigJson::parse(words.get<std::string>(), nullptr, false);
        if (about.is_object() && about.contains("_type")) torchao.emplace(name, std::move(about));
      }
    }
    const std::string layers = text_of(metadata, "_quantization_metadata");
    if (layers.empty()) return;
    const ConfigJson whole = ConfigJson::parse(layers, nullptr, false);
    if (!whole.is_object() || !whole.contains("layers") || !whole["layers"].is_object()) return;
    for (const auto& [name, about] : whole["layers"].items()) comfy.emplace(name, text_of(about, "format"));
  }
};

/// The sizes of a weight: its shape in elements.
struct Sizes {
  std::uint64_t experts = 1, rows = 0, columns = 0;
  bool stacked = false;
};

std::optional<Sizes> sizes_of(const StoredTensor& codes, const Layout& layout) {
  std::vector<std::uint64_t> shape = codes.shape;
  if (layout.packing == Packing::gpt_oss_blocks) {
    if (shape.size() < 3 || shape.back() != 16) return std::nullopt;
    shape.pop_back();
    shape.back() *= 32;
  } else if (layout.packing == Packing::pairs_low_first || layout.packing == Packing::pairs_high_first) {
    if (shape.size() < 2) return std::nullopt;
    if (codes.dtype != "F4") shape.back() *= 2;
  } else if (layout.packing == Packing::fours) {
    if (shape.size() < 2 || shape.back() % 3 != 0) return std::nullopt;
    shape.back() = shape.back() / 3 * 4;
  }
  if (shape.size() < 2 || shape.size() > 3 || std::ranges::find(shape, 0U) != shape.end()) return std::nullopt;
  Sizes sizes{.rows = shape[shape.size() - 2], .columns = shape.back()};
  if (shape.size() == 3) sizes.experts = shape.front();
  sizes.stacked = shape.size() == 3;
  if (codes.elements() == 0) return std::nullopt;
  return sizes;
}

/// Fills in the grid of a weight whose scale has that shape; false where the layout has another.
bool take_scale(Weight& weight, const Claims& claims) {
  const Layout& layout = *weight.layout;
  const StoredTensor& scale = *weight.scale;
  std::vector<std::uint64_t> shape = scale.shape;
  const std::uint64_t n = weight.rows;
  const std::uint64_t k = weight.columns;
  // A stack's scales have its experts before them.
  if (weight.stacked && shape.size() > 1 && shape.front() == weight.experts) {
    shape.erase(shape.begin());
  } else if (weight.stacked && shape.size() == 1 && layout.scale_shape == ScaleShape::scalar &&
             shape.front() == weight.experts) {
    shape = {};
  } else if (weight.stacked) {
    return false;
  }
  const auto grid = [&](std::uint64_t rows, std::uint64_t columns, std::uint64_t block_rows, std::uint64_t group) {
    weight.grid_rows = rows;
    weight.grid_columns = columns;
    weight.block_rows = block_rows;
    weight.group = group;
    return true;
  };
  switch (layout.scale_shape) {
    case ScaleShape::scalar: {
      const bool one = shape.empty() || (shape.size() == 1 && shape[0] == 1);
      const bool of_torchao = layout.family == Family::torchao && shape == std::vector<std::uint64_t>{1, 1};
      return (one || of_torchao) && grid(1, 1, n, k);
    }
    case ScaleShape::vector: return shape.size() == 1 && shape[0] == n && n > 1 && grid(n, 1, 1, k);
    case ScaleShape::column: return shape.size() == 2 && shape[0] == n && shape[1] == 1 && grid(n, 1, 1, k);
    case ScaleShape::columns: {
      const bool lies = shape == std::vector<std::uint64_t>{1, k};
      const bool stands = shape == std::vector<std::uint64_t>{k, 1};
      return (lies || stands) && grid(1, k, n, 1);
    }
    case ScaleShape::groups:
      return shape.size() == 2 && shape[0] == n && shape[1] == rounded_up(k, layout.group) &&
             grid(n, shape[1], 1, layout.group);
    case ScaleShape::tile_order: {
      const std::uint64_t columns = rounded_up(k, layout.group);
      weight.tile_order = true;
      // Padded to whole tiles: as (rows, columns), or as 32 rows of a tile beside its 16 columns.
      const std::uint64_t tiles_down = rounded_up(n, 128);
      const std::uint64_t tiles_across = rounded_up(columns, 4);
      const bool padded = shape == std::vector<std::uint64_t>{tiles_down * 128, tiles_across * 4};
      const bool tiled = shape == std::vector<std::uint64_t>{tiles_down * 32, tiles_across * 16};
      return (padded || tiled) && grid(n, columns, 1, layout.group);
    }
    case ScaleShape::grid:
    case ScaleShape::grid_4d: {
      if (layout.scale_shape == ScaleShape::grid_4d) {
        if (shape.size() != 4 || shape[1] != 1 || shape[3] != 1) return false;
        shape = {shape[0], shape[2]};
      }
      if (shape.size() != 2 || shape[0] == 0 || shape[1] == 0 || shape[0] > n || shape[1] > k) return false;
      const std::uint64_t block_rows =
          claims.block && claims.block->first > 1 ? claims.block->first : layout.block_rows;
      const std::uint64_t group = claims.block && claims.block->first > 1 ? claims.block->second : layout.group;
      const auto fits = [&](std::uint64_t br, std::uint64_t bk) {
        return rounded_up(n, br) == shape[0] && rounded_up(k, bk) == shape[1];
      };
      if (fits(block_rows, group)) return grid(shape[0], shape[1], block_rows, group);
      if (fits(layout.block_rows, layout.group)) {
        weight.disagreements.push_back("the scales are of blocks of " + size_words(layout.block_rows, layout.group) +
                                       ", the configuration has " + size_words(block_rows, group));
        return grid(shape[0], shape[1], layout.block_rows, layout.group);
      }
      weight.grid_fits = false;
      const std::string needed = size_words(rounded_up(n, block_rows), rounded_up(k, group));
      const bool transposed = rounded_up(n, block_rows) == shape[1] && rounded_up(k, group) == shape[0];
      weight.disagreements.push_back("the grid of scales is " + size_words(shape[0], shape[1]) + ", blocks of " +
                                     size_words(block_rows, group) + " need " + needed +
                                     (transposed ? ", which is the grid transposed" : ""));
      return grid(shape[0], shape[1], block_rows, group);
    }
    case ScaleShape::in_block: return true;
  }
  return false;
}

/// Goes through the tensors of a checkpoint, layout by layout.
class Recognizer {
 public:
  explicit Recognizer(const Checkpoint& checkpoint) : checkpoint_(&checkpoint), claims_(checkpoint) {
    for (const Layout& layout : all_layouts()) {
      for (const std::string_view suffix : {layout.scale, layout.global_scale}) {
        if (!suffix.empty()) companion_suffixes_.insert(suffix);
      }
      for (const CompanionName& companion : layout.companions) companion_suffixes_.insert(companion.suffix);
    }
  }

  Recognition run() {
    result_.method = claims_.method;
    for (const StoredTensor& tensor : checkpoint_->tensors()) {
      checkpoint();
      if (std::optional<Weight> weight = weight_of(tensor)) {
        for (const Companion& companion : weight->companions) used_.insert(companion.tensor);
        used_.insert(&tensor);
        result_.weights.push_back(std::move(*weight));
      }
    }
    for (const StoredTensor& tensor : checkpoint_->tensors()) {
      if (!used_.contains(&tensor)) place(tensor);
    }
    compare_configuration();
    return std::move(result_);
  }

 private:
  static bool is_number(std::string_view dtype) {
    return dtype == "F32" || dtype == "BF16" || dtype == "F16" || dtype == "F64";
  }
  static bool is_code(const StoredTensor& tensor) {
    const bool fp8 = tensor.dtype.starts_with("F8_") && tensor.dtype != "F8_E8M0";
    const bool fp4 = tensor.dtype == "F4" || tensor.dtype == "MXFP4" || tensor.dtype == "NVFP4";
    const bool bytes = tensor.dtype == "U8" || tensor.dtype == "I8";
    return fp8 || fp4 || bytes;
  }
  static bool contains(const std::vector<std::string_view>& all, std::string_view one) {
    return std::ranges::find(all, one) != all.end();
  }

  /// The weight whose codes `tensor` is, by the layout that fits best; none where it is no code of any.
  std::optional<Weight> weight_of(const StoredTensor& tensor) {
    if (!is_code(tensor)) return std::nullopt;
    std::optional<Weight> best;
    int best_rank = 0;
    int fitting = 0;
    std::vector<std::string_view> others;
    for (const Layout& layout : all_layouts()) {
      std::optional<Weight> weight = try_layout(tensor, layout);
      if (!weight) continue;
      const int rank = rank_of(*weight);
      if (rank == 0) continue;
      ++fitting;
      if (rank > best_rank) {
        if (best && best_rank == 1) others.push_back(best->layout->name);
        best = std::move(weight);
        best_rank = rank;
      } else {
        others.push_back(layout.name);
      }
    }
    if (!best) return std::nullopt;
    explain(*best, best_rank, fitting, others);
    return best;
  }

  /// Finds the scale of the whole tensor; false where the layout needs one, and it is not there or none.
  bool take_global_scale(Weight& weight) const {
    const Layout& layout = *weight.layout;
    weight.global_scale = checkpoint_->find(weight.stem + std::string(layout.global_scale));
    if (weight.global_scale == nullptr && layout.family == Family::gguf) {
      weight.global_scale = checkpoint_->find(weight.codes->name + std::string(layout.global_scale));
    }
    if (weight.global_scale == nullptr) {
      const bool needed = layout.global == GlobalScale::multiplier || layout.global == GlobalScale::divisor;
      return !needed || layout.family == Family::torchao;
    }
    const std::uint64_t count = weight.global_scale->elements();
    if (!is_number(weight.global_scale->dtype) || (count != 1 && count != weight.experts)) return false;
    weight.companions.push_back({Role::global_scale, weight.global_scale});
    return true;
  }

  std::optional<Weight> try_layout(const StoredTensor& tensor, const Layout& layout) const {
    if (!contains(layout.code_dtypes, tensor.dtype)) return std::nullopt;
    Weight weight;
    weight.layout = &layout;
    weight.codes = &tensor;
    if (tensor.name.ends_with(layout.codes)) {
      weight.stem = tensor.name.substr(0, tensor.name.size() - layout.codes.size());
    } else if (layout.codes == ".weight" && layout.family == Family::gguf) {
      weight.stem = tensor.name;
    } else {
      return std::nullopt;
    }
    weight.name = weight.stem + (weight.stem.size() == tensor.name.size() ? "" : std::string(layout.restored));
    const std::optional<Sizes> sizes = sizes_of(tensor, layout);
    if (!sizes) return std::nullopt;
    weight.experts = sizes->experts;
    weight.stacked = sizes->stacked;
    weight.rows = sizes->rows;
    weight.columns = sizes->columns;
    if (layout.has_scale_tensor()) {
      weight.scale = checkpoint_->find(weight.stem + std::string(layout.scale));
      if (weight.scale == nullptr || weight.scale == &tensor) return std::nullopt;
      if (!contains(layout.scale_dtypes, weight.scale->dtype) || !take_scale(weight, claims_)) return std::nullopt;
      weight.companions.push_back({Role::scale, weight.scale});
    } else {
      weight.grid_rows = weight.rows;
      weight.grid_columns = weight.columns / layout.group;
      weight.block_rows = 1;
      weight.group = layout.group;
    }
    if (!layout.global_scale.empty() && !take_global_scale(weight)) return std::nullopt;
    for (const CompanionName& name : layout.companions) {
      const StoredTensor* const found = checkpoint_->find(weight.stem + std::string(name.suffix));
      if (found != nullptr) weight.companions.push_back({name.role, found});
    }
    return weight;
  }

  /// 0: it cannot be this layout; 1: tensors alone; 2: the configuration names its family; 3: a marker of its own.
  int rank_of(const Weight& weight) const {
    const Layout& layout = *weight.layout;
    const std::string format = comfy_format(weight);
    const bool needs_marker = layout.family == Family::comfyui && layout.scale != ".scale_weight";
    if (!format.empty()) {
      if (layout.family != Family::comfyui) return 0;
      return format == comfy_name(layout) ? 3 : 0;
    }
    if (needs_marker) return 0;
    if (layout.family == Family::torchao) return claims_.torchao.contains(weight.name) ? 3 : 1;
    if (!claims_.method.empty() && contains(layout.methods, claims_.method)) return 2;
    return 1;
  }

  std::string comfy_format(const Weight& weight) const {
    const StoredTensor* const marker = checkpoint_->find(weight.stem + ".comfy_quant");
    if (marker != nullptr && marker->bytes <= 4096 && checkpoint_->has_data(*marker)) {
      const std::vector<std::byte> bytes = checkpoint_->read_whole(*marker);
      const auto* const text = reinterpret_cast<const char*>(bytes.data());
      const ConfigJson about = ConfigJson::parse(text, text + bytes.size(), nullptr, false);
      return text_of(about, "format");
    }
    const auto found = claims_.comfy.find(weight.stem);
    return found == claims_.comfy.end() ? "" : found->second;
  }
  static std::string_view comfy_name(const Layout& layout) {
    if (layout.name == "comfy_fp8") return "float8_e4m3fn";
    if (layout.name == "comfy_fp8_e5m2") return "float8_e5m2";
    if (layout.name == "comfy_nvfp4") return "nvfp4";
    if (layout.name == "comfy_mxfp8") return "mxfp8";
    return "";
  }

  void explain(Weight& weight, int rank, int fitting, const std::vector<std::string_view>& others) const {
    const Layout& layout = *weight.layout;
    weight.evidence = "names, dtypes and shapes";
    if (rank == 3 && layout.family == Family::torchao) {
      weight.evidence += ", and the metadata of the file";
    } else if (rank == 3) {
      weight.evidence += ", and " + std::string(weight.companion(Role::marker) != nullptr ? "comfy_quant"
                                                                                          : "the metadata of the file");
    } else if (rank == 2) {
      weight.evidence += ", and the configuration's quant_method " + claims_.method;
    } else if (fitting > 1) {
      weight.evidence += " alone, which also fit ";
      for (std::size_t i = 0; i < others.size(); ++i) weight.evidence.append(i == 0 ? "" : ", ").append(others[i]);
    }
    if (rank == 1 && !claims_.method.empty() && !layout.methods.empty()) {
      weight.disagreements.push_back("the configuration's quant_method is " + claims_.method +
                                     ", the tensors are those of " + std::string(name_of(layout.family)));
    }
    // The group size that the configuration states, unless one of its groups has this one.
    if (layout.grouping == Grouping::group && !claims_.groups.empty() && layout.family != Family::torchao &&
        std::ranges::find(claims_.groups, weight.group) == claims_.groups.end()) {
      std::string stated;
      for (const std::uint64_t group : claims_.groups)
        stated += (stated.empty() ? "" : " and ") + std::to_string(group);
      weight.disagreements.push_back("the group size is " + std::to_string(weight.group) + " by the shapes, " + stated +
                                     " by the configuration");
    }
    const auto about = claims_.torchao.find(weight.name);
    if (layout.family == Family::torchao && about != claims_.torchao.end()) compare_torchao(weight, about->second);
  }

  static void compare_torchao(Weight& weight, const ConfigJson& about) {
    if (!about.contains("_data") || !about["_data"].is_object()) return;
    const ConfigJson& data = about["_data"];
    const auto swizzled = data.find("is_swizzled_scales");
    if (swizzled != data.end() && swizzled->is_boolean() && swizzled->get<bool>() != weight.tile_order) {
      weight.disagreements.push_back(
          std::string("the metadata say that the scales are ") + (weight.tile_order ? "not " : "") +
          "in tile order, their shape says that they are" + (weight.tile_order ? "" : " not"));
    }
    const auto size = data.find("block_size");
    if (size == data.end()) return;
    if (size->is_number_unsigned() && *size != weight.group) {
      weight.disagreements.push_back("the group size is " + std::to_string(weight.group) + " by the shapes, " +
                                     size->dump() + " by the metadata");
    }
    if (size->is_array() && size->size() == 2 && (*size)[0].is_number_unsigned() && (*size)[1].is_number_unsigned() &&
        weight.layout->grouping == Grouping::block) {
      const auto rows = (*size)[0].get<std::uint64_t>();
      const auto columns = (*size)[1].get<std::uint64_t>();
      if (rounded_up(weight.rows, rows) == weight.grid_rows &&
          rounded_up(weight.columns, columns) == weight.grid_columns) {
        weight.block_rows = rows;
        weight.group = columns;
        weight.grid_fits = true;
        weight.disagreements.clear();
      }
    }
  }

  /// A tensor that no weight has.
  void place(const StoredTensor& tensor) {
    // 1. Scales of a cache.
    for (const std::string_view end : {".k_scale", ".v_scale", ".q_scale", ".k_proj.output_scale",
                                       ".v_proj.output_scale", ".kv_scale", ".k_zero_point", ".v_zero_point"}) {
      if (tensor.name.ends_with(end)) {
        result_.cache_scales.push_back(&tensor);
        return;
      }
    }
    if (tensor.name == "scaled_fp8") return;
    if (tensor.elements() == 0) {  // there is nothing that a scale could be of
      result_.plain.push_back(&tensor);
      return;
    }
    // 2. Codes that miss something.
    const bool fp8 = tensor.dtype.starts_with("F8_") && tensor.dtype != "F8_E8M0";
    const Layout* nearest = nullptr;
    std::string lacks;
    if (is_code(tensor)) nearest = nearest_of(tensor, lacks);
    if (nearest != nullptr || (fp8 && tensor.shape.size() >= 2 && !is_companion(tensor))) {
      if (nearest == nullptr) lacks = "there is no scale beside these codes";
      result_.incomplete.push_back({&tensor, nearest, std::move(lacks)});
      return;
    }
    // 3. Companions without a weight. Of the names that plain tensors have, too, only those that are no numbers.
    if (is_companion(tensor)) {
      result_.orphans.push_back(&tensor);
      return;
    }
    const bool plain = is_number(tensor.dtype) || tensor.dtype.starts_with('I') || tensor.dtype == "BOOL" ||
                       tensor.dtype.starts_with('U') || tensor.dtype == "C64";
    if (plain) {
      result_.plain.push_back(&tensor);
      return;
    }
    const std::size_t dot = tensor.name.rfind('.');
    const std::string suffix = tensor.name.substr(dot == std::string::npos ? 0 : dot) + " (" + tensor.dtype + ")";
    const auto found = std::ranges::find(result_.unknown, suffix, &UnknownSuffix::suffix);
    if (found == result_.unknown.end()) {
      result_.unknown.push_back({suffix, 1, &tensor});
    } else {
      ++found->count;
    }
  }

  bool is_companion(const StoredTensor& tensor) const {
    for (const std::string_view suffix : companion_suffixes_) {
      if (suffix == ".scale" || suffix == "_bias" || suffix == "_scales") continue;  // plain tensors are called so, too
      if (tensor.name.size() > suffix.size() && tensor.name.ends_with(suffix)) return true;
    }
    return tensor.dtype == "F8_E8M0" && tensor.name.ends_with(".scale");
  }

  /// How much of a layout is there beside a tensor whose name and dtype fit.
  int nearness_of(const Layout& layout, const StoredTensor* scale) const {
    int rank = scale != nullptr ? 4 : 0;
    if (scale != nullptr && contains(layout.scale_dtypes, scale->dtype)) rank += 2;
    if (contains(layout.methods, claims_.method)) rank += 3;
    if (std::ranges::find(result_.weights, &layout, &Weight::layout) != result_.weights.end()) rank += 2;
    return rank;
  }

  static std::string lack_of(const Layout& layout, const std::string& stem, const StoredTensor* scale,
                             const StoredTensor* global) {
    if (layout.has_scale_tensor() && scale == nullptr) {
      return "there is no tensor " + printable(stem + std::string(layout.scale));
    }
    if (scale != nullptr && !contains(layout.scale_dtypes, scale->dtype)) {
      return "its scale has dtype " + scale->dtype;
    }
    if (!layout.global_scale.empty() && global == nullptr) {
      return "there is no tensor " + printable(stem + std::string(layout.global_scale));
    }
    return "the shape of its scale fits none of the layouts";
  }

  /// The layout that fits a tensor's name and dtype, of the family that the rest of the checkpoint has, and what it
  /// misses.
  const Layout* nearest_of(const StoredTensor& tensor, std::string& lacks) const {
    const Layout* best = nullptr;
    int best_rank = -1;
    for (const Layout& layout : all_layouts()) {
      if (!contains(layout.code_dtypes, tensor.dtype) || !tensor.name.ends_with(layout.codes)) continue;
      if (!sizes_of(tensor, layout)) continue;
      const bool other_codes = tensor.dtype == "U8" || tensor.dtype == "I8";
      const std::string stem = tensor.name.substr(0, tensor.name.size() - layout.codes.size());
      const StoredTensor* const scale =
          layout.has_scale_tensor() ? checkpoint_->find(stem + std::string(layout.scale)) : nullptr;
      const StoredTensor* const global =
          layout.global_scale.empty() ? nullptr : checkpoint_->find(stem + std::string(layout.global_scale));
      if (other_codes && scale == nullptr && global == nullptr && layout.codes == ".weight") {
        if (claims_.method.empty() || !contains(layout.methods, claims_.method)) continue;
      }
      const int rank = nearness_of(layout, scale);
      if (rank <= best_rank) continue;
      best_rank = rank;
      best = &layout;
      lacks = lack_of(layout, stem, scale, global);
    }
    return best_rank >= 2 ? best : nullptr;
  }

  void compare_configuration() {
    const ConfigJson& config = checkpoint_->quantization();
    const ConfigJson& hf = checkpoint_->hf_quant_config();
    if (hf.is_object() && hf.contains("quantization") && config.is_object()) {
      const std::string one = text_of(config, "quant_algo");
      const std::string two = text_of(hf["quantization"], "quant_algo");
      if (!one.empty() && !two.empty() && one != two) {
        result_.disagreements.push_back("config.json has quant_algo " + one + ", hf_quant_config.json " + two);
      }
    }
    if (!claims_.method.empty()) {
      const bool known = std::ranges::any_of(
          all_layouts(), [&](const Layout& layout) { return contains(layout.methods, claims_.method); });
      if (!known) result_.disagreements.push_back("no layout is known of quant_method " + claims_.method);
      if (result_.weights.empty()) {
        result_.disagreements.push_back("the configuration has quant_method " + claims_.method +
                                        ", and no weight is quantized");
      }
    }
  }

  const Checkpoint* checkpoint_;
  Claims claims_;
  Recognition result_;
  std::unordered_set<const StoredTensor*> used_;
  std::unordered_set<std::string_view> companion_suffixes_;
};

}  // namespace

const StoredTensor* Weight::companion(Role role) const {
  const auto found = std::ranges::find(companions, role, &Companion::role);
  return found == companions.end() ? nullptr : found->tensor;
}

std::vector<std::uint64_t> Weight::shape() const {
  std::vector<std::uint64_t> shape;
  if (stacked) shape.push_back(experts);
  shape.push_back(layout->transposed ? columns : rows);
  shape.push_back(layout->transposed ? rows : columns);
  return shape;
}

const Weight* Recognition::find(std::string_view name) const {
  const auto found = std::ranges::find(weights, name, &Weight::name);
  return found == weights.end() ? nullptr : &*found;
}

Recognition recognize(const Checkpoint& checkpoint) { return Recognizer(checkpoint).run(); }

}  // namespace fp8lab::experiments
