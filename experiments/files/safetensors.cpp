// SPDX-License-Identifier: Apache-2.0
// The header of a .safetensors file: https://github.com/huggingface/safetensors#format
#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/tensor_header.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::string_view metadata_name = "__metadata__";
constexpr std::size_t most_tensors = std::size_t{1} << 16;  // that can be asked for

/// Where a tensor lies: all that is kept of those that were not asked for.
struct Extent {
  std::string name;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// A tensor as the header describes it.
struct Description {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::vector<std::uint64_t> offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
  std::size_t wanted = 0;  ///< the first of the names asked for that names it
};

/// Follows the parser through {"name": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, ...} and fails at the
/// first thing that does not belong where it stands. So nothing nests deeper than three, and nothing is kept that a
/// reader does not need.
class Listener final : public nlohmann::json::json_sax_t {
 public:
  Listener(const Bytes& bytes, std::span<const std::string> names) : bytes_(&bytes), names_(names) {}
  /// Keeps all tensors and the metadata in `all`.
  Listener(const Bytes& bytes, StatedHeader& all) : bytes_(&bytes), all_(&all) {}

  std::vector<Extent> tensors;
  std::vector<Description> chosen;  ///< the tensors asked for; without names the first

  bool start_object(std::size_t /*unknown*/) override {
    if (place_ == Place::start) {
      place_ = Place::tensors;
    } else if (place_ == Place::tensors) {
      place_ = tensor_.name == metadata_name ? Place::metadata : Place::tensor;
    } else {
      misplaced();
    }
    return true;
  }
  bool key(std::string& text) override {
    if (place_ == Place::tensors) {
      tensor_ = {};
      tensor_.name = std::move(text);
      if (tensor_.name == metadata_name && std::exchange(has_metadata_, true)) bytes_->fail(about() + " comes twice");
    } else if (place_ == Place::tensor) {
      place_ = field(text);
    } else if (place_ == Place::metadata && all_ != nullptr) {
      all_->metadata.emplace_back(std::move(text), "");
    }
    return true;
  }
  bool string(std::string& text) override {
    if (place_ == Place::metadata) {
      if (all_ != nullptr) all_->metadata.back().second = std::move(text);
      return true;
    }
    if (place_ != Place::dtype) misplaced();
    tensor_.dtype = std::move(text);
    place_ = Place::tensor;
    return true;
  }
  bool start_array(std::size_t /*unknown*/) override {
    if ((place_ != Place::shape && place_ != Place::offsets) || std::exchange(in_array_, true)) misplaced();
    return true;
  }
  bool number_unsigned(std::uint64_t number) override {
    std::vector<std::uint64_t>& numbers = place_ == Place::shape ? tensor_.shape : tensor_.offsets;
    if (!in_array_ || numbers.size() == (place_ == Place::shape ? most_dimensions : 2)) misplaced();
    numbers.push_back(number);
    return true;
  }
  bool end_array() override {
    if (place_ == Place::offsets && tensor_.offsets.size() != 2) misplaced();
    in_array_ = false;
    place_ = Place::tensor;
    return true;
  }
  bool end_object() override {
    if (place_ == Place::tensor) finish_tensor();
    place_ = Place::tensors;
    return true;
  }
  bool number_integer(std::int64_t /*negative*/) override { misplaced(); }
  bool number_float(double /*number*/, const std::string& /*text*/) override { misplaced(); }
  bool null() override { misplaced(); }
  bool boolean(bool /*value*/) override { misplaced(); }
  bool binary(nlohmann::json::binary_t& /*bytes*/) override { misplaced(); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    bytes_->fail("its header is not JSON at byte " + std::to_string(position));
  }

 private:
  /// The place that the parser is at: the list, one tensor, or the value of one of its keys.
  enum class Place : std::uint8_t { start, tensors, tensor, dtype, shape, offsets, metadata };

