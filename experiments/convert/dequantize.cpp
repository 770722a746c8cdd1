// SPDX-License-Identifier: Apache-2.0
#include "convert/dequantize.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "checkpoints/checkpoint.hpp"
#include "checkpoints/dequantize.hpp"
#include "checkpoints/recognize.hpp"
#include "convert/checkpoint_writer.hpp"
#include "convert/tensors.hpp"
#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"
#include "files/tensor_header.hpp"
#include "kit/provenance.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

bool is_bfloat16_nan(std::uint16_t word) { return (word & 0x7FFFU) > 0x7F80U; }

/// Rows whose words are made at once.
std::uint64_t rows_at_once(const Weight& weight) {
  return std::max<std::uint64_t>(1, (std::uint64_t{1} << 20) / std::max<std::uint64_t>(weight.columns, 1));
}

class Dequantizing {
 public:
  Dequantizing(const DequantizeArguments& arguments, Progress progress)
      : arguments_(arguments),
        progress_(std::move(progress)),
        checkpoint_(arguments.model),
        found_(recognize(checkpoint_)) {}

  DequantizeResult run() {
    if (is_input(arguments_.into)) {
      throw std::invalid_argument("into: " + in_one_line(arguments_.into.native()) + " is the model that is read");
    }
    for (const FileProblem& problem : checkpoint_.problems()) {
      for (const std::string& name : problem.tensors) {
        if (problem.fault == FileFault::missing_shard || problem.fault == FileFault::unreadable) {
          leave_out(name, std::string(name_of(problem.fault)) + ": " + problem.file);
        }
      }
    }
    plan_weights();
    plan_plain();
    std::uint64_t planned = 0;
    for (const auto& [file, tensors] : shards_) planned += tensors.size();
    if (planned == 0) throw std::invalid_argument("there is nothing to write: " + reason_of_nothing());
    for (auto& [file, tensors] : shards_) {
      std::ranges::sort(tensors, comes_before, &WrittenTensor::name);
      for (const WrittenTensor& tensor : tensors) total_ += static_cast<double>(tensor.bytes);
    }
    write();
    return std::move(result_);
  }

 private:
  using Put = std::function<void(std::span<const std::byte>)>;

  [[nodiscard]] bool is_input(const fs::path& path) const {
    std::error_code error;
    const fs::path& model = checkpoint_.path();
    const fs::path directory = fs::is_directory(model, error) ? model : model.parent_path();
    return fs::equivalent(path, directory.empty() ? fs::path(".") : directory, error);
  }
  void leave_out(const std::string& name, std::string reason) {
    if (is_wanted(arguments_.names, name)) result_.left_out.push_back({name, std::move(reason)});
  }
  [[nodiscard]] std::string reason_of_nothing() const {
    if (!result_.left_out.empty()) {
      return named_reason(result_.left_out.front().name, result_.left_out.front().reason);
    }
    return arguments_.names.empty() ? "the model has no tensors" : "no tensor has such a name";
  }
  /// The file that a tensor goes to.
  [[nodiscard]] std::string shard_of(const StoredTensor& tensor) const {
    const fs::path& file = checkpoint_.files()[tensor.file];
    if (file.extension() == ".safetensors") return file.filename().native();
    return checkpoint_.files().size() == 1 ? "model.safetensors" : file.stem().native() + ".safetensors";
  }

  void plan_weights() {
    result_.weights.reserve(found_.weights.size());  // the functions below keep pointers to its entries
    std::set<std::string> names;
    for (const Weight& weight : found_.weights) {
      result_.dropped_scales +=
          static_cast<std::uint64_t>(std::ranges::count_if(weight.companions, [](const Companion& one) {
            return one.role == Role::input_scale || one.role == Role::input_global_scale;
          }));
      if (!is_wanted(arguments_.names, weight.name)) continue;
      (void)find_dequantization(*weight.layout, arguments_.as);  // throws: the loader is refused by name
      std::shared_ptr<const WeightReader> reader;
      std::shared_ptr<const WeightReader> own;
      try {
        reader = std::make_shared<const WeightReader>(checkpoint_, weight, arguments_.as);
        if (arguments_.as != Loader::format && weight.grid_fits) {
          own = std::make_shared<const WeightReader>(checkpoint_, weight, Loader::format);
        }
      } catch (const std::invalid_argument& error) {
        leave_out(weight.name, error.what());
        continue;
      } catch (const std::runtime_error& error) {
        leave_out(weight.name, error.what());
        continue;
      }
      if (!names.insert(weight.name).second) {
        leave_out(weight.name, "another weight has the same name without its quantization");
        continue;
      }
      DequantizedWeight& one = result_.weights.emplace_back();
      one.name = weight.name;
      one.layout = weight.layout->name;
      one.product = reader->rule().product;
      one.shape = weight.shape();
      one.block_rows = reader->block_rows();
      one.block_columns = reader->block_columns();
      if (weight.companion(Role::pre_quant_scale) != nullptr) {
        one.note = "pre_quant_scale is left out: the values are those of the scaled weight";
      }
      WrittenTensor written{
          .name = weight.name, .dtype = "BF16", .shape = one.shape, .bytes = 2 * weight.elements(), .write = {}};
      written.write = [this, &one, &weight, reader, own](const Put& put) {
        write_weight(one, weight, *reader, own.get(), put);
      };
      shards_[shard_of(*weight.codes)].push_back(std::move(written));
    }
  }

