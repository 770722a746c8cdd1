// SPDX-License-Identifier: Apache-2.0
// The files of a model and the tensors that they hold, as they are: what the tensors mean is recognize()'s question.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/formats/named.hpp"

namespace fp8lab::experiments {

/// A tensor as its file states it.
struct StoredTensor {
  std::string name;                  ///< as the file has it, of any characters: print printable(name)
  std::size_t file = 0;              ///< its file, in Checkpoint::files()
  std::string dtype;                 ///< as .safetensors or GGUF spells it: "F8_E4M3", "U8", "BF16", "MXFP4", ...
  std::vector<std::uint64_t> shape;  ///< the outermost index first; empty for a scalar, which is one element
  std::uint64_t offset = 0;          ///< of its first byte in the file; in an .npz archive, in the member
  std::uint64_t bytes = 0;           ///< what the file states for it, whether they are there or not
  bool fortran_order = false;        ///< of .npy: the first index runs fastest

  /// The product of the shape; 0 where it has no 64-bit value.
  [[nodiscard]] std::uint64_t elements() const;
};

/// What can be wrong with files, before any value is looked at.
enum class FileFault : std::uint8_t {
  missing_shard,  ///< the index names a file that is not there
  unreadable,     ///< a file has no header of its format
  truncated,      ///< a file is shorter than its header says
  overlap,        ///< two tensors share bytes
  wrong_size,     ///< a tensor has more or fewer bytes than its shape and dtype need
  name_twice,     ///< two tensors have one name
  not_in_file,    ///< the index sends a tensor to a file that has none of this name
  not_in_index,   ///< a file of the index has a tensor that the index does not name
  total_size,     ///< the index states another total_size
  equal_shards,   ///< two files are the same, byte by byte
  bad_config,     ///< a JSON file beside the tensors cannot be read
};
[[nodiscard]] std::span<const Named<FileFault>> named_values(FileFault of_type);

struct FileProblem {
  FileFault fault;
  std::string file;                  ///< its name, without the directory
  std::vector<std::string> tensors;  ///< those that are lost, shared, twice, ...
  std::string words;                 ///< a sentence, without a full stop
};

/// A model of one file or many: a .safetensors, .npy, .npz or .gguf file, a *.index.json, or a directory: what its
/// index names, without an index all its .safetensors files, else its .gguf, .npz or .npy files. The content tells
/// which format a file has.
///
/// Headers are read at once, data when they are asked for. What is wrong with some of the files is kept in problems(),
/// and the rest can be read. Pickled files (.bin, .pt) are refused: to read them is to run them.
class Checkpoint {
 public:
  /// Throws std::runtime_error where nothing can be read: there is no file, or none with a header.
  explicit Checkpoint(const std::filesystem::path& path);
  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;

  /// As it was given.
  [[nodiscard]] const std::filesystem::path& path() const;
  /// All files that hold tensors or should: a missing shard is one.
  [[nodiscard]] const std::vector<std::filesystem::path>& files() const;
  /// In the order of their names, where numbers count as numbers. A name comes once: of two, the one in the file that
  /// the index names, else the first.
  [[nodiscard]] const std::vector<StoredTensor>& tensors() const;
  /// The tensor of that name, or nullptr.
  [[nodiscard]] const StoredTensor* find(std::string_view name) const;
  /// Whether all bytes of it are in the file.
  [[nodiscard]] bool has_data(const StoredTensor& tensor) const;
  [[nodiscard]] const std::vector<FileProblem>& problems() const;
  /// Whether an index names the files.
  [[nodiscard]] bool has_index() const;

  /// config.json beside the files; null where there is none.
  [[nodiscard]] const nlohmann::json& config() const;
  /// Its quantization_config or compression_config, also that in text_config; null where it has none.
  [[nodiscard]] const nlohmann::json& quantization() const;
  /// hf_quant_config.json beside the files; null where there is none.
  [[nodiscard]] const nlohmann::json& hf_quant_config() const;
  /// An object of the __metadata__ of all .safetensors files (of texts), or the scalars, texts and short lists of a
  /// GGUF file. Of a key that comes twice the first value.
  [[nodiscard]] const nlohmann::json& metadata() const;

  /// Reads bytes first .. first + out.size() of a tensor, as they are stored. Throws std::invalid_argument where the
  /// tensor has not that many, std::runtime_error where the file cannot be read or ends before.
  void read(const StoredTensor& tensor, std::uint64_t first, std::span<std::byte> out) const;
  /// All bytes of a tensor. Throws as read() does, and std::invalid_argument where it has more than `most`.
  [[nodiscard]] std::vector<std::byte> read_whole(const StoredTensor& tensor,
                                                  std::uint64_t most = std::uint64_t{1} << 28) const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

/// Bits of an element of a dtype as .safetensors spells it: F32, BF16, F8_E4M3, F4, U8, I64, ...; none where it is not
/// known, or is a GGUF type, whose elements lie in blocks.
[[nodiscard]] std::optional<std::uint64_t> bits_of_dtype(std::string_view dtype);

/// A GGUF type: blocks of `elements` elements in `bytes` bytes.
struct GgufType {
  std::uint32_t number;
  std::string_view name;
  std::uint64_t elements, bytes;
};
/// The types of GGUF version 3 whose block size is known.
[[nodiscard]] std::span<const GgufType> gguf_types();

}  // namespace fp8lab::experiments
