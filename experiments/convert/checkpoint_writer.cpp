// SPDX-License-Identifier: Apache-2.0
#include "convert/checkpoint_writer.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "files/stored_file.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "kit/staging.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

constexpr const char* made_by = "fp8lab.json";

/// A file that is being written.
class GrowingFile {
 public:
  explicit GrowingFile(fs::path path)
      : path_(std::move(path)),
        file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666)) {
    if (!file_) cannot_write(path_, std::strerror(errno));
  }
  void put(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) cannot_write(path_, std::strerror(errno));
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
  }
  void put(const std::string& text) { put(std::as_bytes(std::span(text))); }
  void to_disk() const {
    if (::fsync(file_.get()) != 0) cannot_write(path_, std::strerror(errno));
  }

 private:
  fs::path path_;
  Descriptor file_;
};

}  // namespace

void copy_tensor(const Checkpoint& checkpoint, const StoredTensor& tensor,
                 const std::function<void(std::span<const std::byte>)>& put,
                 const std::function<void(std::size_t)>& counted) {
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min<std::uint64_t>(tensor.bytes, std::uint64_t{1} << 22)));
  for (std::uint64_t at = 0; at < tensor.bytes; at += piece.size()) {
    const auto now =
        std::span(piece).first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), tensor.bytes - at)));
    checkpoint.read(tensor, at, now);
    put(now);
    counted(now.size());
  }
}

struct CheckpointWriter::Content {
  fs::path target, place, fresh;
  Descriptor lock;
  std::map<std::string, std::string> weight_map;
  std::uint64_t total = 0;
  std::size_t shards = 0;

  void check_target() const {
    std::error_code error;
    const fs::file_status status = fs::symlink_status(target, error);
    if (status.type() == fs::file_type::not_found) return;
    if (status.type() != fs::file_type::directory) cannot_write(target, "it is there and no directory");
    if (fs::is_empty(target, error) || fs::exists(target / made_by, error)) return;
    cannot_write(target, "the directory holds something that fp8lab did not make");
  }
};

CheckpointWriter::CheckpointWriter(const fs::path& directory) : content_(std::make_unique<Content>()) {
  Content& c = *content_;
  c.target = fs::absolute(directory).lexically_normal();
  if (c.target.filename().empty()) c.target = c.target.parent_path();
  if (directory.empty() || c.target == c.target.root_path()) cannot_write(directory, "it is no name of a directory");
  c.check_target();
  c.place = c.target.parent_path() / ("." + c.target.filename().native() + ".fp8lab-writing");
  if (::mkdir(c.place.c_str(), 0777) != 0 && errno != EEXIST) cannot_write(c.target, std::strerror(errno));
  c.lock = Descriptor(::open(c.place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!c.lock) cannot_write(c.target, std::strerror(errno));
  if (::flock(c.lock.get(), LOCK_EX | LOCK_NB) != 0) {
    c.place.clear();
    cannot_write(c.target, "another process writes it");
  }
  c.fresh = c.place / "new";
  std::error_code error;
  fs::remove_all(c.fresh, error);  // what a killed process left
  if (::mkdir(c.fresh.c_str(), 0777) != 0) cannot_write(c.target, std::strerror(errno));
}

CheckpointWriter::~CheckpointWriter() {
  std::error_code error;
  if (!content_->place.empty()) fs::remove_all(content_->place, error);
}

void CheckpointWriter::write_shard(const std::string& name, const std::vector<WrittenTensor>& tensors,
                                   const std::map<std::string, std::string>& metadata) {
  // 1. The header.
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  for (const WrittenTensor& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, at + tensor.bytes}}};
    at += tensor.bytes;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length;
  for (unsigned i = 0; i < 8; ++i) length += static_cast<char>(text.size() >> (8 * i) & 0xFF);

  // 2. The data.
  GrowingFile file(content_->fresh / name);
  file.put(length + text);
  for (const WrittenTensor& tensor : tensors) {
    std::uint64_t written = 0;
    tensor.write([&](std::span<const std::byte> bytes) {
      checkpoint();
      written += bytes.size();
      file.put(bytes);
    });
    if (written != tensor.bytes) throw std::logic_error("a tensor has other bytes than its header");
    content_->weight_map[tensor.name] = name;
  }
  file.to_disk();
  content_->total += at;
  ++content_->shards;
}

void CheckpointWriter::copy_file(const fs::path& path) {
  const StoredFile from(path);
  GrowingFile file(content_->fresh / path.filename());
  std::vector<char> piece(std::size_t{1} << 20);
  for (std::uint64_t at = 0;;) {
    checkpoint();
    const std::size_t count = from.read(at, piece);
    if (count == 0) break;
    file.put(std::as_bytes(std::span(piece).first(count)));
    at += count;
  }
  file.to_disk();
}

void CheckpointWriter::write_json(const std::string& name, const nlohmann::ordered_json& content) {
  GrowingFile file(content_->fresh / name);
  file.put(content.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  file.to_disk();
}

void CheckpointWriter::finish(const nlohmann::json& made) {
  Content& c = *content_;
  if (c.shards > 1) {
    write_json("model.safetensors.index.json", {{"metadata", {{"total_size", c.total}}}, {"weight_map", c.weight_map}});
  }
  write_json(made_by, made);
  const SignalsHeld held;
  c.check_target();
  if (fs::exists(c.target)) {
    if (::renameat2(AT_FDCWD, c.fresh.c_str(), AT_FDCWD, c.target.c_str(), RENAME_EXCHANGE) != 0) {
      cannot_write(c.target, std::strerror(errno));
    }
  } else if (::rename(c.fresh.c_str(), c.target.c_str()) != 0) {
    cannot_write(c.target, std::strerror(errno));
  }
}

}  // namespace fp8lab::experiments