  void plan_plain() {
    for (const StoredTensor* tensor : found_.plain) {
      if (!is_wanted(arguments_.names, tensor->name)) continue;
      if (!bits_of_dtype(tensor->dtype)) {
        leave_out(tensor->name, "its type " + tensor->dtype + " is not read");
      } else if (!checkpoint_.has_data(*tensor)) {
        leave_out(tensor->name, "its file ends before it does");
      } else if (tensor->fortran_order) {
        leave_out(tensor->name, "it is stored in Fortran's order");
      } else {
        ++result_.copied;
        WrittenTensor written{
            .name = tensor->name, .dtype = tensor->dtype, .shape = tensor->shape, .bytes = tensor->bytes, .write = {}};
        written.write = [this, tensor](const Put& put) {
          copy_tensor(checkpoint_, *tensor, put, [this](std::size_t bytes) { count(bytes); });
        };
        shards_[shard_of(*tensor)].push_back(std::move(written));
      }
    }
    for (const Incomplete& one : found_.incomplete) leave_out(one.codes->name, one.lacks);
    for (const UnknownSuffix& one : found_.unknown)
      leave_out(one.example->name, "its type is not known: " + one.suffix);
    for (const StoredTensor* tensor : found_.orphans) leave_out(tensor->name, "the weight of this scale is not there");
    result_.dropped_scales += found_.cache_scales.size();
  }

  void count(std::size_t bytes) {
    done_ += static_cast<double>(bytes);
    if (progress_) progress_(total_ > 0 ? done_ / total_ : 1);
  }

  void write_weight(DequantizedWeight& one, const Weight& weight, const WeightReader& reader, const WeightReader* own,
                    const Put& put) {
    const auto columns = static_cast<std::size_t>(weight.columns);
    const bool differs =
        own != nullptr && (own->rule().product != reader.rule().product || own->block_rows() != reader.block_rows() ||
                           own->block_columns() != reader.block_columns());
    // A transposed expert is turned whole.
    const std::uint64_t at_once = weight.layout->transposed ? weight.rows : rows_at_once(weight);
    std::vector<std::uint16_t> words;
    std::vector<std::uint16_t> others;
    for (std::uint64_t row = 0; row < reader.rows();) {
      const std::uint64_t now = std::min(at_once, reader.rows() - row);
      words.resize(static_cast<std::size_t>(now) * columns);
      reader.bfloat16_words(row, now, words);
      one.nans += static_cast<std::uint64_t>(std::ranges::count_if(words, is_bfloat16_nan));
      if (differs) {
        others.resize(words.size());
        own->bfloat16_words(row, now, others);
        for (std::size_t i = 0; i < words.size(); ++i) one.differing += words[i] == others[i] ? 0 : 1;
      }
      if (weight.layout->transposed) {
        others.resize(words.size());
        const auto rows = static_cast<std::size_t>(now);
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t k = 0; k < columns; ++k) others[k * rows + r] = words[r * columns + k];
        }
        std::swap(words, others);
      }
      put(std::as_bytes(std::span<const std::uint16_t>(words)));
      count(words.size() * 2);
      row += now;
    }
  }

  void write() {
    CheckpointWriter writer(arguments_.into);
    for (const auto& [file, tensors] : shards_) writer.write_shard(file, tensors, {{"format", "pt"}});
    if (checkpoint_.config().is_object()) writer.write_json("config.json", plain_config(checkpoint_.config()));
    const Provenance made = provenance();
    writer.finish({{"made_by", "fp8lab dequantize"},
                   {"version", made.version},
                   {"model", in_one_line(arguments_.model.native())},
                   {"as", std::string(name_of(arguments_.as))}});
  }

  DequantizeArguments arguments_;
  Progress progress_;
  Checkpoint checkpoint_;
  Recognition found_;
  DequantizeResult result_;
  std::map<std::string, std::vector<WrittenTensor>> shards_;
  double total_ = 0, done_ = 0;
};

}  // namespace

nlohmann::json plain_config(nlohmann::json config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    config.erase(key);
    const auto text = config.find("text_config");
    if (text != config.end() && text->is_object()) text->erase(key);
  }
  for (const char* key : {"torch_dtype", "dtype"}) {
    if (config.contains(key)) config[key] = "bfloat16";
  }
  return config;
}

DequantizeResult run_dequantize(const DequantizeArguments& arguments, const Progress& progress) {
  return Dequantizing(arguments, progress).run();
}

std::string named_reason(const std::string& name, const std::string& reason) {
  return reason.starts_with(printable(name)) ? reason : printable(name) + ": " + reason;
}

}  // namespace fp8lab::experiments
