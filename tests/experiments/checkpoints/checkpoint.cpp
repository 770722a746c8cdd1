// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint: what they hold, and what is wrong with them.
#include "checkpoints/checkpoint.hpp"

#include <zlib.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "experiments/files/tensor_bytes.hpp"
#include "scratch.hpp"
#include "support.hpp"

namespace fp8lab::tests::checkpoint_files {
namespace {

using experiments::Checkpoint;
using experiments::FileFault;
using experiments::FileProblem;
using experiments::StoredTensor;
using tensor_bytes::dict;
using tensor_bytes::le;
using tensor_bytes::npy;
using tensor_bytes::object;
using tensor_bytes::safetensors;
using tensor_bytes::tensor;
namespace fs = std::filesystem;

void put(const fs::path& path, const std::string& content) { std::ofstream(path, std::ios::binary) << content; }

std::string content_of(const Checkpoint& checkpoint, std::string_view name) {
  const StoredTensor* const found = checkpoint.find(name);
  REQUIRE(found != nullptr);
  const std::vector<std::byte> bytes = checkpoint.read_whole(*found);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::string> names_of(const Checkpoint& checkpoint) {
  std::vector<std::string> names;
  for (const StoredTensor& stored : checkpoint.tensors()) names.push_back(stored.name);
  return names;
}

/// "fault file [tensors]" of each problem.
std::vector<std::string> told(const Checkpoint& checkpoint) {
  std::vector<std::string> lines;
  for (const FileProblem& problem : checkpoint.problems()) {
    std::string line = std::string(name_of(problem.fault)) + " " + problem.file;
    for (const std::string& name : problem.tensors) line += " " + name;
    CHECK(!problem.words.empty());
    lines.push_back(line);
  }
  return lines;
}

std::string refusal_of(const fs::path& path) {
  try {
    const Checkpoint checkpoint(path);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "no error";
}

/// Two shards and their index.
struct Shards : Scratch {
  std::string first =
      safetensors(object("\"__metadata__\":{\"format\":\"pt\"}," + tensor("layers.10.w", "F8_E4M3", "[2,4]", 0, 8) +
                         "," + tensor("layers.2.w", "BF16", "[2]", 8, 12)),
                  "abcdefghIJKL");
  std::string second = safetensors(object(tensor("layers.10.w_scale", "F32", "[]", 0, 4)), "wxyz");
  nlohmann::json index = {
      {"metadata", {{"total_size", 16}}},
      {"weight_map",
       {{"layers.10.w", "a.safetensors"}, {"layers.2.w", "a.safetensors"}, {"layers.10.w_scale", "b.safetensors"}}}};

  [[nodiscard]] Checkpoint open() const {
    put(path / "a.safetensors", first);
    if (!second.empty()) put(path / "b.safetensors", second);
    put(path / "model.safetensors.index.json", index.dump());
    return Checkpoint(path);
  }
};

}  // namespace

TEST_CASE("a checkpoint has the tensors of all shards in the order of their numbers, and their bytes") {
  Shards shards;
  put(shards.path / "config.json", R"({"text_config": {"quantization_config": {"quant_method": "fp8"}}})");
  put(shards.path / "hf_quant_config.json", R"({"quantization": {"quant_algo": "FP8"}})");
  const Checkpoint checkpoint = shards.open();
  CHECK(told(checkpoint).empty());
  CHECK(names_of(checkpoint) == std::vector<std::string>{"layers.2.w", "layers.10.w", "layers.10.w_scale"});
  CHECK(content_of(checkpoint, "layers.10.w") == "abcdefgh");
  CHECK(content_of(checkpoint, "layers.2.w") == "IJKL");
  CHECK(content_of(checkpoint, "layers.10.w_scale") == "wxyz");
  const StoredTensor& weight = *checkpoint.find("layers.10.w");
  CHECK(weight.dtype == "F8_E4M3");
  CHECK(weight.shape == std::vector<std::uint64_t>{2, 4});
  CHECK(checkpoint.files()[weight.file].filename() == "a.safetensors");
  std::array<std::byte, 3> middle{};
  checkpoint.read(weight, 3, middle);
  CHECK(std::memcmp(middle.data(), "def", 3) == 0);
  CHECK_THROWS_AS(checkpoint.read(weight, 6, middle), std::invalid_argument);
  CHECK(checkpoint.find("layers.1.w") == nullptr);
  CHECK(checkpoint.quantization()["quant_method"] == "fp8");
  CHECK(checkpoint.hf_quant_config()["quantization"]["quant_algo"] == "FP8");
  CHECK(checkpoint.metadata()["format"] == "pt");
  // The index and a shard are the same files by another name.
  CHECK(names_of(Checkpoint(shards.path / "model.safetensors.index.json")).size() == 3);
  CHECK(names_of(Checkpoint(shards.path / "a.safetensors")).size() == 2);
}

TEST_CASE("what is wrong with the files of a checkpoint is told, and the rest is read") {
  Shards shards;
  SECTION("a shard is missing") {
    shards.second.clear();
    const Checkpoint checkpoint = shards.open();
    CHECK(told(checkpoint) == std::vector<std::string>{"missing shard b.safetensors layers.10.w_scale"});
    CHECK(content_of(checkpoint, "layers.2.w") == "IJKL");
  }
  SECTION("a shard is too short") {
    shards.first.pop_back();
    const Checkpoint checkpoint = shards.open();
    CHECK(told(checkpoint) == std::vector<std::string>{"truncated a.safetensors layers.2.w"});
    CHECK(content_of(checkpoint, "layers.10.w") == "abcdefgh");
    CHECK_FALSE(checkpoint.has_data(*checkpoint.find("layers.2.w")));
    CHECK_THROWS_AS(checkpoint.read_whole(*checkpoint.find("layers.2.w")), std::runtime_error);
  }
  SECTION("a shard is no .safetensors file") {
    shards.second = "short";
    CHECK(told(shards.open()) == std::vector<std::string>{"unreadable b.safetensors layers.10.w_scale"});
  }
  SECTION("two tensors share bytes") {
    shards.first = safetensors(
        object(tensor("layers.10.w", "F8_E4M3", "[2,4]", 0, 8) + "," + tensor("layers.2.w", "BF16", "[3]", 6, 12)),
        "abcdefghIJKL");
    const Checkpoint checkpoint = shards.open();
    CHECK(told(checkpoint).front() == "overlap a.safetensors layers.10.w layers.2.w");
    CHECK(content_of(checkpoint, "layers.2.w") == "ghIJKL");
  }
  SECTION("a tensor has not the bytes that its shape needs") {
    shards.first = safetensors(
        object(tensor("layers.10.w", "F8_E4M3", "[2,5]", 0, 8) + "," + tensor("layers.2.w", "BF16", "[2]", 8, 12)),
        "abcdefghIJKL");
    CHECK(told(shards.open()) == std::vector<std::string>{"wrong size a.safetensors layers.10.w"});
  }
  SECTION("a shard is another's copy") {
    shards.second = shards.first;
    const Checkpoint checkpoint = shards.open();
    CHECK(told(checkpoint) == std::vector<std::string>{"total_size " + shards.path.filename().native(),
                                                       "equal shards b.safetensors layers.10.w layers.2.w",
                                                       "not in file b.safetensors layers.10.w_scale",
                                                       "name twice b.safetensors layers.10.w layers.2.w"});
    CHECK(checkpoint.tensors().size() == 2);
  }
  SECTION("a tensor is in two files, and the index says in which one") {
    shards.second = safetensors(
        object(tensor("layers.10.w_scale", "F32", "[]", 0, 4) + "," + tensor("layers.2.w", "BF16", "[2]", 4, 8)),
        "wxyzMNOP");
    shards.index["weight_map"]["layers.2.w"] = "b.safetensors";
    shards.index["metadata"]["total_size"] = 20;
    const Checkpoint checkpoint = shards.open();
    CHECK(told(checkpoint) == std::vector<std::string>{"name twice b.safetensors layers.2.w"});
    CHECK(content_of(checkpoint, "layers.2.w") == "MNOP");
  }
  SECTION("a name comes twice in one header") {
    shards.first = safetensors(
        object(tensor("layers.10.w", "F8_E4M3", "[2,4]", 0, 8) + "," + tensor("layers.2.w", "BF16", "[2]", 8, 12) +
               "," + tensor("layers.2.w", "BF16", "[2]", 12, 16)),
        "abcdefghIJKLMNOP");
    shards.index["metadata"]["total_size"] = 20;
    CHECK(told(shards.open()) == std::vector<std::string>{"name twice a.safetensors layers.2.w"});
  }
  SECTION("the index leaves a tensor out, and the total is another") {
    shards.index["weight_map"].erase("layers.2.w");
    shards.index["metadata"]["total_size"] = 17;
    CHECK(told(shards.open()) == std::vector<std::string>{"total_size " + shards.path.filename().native(),
                                                          "not in index a.safetensors layers.2.w"});
  }
  SECTION("a configuration is no JSON") {
    put(shards.path / "config.json", "{");
    CHECK(told(shards.open()) == std::vector<std::string>{"bad config config.json"});
  }
}

TEST_CASE("nothing that can be read is an error, and pickled files are not read") {
  const Scratch scratch;
  CHECK_THAT(refusal_of(scratch.path / "none"), ContainsSubstring("there is no such file"));
  CHECK_THAT(refusal_of(std::string(100'000, 'x')),
             ContainsSubstring("cannot read xx") && ContainsSubstring("too long"));
  CHECK_THAT(refusal_of(scratch.path), ContainsSubstring("no .safetensors, .gguf, .npz or .npy file"));
  put(scratch.path / "pytorch_model.bin", "\x80\x02}q.");
  CHECK_THAT(refusal_of(scratch.path), ContainsSubstring("to read them is to run them"));
  CHECK_THAT(refusal_of(scratch.path / "pytorch_model.bin"), ContainsSubstring("to read it is to run it"));
  put(scratch.path / "model.safetensors", safetensors("{\"a\":7}", ""));
  CHECK_THAT(refusal_of(scratch.path), ContainsSubstring("\"a\" is not an object"));
}

TEST_CASE("a .safetensors header of 128 bytes begins as a pickled file does, and is read") {
  const Scratch scratch;
  std::string header = object(tensor("w", "U8", "[2]", 0, 2));
  header.resize(128, ' ');
  put(scratch.path / "model.safetensors", safetensors(header, "xy"));
  CHECK(content_of(Checkpoint(scratch.path), "w") == "xy");
}

TEST_CASE(".npy files of a directory are tensors called by the files") {
  const Scratch scratch;
  put(scratch.path / "w10.npy", npy(dict("<f4", "(2,)"), "abcdefgh"));
  put(scratch.path / "w9.npy", npy(dict("<V2", "(2, 1)", "True"), "ABCD"));
  put(scratch.path / "w8.npy", npy(dict("<f4", "(3,)"), "abcdefgh"));
  const Checkpoint checkpoint(scratch.path);
  CHECK(names_of(checkpoint) == std::vector<std::string>{"w9", "w10"});
  CHECK(checkpoint.find("w9")->dtype == "BF16");  // of ml_dtypes
  CHECK(checkpoint.find("w9")->fortran_order);
  CHECK(content_of(checkpoint, "w10") == "abcdefgh");
  CHECK(told(checkpoint) == std::vector<std::string>{"unreadable w8.npy"});
}

namespace {

/// An archive of one member or more, as NumPy writes it: stored, or deflated.
struct Archive {
  std::string bytes, directory;
  int entries = 0;

  void add(const std::string& name, const std::string& content, bool deflated, int method = -1) {
    std::string packed = content;
    if (deflated) {
      z_stream stream{};
      REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
      packed.resize(deflateBound(&stream, content.size()));
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
      stream.avail_in = static_cast<uInt>(content.size());
      stream.next_out = reinterpret_cast<Bytef*>(packed.data());
      stream.avail_out = static_cast<uInt>(packed.size());
      REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
      packed.resize(stream.total_out);
      deflateEnd(&stream);
    }
    const std::uint64_t how = method >= 0 ? static_cast<std::uint64_t>(method) : (deflated ? 8 : 0);
    const std::string common = le(0, 2) + le(how, 2) + le(0, 4) + le(0, 4);
    const std::string extra =
        le(1, 2) + le(16, 2) + le(content.size(), 8) + le(packed.size(), 8);  // as NumPy's force_zip64
    const std::uint64_t at = bytes.size();
    bytes += "PK\3\4" + le(45, 2) + common + le(0xFFFFFFFF, 4) + le(0xFFFFFFFF, 4) + le(name.size(), 2) +
             le(extra.size(), 2) + name + extra + packed;
    const bool large = entries % 2 == 0;  // the sizes of every other member are in the extra field
    directory += "PK\1\2" + le(45, 2) + le(45, 2) + common + le(large ? 0xFFFFFFFF : packed.size(), 4) +
                 le(large ? 0xFFFFFFFF : content.size(), 4) + le(name.size(), 2) + le(large ? extra.size() : 0, 2) +
                 le(0, 2) + le(0, 2) + le(0, 2) + le(0, 4) + le(at, 4) + name + (large ? extra : "");
    ++entries;
  }
  [[nodiscard]] std::string whole() const {
    return bytes + directory + "PK\5\6" + le(0, 4) + le(static_cast<unsigned>(entries), 2) +
           le(static_cast<unsigned>(entries), 2) + le(directory.size(), 4) + le(bytes.size(), 4) + le(0, 2);
  }
};

}  // namespace

TEST_CASE("an .npz archive has its members as tensors, stored or deflated") {
  const Scratch scratch;
  std::string data;
  for (int i = 0; i < 100'000; ++i) data += le(static_cast<unsigned>(i) * 2654435761U >> 7, 4);
  Archive archive;
  archive.add("deflated.npy", npy(dict("<f4", "(1000, 100)"), data), true);
  archive.add("stored.npy", npy(dict("|u1", "(4,)"), "wxyz"), false);
  put(scratch.path / "m.npz", archive.whole());
  const Checkpoint checkpoint(scratch.path / "m.npz");
  CHECK(told(checkpoint).empty());
  CHECK(content_of(checkpoint, "stored") == "wxyz");
  CHECK(content_of(checkpoint, "deflated") == data);
  // From every place: forward, and back to the begin.
  for (const std::size_t at : {0, 399'000, 5, 200'000, 70'000}) {
    std::array<char, 1000> piece{};
    checkpoint.read(*checkpoint.find("deflated"), at, std::as_writable_bytes(std::span(piece)));
    CHECK(std::string(piece.data(), piece.size()) == data.substr(at, 1000));
  }
  // What is wrong with an archive.
  put(scratch.path / "cut.npz", archive.whole().substr(0, archive.bytes.size()));
  CHECK_THAT(refusal_of(scratch.path / "cut.npz"), ContainsSubstring("a ZIP archive without an end"));
  Archive other;
  other.add("a.npy", npy(dict("|u1", "(4,)"), "wxyz"), false, 12);
  put(scratch.path / "other.npz", other.whole());
  CHECK_THAT(refusal_of(scratch.path / "other.npz"), ContainsSubstring("another method than deflate"));
}

TEST_CASE("a GGUF file has its tensors, the outermost dimension first, and its metadata but long lists") {
  const Scratch scratch;
  const auto text = [](const std::string& words) { return le(words.size(), 8) + words; };
  const auto entry = [&](const std::string& name, const std::vector<std::uint64_t>& innermost_first, int type,
                         int offset) {
    std::string bytes = text(name) + le(innermost_first.size(), 4);
    for (const std::uint64_t length : innermost_first) bytes += le(length, 8);
    return bytes + le(static_cast<unsigned>(type), 4) + le(static_cast<unsigned>(offset), 8);
  };
  std::string words;
  for (int i = 0; i < 65; ++i) words += text("w");
  std::string bytes = "GGUF" + le(3, 4) + le(3, 8) + le(6, 8);
  bytes += text("general.architecture") + le(8, 4) + text("llama");
  bytes += text("general.alignment") + le(4, 4) + le(64, 4);
  bytes += text("tokens") + le(9, 4) + le(8, 4) + le(65, 8) + words;
  bytes += text("long") + le(9, 4) + le(5, 4) + le(70, 8) + std::string(280, 'x');
  bytes += text("eps") + le(6, 4) + le(0x3F800000, 4);
  bytes += text("short") + le(9, 4) + le(5, 4) + le(2, 8) + le(7, 4) + le(0xFFFFFFFE, 4);
  bytes += entry("blk.10.w", {64, 3}, 40, 0) + entry("blk.2.w", {32, 2}, 39, 128) + entry("n", {2}, 0, 192);
  bytes.resize((bytes.size() + 63) / 64 * 64);
  const std::string nvfp4(108, 'n');
  const std::string mxfp4(34, 'm');
  bytes += nvfp4 + std::string(20, '\0') + mxfp4 + std::string(30, '\0') + "12345678";
  put(scratch.path / "m.gguf", bytes);
  const Checkpoint checkpoint(scratch.path / "m.gguf");
  CHECK(told(checkpoint).empty());
  CHECK(names_of(checkpoint) == std::vector<std::string>{"blk.2.w", "blk.10.w", "n"});
  CHECK(checkpoint.find("blk.10.w")->dtype == "NVFP4");
  CHECK(checkpoint.find("blk.10.w")->shape == std::vector<std::uint64_t>{3, 64});
  CHECK(content_of(checkpoint, "blk.10.w") == nvfp4);
  CHECK(content_of(checkpoint, "blk.2.w") == mxfp4);
  CHECK(content_of(checkpoint, "n") == "12345678");
  CHECK(checkpoint.metadata()["general.architecture"] == "llama");
  CHECK(checkpoint.metadata()["tokens"].is_null());
  CHECK(checkpoint.metadata()["eps"] == 1.0);
  CHECK(checkpoint.metadata()["short"] == nlohmann::json{7, -2});
  // A file that ends too early keeps what it has.
  put(scratch.path / "m.gguf", bytes.substr(0, bytes.size() - 1));
  CHECK(told(Checkpoint(scratch.path)) == std::vector<std::string>{"truncated m.gguf n"});
  put(scratch.path / "m.gguf", bytes.substr(0, 100));
  CHECK_THAT(refusal_of(scratch.path), ContainsSubstring("within its header"));
}

}  // namespace fp8lab::tests::checkpoint_files