  /// The tensor being read, or the metadata, as messages name it.
  [[nodiscard]] std::string about() const {
    return tensor_.name == metadata_name ? printable(metadata_name) : "tensor " + printable(tensor_.name);
  }
  Place field(const std::string& key) {
    bool again = false;
    Place place = Place::tensor;
    if (key == "dtype") {
      again = std::exchange(tensor_.has_dtype, true);
      place = Place::dtype;
    } else if (key == "shape") {
      again = std::exchange(tensor_.has_shape, true);
      place = Place::shape;
    } else if (key == "data_offsets") {
      again = std::exchange(tensor_.has_offsets, true);
      place = Place::offsets;
    }
    if (again || place == Place::tensor) {
      bytes_->fail(about() + " has the key " + printable(key) + "; it has dtype, shape and data_offsets, once each");
    }
    return place;
  }
  void finish_tensor() {
    if (!tensor_.has_dtype || !tensor_.has_shape || !tensor_.has_offsets) {
      bytes_->fail(about() + " lacks one of dtype, shape and data_offsets");
    }
    if (all_ != nullptr) {
      all_->tensors.push_back({std::move(tensor_.name), std::move(tensor_.dtype), std::move(tensor_.shape),
                               tensor_.offsets[0], tensor_.offsets[1]});
      return;
    }
    tensors.push_back({tensor_.name, tensor_.offsets[0], tensor_.offsets[1]});
    const auto named =
        std::ranges::find_if(names_, [&](const std::string& name) { return names_tensor(name, tensor_.name); });
    if (names_.empty() ? tensors.size() > 1 : named == names_.end()) return;
    if (chosen.size() == most_tensors) bytes_->refuse("more than 2^16 of its tensors are asked for");
    tensor_.wanted = static_cast<std::size_t>(named - names_.begin());
    chosen.push_back(std::move(tensor_));
  }
  [[noreturn]] void misplaced() const { bytes_->fail(about() + expectation()); }
  [[nodiscard]] std::string expectation() const {
    switch (place_) {
      case Place::start:
      case Place::tensors:
      case Place::tensor: return " is not an object";
      case Place::dtype: return ": its dtype is not a text";
      case Place::shape:
        return ": its shape is not an array of at most " + std::to_string(most_dimensions) +
               " whole numbers below 2^64";
      case Place::offsets: return ": its data_offsets are not an array of two whole numbers below 2^64";
      case Place::metadata: return " is not an object of texts";
    }
    return "";
  }

