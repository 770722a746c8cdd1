// SPDX-License-Identifier: Apache-2.0
// What one file of tensors states, by its format. All of it is a claim: nothing is compared with the file's data here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/checkpoint.hpp"
#include "files/stored_file.hpp"
#include "files/tensor_header.hpp"

namespace fp8lab::experiments {

/// A member of an .npz archive.
struct Member {
  std::uint64_t at = 0;      ///< where its bytes begin in the file
  std::uint64_t packed = 0;  ///< how many there are
  std::uint64_t size = 0;    ///< how many they are once unpacked
  bool deflated = false;
};

struct Container {
  std::vector<StoredTensor> tensors = {};  ///< in the order of the file
  std::vector<Member> members = {};        ///< of an archive: that of each tensor
  nlohmann::json metadata = nlohmann::json::object();
};

/// `bytes` are those of `file`. Fail where it has no header of the format.
[[nodiscard]] Container read_container(const std::shared_ptr<const StoredFile>& file, Bytes& bytes,
                                       const std::string& stem);
[[nodiscard]] Container read_gguf(Bytes& bytes);
[[nodiscard]] Container read_npz(const std::shared_ptr<const StoredFile>& file, Bytes& bytes);
/// The one tensor of a .npy file, as .safetensors spells its dtype.
[[nodiscard]] StoredTensor npy_tensor(Bytes& bytes, std::string name);

/// Reads a member piece by piece: what is deflated from its begin to the piece that is asked for, once where pieces
/// come in order.
class MemberReader {
 public:
  MemberReader(std::shared_ptr<const StoredFile> file, const Member& member);
  ~MemberReader();
  MemberReader(const MemberReader&) = delete;
  MemberReader& operator=(const MemberReader&) = delete;

  /// Throws std::runtime_error where there are not that many bytes from `at` on.
  void read(std::uint64_t at, std::span<std::byte> out);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp8lab::experiments
