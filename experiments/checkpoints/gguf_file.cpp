// SPDX-License-Identifier: Apache-2.0
// The header of a GGUF file: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "checkpoints/containers.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::uint64_t longest_gguf_text = std::uint64_t{1} << 24;
constexpr std::uint64_t most_gguf_entries = std::uint64_t{1}
                                            << 20;  // tensors, or keys: what a header can make a reader hold
constexpr std::uint64_t longest_kept_list = 64;

/// Goes through a header from its begin to its end.
class GgufHeader {
 public:
  explicit GgufHeader(Bytes& bytes) : bytes_(&bytes) {}

  [[nodiscard]] std::uint64_t number(std::uint64_t length) {
    const std::uint64_t value = bytes_->number(at_, length);
    at_ += length;
    return value;
  }
  [[nodiscard]] std::string text() {
    const std::uint64_t length = number(8);
    if (length > longest_gguf_text) bytes_->fail("a text of its header has more than 2^24 bytes");
    std::string words = bytes_->text(at_, length);
    at_ += length;
    return words;
  }
  [[nodiscard]] std::uint64_t count(std::string_view of) {
    const std::uint64_t entries = number(8);
    if (entries > most_gguf_entries) bytes_->fail(std::string("it states more than 2^20 ").append(of));
    return entries;
  }
  void skip(std::uint64_t length) {
    if (length > bytes_->size() || at_ > bytes_->size() - length) bytes_->fail("it ends within its header");
    at_ += length;
  }
  /// A value of the metadata; null for a long list, which is skipped.
  [[nodiscard]] nlohmann::json value(std::uint32_t type) {
    constexpr std::uint32_t list = 9;
    if (type != list) return scalar(type);
    const auto element = static_cast<std::uint32_t>(number(4));
    const std::uint64_t entries = number(8);
    if (element == list) bytes_->fail("a list of its metadata holds lists");
    const bool kept = entries <= longest_kept_list;
    nlohmann::json values = kept ? nlohmann::json::array() : nlohmann::json();
    constexpr std::uint32_t words = 8;
    if (!kept && element != words) {
      const std::uint64_t size = size_of(element);
      if (entries > bytes_->size() / size) bytes_->fail("it ends within its header");
      skip(entries * size);
      return values;
    }
    for (std::uint64_t i = 0; i < entries; ++i) {
      if (kept) {
        values.push_back(scalar(element));
      } else {
        skip(number(8));
      }
    }
    return values;
  }
  [[nodiscard]] std::uint64_t at() const { return at_; }

 private:
  [[nodiscard]] std::uint64_t size_of(std::uint32_t type) const {
    constexpr std::array<std::uint64_t, 13> sizes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type >= sizes.size() || sizes[type] == 0) {
      bytes_->fail("its metadata have a value of type " + std::to_string(type));
    }
    return sizes[type];
  }
  [[nodiscard]] nlohmann::json scalar(std::uint32_t type) {
    constexpr std::uint32_t words = 8;
    if (type == words) return text();
    const std::uint64_t size = size_of(type);
    const std::uint64_t word = number(size);
    const int unused = static_cast<int>(64 - 8 * size);
    switch (type) {
      case 1:
      case 3:
      case 5:
      case 11: return static_cast<std::int64_t>(word << unused) >> unused;
      case 6: return std::bit_cast<float>(static_cast<std::uint32_t>(word));
      case 7: return word != 0;
      case 12: return std::bit_cast<double>(word);
      default: return word;
    }
  }

  Bytes* bytes_;
  std::uint64_t at_ = 4;  // behind the magic
};

/// The facts of a tensor. The innermost dimension comes first.
StoredTensor read_gguf_tensor(GgufHeader& header, Bytes& bytes) {
  StoredTensor tensor{.name = header.text(), .dtype = {}, .shape = {}};
  const std::uint64_t dimensions = header.number(4);
  if (dimensions > 8) {
    bytes.fail("tensor " + printable(tensor.name) + " has " + std::to_string(dimensions) + " dimensions");
  }
  for (std::uint64_t d = 0; d < dimensions; ++d) tensor.shape.push_back(header.number(8));
  std::ranges::reverse(tensor.shape);
  const auto number = static_cast<std::uint32_t>(header.number(4));
  tensor.offset = header.number(8);
  const auto type = std::ranges::find(gguf_types(), number, &GgufType::number);
  if (type == gguf_types().end()) {
    tensor.dtype = "GGUF type " + std::to_string(number);
  } else {
    tensor.dtype = type->name;
    const std::uint64_t elements = tensor.elements();
    tensor.bytes = elements / type->elements * type->bytes;
    const bool whole = !tensor.shape.empty() && tensor.shape.back() % type->elements == 0;
    if (!whole && type->elements > 1) {
      bytes.fail("tensor " + printable(tensor.name) + " has rows that are not whole blocks of " +
                 std::to_string(type->elements));
    }
  }
  return tensor;
}

}  // namespace