  const Bytes* bytes_;
  std::span<const std::string> names_;
  StatedHeader* all_ = nullptr;
  Place place_ = Place::start;
  bool in_array_ = false;
  bool has_metadata_ = false;
  Description tensor_;
};

/// Throws where a tensor does not lie within the `available` bytes of data, or two of them share some.
void check_extents(const Bytes& bytes, std::vector<Extent>& tensors, std::uint64_t available) {
  std::ranges::sort(tensors, {}, &Extent::begin);
  const Extent* before = nullptr;
  for (const Extent& tensor : tensors) {
    if (tensor.begin > tensor.end || tensor.end > available) {
      bytes.fail("tensor " + printable(tensor.name) + " has data_offsets [" + std::to_string(tensor.begin) + ", " +
                 std::to_string(tensor.end) + "]; the file has bytes 0 to " + std::to_string(available) + " of data");
    }
    if (tensor.begin == tensor.end) continue;  // no elements, no bytes to share
    if (before != nullptr && before->end > tensor.begin) {
      bytes.fail("tensors " + printable(before->name) + " and " + printable(tensor.name) + " overlap");
    }
    before = &tensor;
  }
}

/// "it holds 3 tensors: ...", with the first names.
std::string list(const std::vector<Extent>& tensors) {
  constexpr std::size_t most = 10;
  std::string text = "it holds " + std::to_string(tensors.size()) + (tensors.size() == 1 ? " tensor" : " tensors");
  for (std::size_t i = 0; i < std::min(tensors.size(), most); ++i) {
    text += (i == 0 ? ": " : ", ") + printable(tensors[i].name);
  }
  return text + (tensors.size() > most ? ", ..." : "");
}

/// Throws where two tensors have one name, or where `names` do not tell which ones to read.
void check_names(const Bytes& bytes, std::vector<Extent>& tensors, std::span<const std::string> names, bool has_any) {
  std::ranges::sort(tensors, {}, &Extent::name);
  const auto twice = std::ranges::adjacent_find(tensors, {}, &Extent::name);
  if (twice != tensors.end()) bytes.fail("tensor " + printable(twice->name) + " comes twice");
  if (tensors.empty()) bytes.fail("it holds no tensors");
  if (names.empty() && tensors.size() > 1) {
    bytes.refuse("one tensor must be named, or '*' for all: " + list(tensors));
  }
  if (has_any) return;
  const std::string others =
      names.size() > 1 ? ", nor any other of the " + std::to_string(names.size()) + " names" : "";
  bytes.refuse("it has no tensor " + printable(names.front()) + others + "; " + list(tensors));
}

struct Type {
  std::string_view dtype;
  ElementType type;
  std::string_view format = {};
  bool is_other = false;  ///< words of another meaning that have as many bytes
  bool pairs = false;     ///< two elements in each byte
};

/// A tensor whose elements have a size that is not known, or less than a byte: the bytes of each of its rows.
TensorHeader header_of_bytes(Description tensor) {
  const std::uint64_t size = tensor.offsets[1] - tensor.offsets[0];
  std::vector<std::uint64_t> shape = std::move(tensor.shape);
  if (!shape.empty()) shape.pop_back();
  const std::uint64_t rows = elements_of(shape, ElementType::uint8).value_or(0);
  if (rows != 0 && size % rows == 0) {
    shape.push_back(size / rows);
  } else {
    shape = {size};
  }
  return {.name = std::move(tensor.name),
          .type = ElementType::uint8,
          .shape = std::move(shape),
          .size = size,
          .offset = tensor.offsets[0],
          .wanted = tensor.wanted,
          .dtype = printable(tensor.dtype) + " as bytes"};
}

TensorHeader header_of(const Bytes& bytes, Description tensor, OtherDtypes others) {
  // 1. The type.
  constexpr std::array types{Type{"F32", ElementType::float32},
                             Type{"F64", ElementType::float64},
                             Type{"F16", ElementType::float16},
                             Type{"BF16", ElementType::bfloat16},
                             Type{"F8_E4M3", ElementType::uint8, "e4m3"},
                             Type{"F8_E5M2", ElementType::uint8, "e5m2"},
                             Type{"F8_E4M3FNUZ", ElementType::uint8, "e4m3fnuz"},
                             Type{"F8_E5M2FNUZ", ElementType::uint8, "e5m2fnuz"},
                             Type{"F8_E8M0", ElementType::uint8, "e8m0"},
                             Type{"F4", ElementType::uint8, "e2m1", false, true},
                             Type{"U8", ElementType::uint8},
                             Type{"I8", ElementType::uint8},
                             Type{"BOOL", ElementType::uint8, "", true},
                             Type{"I16", ElementType::float16, "", true},
                             Type{"U16", ElementType::float16, "", true},
                             Type{"I32", ElementType::float32, "", true},
                             Type{"U32", ElementType::float32, "", true},
                             Type{"I64", ElementType::float64, "", true},
                             Type{"U64", ElementType::float64, "", true},
                             Type{"C64", ElementType::float64, "", true}};
  const std::string about = "tensor " + printable(tensor.name);
  const auto* type = std::ranges::find(types, tensor.dtype, &Type::dtype);
  if (type != types.end() && type->pairs) {
    const bool has_whole_bytes = !tensor.shape.empty() && tensor.shape.back() % 2 == 0;
    if (has_whole_bytes) tensor.shape.back() /= 2;
    if (!has_whole_bytes) type = types.end();
  }
  if (others == OtherDtypes::refused && (type == types.end() || type->is_other)) {
    bytes.fail(
        about + " has the dtype " + printable(tensor.dtype) +
        "; F32, F64, F16, BF16, and codes (F8_E4M3, F8_E5M2, both with FNUZ, F8_E8M0, F4 in rows of whole bytes, U8, "
        "I8) are read");
  }
  if (type == types.end()) return header_of_bytes(std::move(tensor));
  // 2. As many bytes as its elements need.
  const std::optional<std::uint64_t> size = elements_of(tensor.shape, type->type);
  if (!size) bytes.fail(about + " has a shape of more elements than a file can hold");
  const std::uint64_t wanted = *size * bytes_of(type->type);
  const std::uint64_t has = tensor.offsets[1] - tensor.offsets[0];
  if (has != wanted) {
    bytes.fail(about + " has " + std::to_string(has) + " bytes; its shape and dtype need " + std::to_string(wanted));
  }
  return {.name = std::move(tensor.name),
          .type = type->type,
          .shape = std::move(tensor.shape),
          .size = *size,
          .offset = tensor.offsets[0],
          .wanted = tensor.wanted,
          .format = type->format,
          .pairs = type->pairs,
          .dtype = type->is_other ? std::move(tensor.dtype) : ""};
}

/// The text of a header, which begins behind the eight bytes of its length. The limit is that of the format's own
/// library.
std::string header_text(Bytes& bytes) {
  constexpr std::uint64_t longest = 100'000'000;
  const std::uint64_t length = bytes.number(0, 8);
  if (length > longest) {
    bytes.fail("its header has " + std::to_string(length) + " bytes; at most " + std::to_string(longest) + " are read");
  }
  const std::string text = bytes.text(8, length);
  // The parser takes a zero byte for the end of its input, and would not look behind it.
  if (const std::size_t zero = text.find('\0'); zero != std::string::npos) {
    bytes.fail("its header is not JSON at byte " + std::to_string(zero));
  }
  return text;
}

}  // namespace

