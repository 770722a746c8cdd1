// SPDX-License-Identifier: Apache-2.0
// Writes a checkpoint of .safetensors files piece by piece, so that it is there whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/checkpoint.hpp"

namespace fp8lab::experiments {

/// A tensor that is to be written: write(put) calls put(bytes) with its data in order.
struct WrittenTensor {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;
  std::function<void(const std::function<void(std::span<const std::byte>)>&)> write;
};

/// Copies a tensor piece by piece: put(bytes), then counted(how many).
void copy_tensor(const Checkpoint& checkpoint, const StoredTensor& tensor,
                 const std::function<void(std::span<const std::byte>)>& put,
                 const std::function<void(std::size_t)>& counted);

/// A directory that is new, or takes the place of one that this class made (which has a file fp8lab.json), in one step.
/// Until finish() all is in `.NAME.fp8lab-writing/` beside it, which goes away where finish() is not reached: a full
/// disk or Ctrl-C leaves what was there.
class CheckpointWriter {
 public:
  /// Throws std::runtime_error with a one-line reason where the directory cannot be made, holds something else, or
  /// another process writes it.
  explicit CheckpointWriter(const std::filesystem::path& directory);
  ~CheckpointWriter();
  CheckpointWriter(CheckpointWriter&&) = delete;

  /// Writes a .safetensors file of these tensors, with that metadata. Throws std::runtime_error.
  void write_shard(const std::string& name, const std::vector<WrittenTensor>& tensors,
                   const std::map<std::string, std::string>& metadata);
  void write_json(const std::string& name, const nlohmann::ordered_json& content);
  /// Copies a file that belongs to a model, under its own name. Throws std::runtime_error.
  void copy_file(const std::filesystem::path& path);
  /// Puts all of it in place: with an index where there are several shards, and fp8lab.json, which says who made it.
  void finish(const nlohmann::json& made);

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

}  // namespace fp8lab::experiments