std::span<const GgufType> gguf_types() {
  static constexpr std::array types{
      GgufType{0, "F32", 1, 4},         GgufType{1, "F16", 1, 2},         GgufType{2, "Q4_0", 32, 18},
      GgufType{3, "Q4_1", 32, 20},      GgufType{6, "Q5_0", 32, 22},      GgufType{7, "Q5_1", 32, 24},
      GgufType{8, "Q8_0", 32, 34},      GgufType{10, "Q2_K", 256, 84},    GgufType{11, "Q3_K", 256, 110},
      GgufType{12, "Q4_K", 256, 144},   GgufType{13, "Q5_K", 256, 176},   GgufType{14, "Q6_K", 256, 210},
      GgufType{15, "Q8_K", 256, 292},   GgufType{16, "IQ2_XXS", 256, 66}, GgufType{17, "IQ2_XS", 256, 74},
      GgufType{18, "IQ3_XXS", 256, 98}, GgufType{19, "IQ1_S", 256, 50},   GgufType{20, "IQ4_NL", 32, 18},
      GgufType{21, "IQ3_S", 256, 110},  GgufType{22, "IQ2_S", 256, 82},   GgufType{23, "IQ4_XS", 256, 136},
      GgufType{24, "I8", 1, 1},         GgufType{25, "I16", 1, 2},        GgufType{26, "I32", 1, 4},
      GgufType{27, "I64", 1, 8},        GgufType{28, "F64", 1, 8},        GgufType{29, "IQ1_M", 256, 56},
      GgufType{30, "BF16", 1, 2},       GgufType{34, "TQ1_0", 256, 54},   GgufType{35, "TQ2_0", 256, 66},
      GgufType{39, "MXFP4", 32, 17},    GgufType{40, "NVFP4", 64, 36}};
  return types;
}

Container read_gguf(Bytes& bytes) {
  // 1. The version and the counts.
  GgufHeader header(bytes);
  const std::uint64_t version = header.number(4);
  if (version != 2 && version != 3) {
    bytes.fail("its GGUF version is " + std::to_string(version) + "; 2 and 3 are read, of little-endian files");
  }
  const std::uint64_t tensors = header.count("tensors");
  const std::uint64_t keys = header.count("keys of metadata");

  // 2. The metadata. Long lists are those of a tokenizer.
  Container container;
  for (std::uint64_t i = 0; i < keys; ++i) {
    const std::string key = header.text();
    const auto type = static_cast<std::uint32_t>(header.number(4));
    container.metadata.emplace(key, header.value(type));
  }

  // 3. The tensors.
  for (std::uint64_t i = 0; i < tensors; ++i) container.tensors.push_back(read_gguf_tensor(header, bytes));

  // 4. The data begin at the next multiple of the alignment.
  std::uint64_t alignment = 32;
  const auto stated = container.metadata.find("general.alignment");
  if (stated != container.metadata.end() && stated->is_number_unsigned()) alignment = stated->get<std::uint64_t>();
  if (alignment == 0 || alignment > (1U << 20)) bytes.fail("its general.alignment is no alignment");
  const std::uint64_t data = (header.at() + alignment - 1) / alignment * alignment;
  for (StoredTensor& tensor : container.tensors) {
    constexpr std::uint64_t farthest = std::uint64_t{1} << 62;
    if (tensor.offset > farthest) bytes.fail("tensor " + printable(tensor.name) + " lies behind any file");
    tensor.offset += data;
  }
  // A type that is not known has what lies before the next tensor.
  for (StoredTensor& tensor : container.tensors) {
    if (!tensor.dtype.starts_with("GGUF type")) continue;
    std::uint64_t end = std::max(bytes.size(), tensor.offset);
    for (const StoredTensor& other : container.tensors) {
      if (other.offset > tensor.offset) end = std::min(end, other.offset);
    }
    tensor.bytes = end - tensor.offset;
  }
  return container;
}

}  // namespace fp8lab::experiments