bool comes_before(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto number_of = [&](std::string_view& text) {
    const std::size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::size_t begin = std::min(text.find_first_not_of('0'), end);
    const std::string_view digits = text.substr(begin, end - begin);
    text.remove_prefix(end);
    return digits;
  };
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view x = number_of(a);
      const std::string_view y = number_of(b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else if (a.front() != b.front()) {
      return a.front() < b.front();
    } else {
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

StatedHeader read_stated_header(Bytes& bytes) {
  const std::string text = header_text(bytes);
  StatedHeader header{.data = 8 + text.size()};
  Listener listener(bytes, header);
  nlohmann::json::sax_parse(text, &listener);
  for (StatedTensor& tensor : header.tensors) {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    for (std::uint64_t* at : {&tensor.begin, &tensor.end}) *at = *at > most - header.data ? most : *at + header.data;
  }
  return header;
}

std::vector<TensorHeader> read_safetensors_headers(Bytes& bytes, std::span<const std::string> names,
                                                   OtherDtypes others) {
  // 1. The header.
  const std::string text = header_text(bytes);
  Listener listener(bytes, names);
  nlohmann::json::sax_parse(text, &listener);

  // 2. What it says of all tensors, then of those asked for.
  const std::uint64_t begin = 8 + text.size();
  check_names(bytes, listener.tensors, names, !listener.chosen.empty());
  check_extents(bytes, listener.tensors, bytes.size() - begin);
  std::vector<TensorHeader> headers;
  for (Description& chosen : listener.chosen) {
    headers.push_back(header_of(bytes, std::move(chosen), others));
    headers.back().offset += begin;
  }
  std::ranges::sort(headers, [](const TensorHeader& a, const TensorHeader& b) {
    if (a.wanted != b.wanted) return a.wanted < b.wanted;
    if (comes_before(a.name, b.name) || comes_before(b.name, a.name)) return comes_before(a.name, b.name);
    return a.name < b.name;
  });
  return headers;
}

}  // namespace fp8lab::experiments
