// SPDX-License-Identifier: Apache-2.0
#include "files/tensor_file.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "files/stored_file.hpp"
#include "files/tensor_header.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little,
              "the elements of both formats are read as they lie in memory");

constexpr std::string_view npy_magic = "\x93NUMPY";

std::vector<TensorHeader> read_headers(Bytes bytes, std::span<const std::string> names, OtherDtypes others) {
  const std::string begin = bytes.text(0, std::min<std::uint64_t>(bytes.size(), 9));
  if (begin.starts_with(npy_magic)) {
    if (!names.empty()) {
      bytes.refuse("the tensor of a .npy file has no name, so that " + printable(names.front()) + " cannot be chosen");
    }
    return {read_npy_header(bytes, others)};
  }
  if (begin.size() == 9 && begin.back() == '{') return read_safetensors_headers(bytes, names, others);
  bytes.fail(R"(it is neither .npy (begins with "\x93NUMPY") nor .safetensors (has a "{" as its ninth byte))");
}

/// The header of one tensor.
TensorHeader read_header(Bytes bytes, std::string_view tensor) {
  std::vector<std::string> names;
  if (!tensor.empty()) names.emplace_back(tensor);
  std::vector<TensorHeader> headers = read_headers(bytes, names, OtherDtypes::refused);
  if (headers.size() > 1) {
    bytes.refuse(printable(tensor) + " names " + std::to_string(headers.size()) +
                 " tensors: " + printable(headers[0].name) + ", " + printable(headers[1].name) + " and so on");
  }
  return std::move(headers.front());
}

/// The place of the "}" that closes the "{" at `open`; none where nothing does.
std::size_t closing_brace(std::string_view pattern, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < pattern.size(); ++i) {
    if (pattern[i] == '{') ++depth;
    if (pattern[i] == '}' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

/// The patterns that one with {a,b} stands for; at most 4096, which no user writes by hand.
std::vector<std::string> without_braces(std::string_view pattern) {
  constexpr std::size_t most = 4096;
  std::vector<std::string> done;
  std::vector<std::string> open{std::string(pattern)};
  while (!open.empty()) {
    const std::string one = std::move(open.back());
    open.pop_back();
    const std::size_t begin = one.find('{');
    const std::size_t end = begin == std::string::npos ? begin : closing_brace(one, begin);
    if (end == std::string::npos) {
      done.push_back(one);
      continue;
    }
    if (done.size() + open.size() > most) {
      throw std::invalid_argument("the pattern " + printable(pattern) + " stands for more than 4096 patterns");
    }
    int depth = 0;
    for (std::size_t first = begin + 1, i = first; i <= end; ++i) {
      if (one[i] == '{') ++depth;
      if (one[i] == '}' && i < end) --depth;
      if (i < end && (one[i] != ',' || depth > 0)) continue;
      open.push_back(one.substr(0, begin) + one.substr(first, i - first) + one.substr(end + 1));
      first = i + 1;
    }
  }
  return done;
}

/// Whether the set that begins at pattern[at], "[12]", "[a-c]" or "[!12]", has the character; `at` goes behind it. A
/// "[" that nothing closes is a character.
bool takes_set(std::string_view pattern, std::size_t& at, char c) {
  const std::size_t begin = at + 1 + (pattern.substr(at + 1).starts_with('!') ? 1 : 0);
  const std::size_t end = pattern.find(']', begin + 1);
  if (end == std::string_view::npos) return pattern[at++] == c;
  bool has = false;
  for (std::size_t i = begin; i < end; ++i) {
    const bool is_range = i + 2 < end && pattern[i + 1] == '-';
    has = has || (is_range ? pattern[i] <= c && c <= pattern[i + 2] : pattern[i] == c);
    if (is_range) i += 2;
  }
  const bool is_negated = begin == at + 2;
  at = end + 1;
  return has != is_negated;
}

/// The same without braces.
bool matches_plain(std::string_view pattern, std::string_view name) {
  // Where the last '*' stands, and the end of what it takes: on a mismatch it takes one character more.
  std::optional<std::size_t> star;
  std::size_t taken = 0;
  std::size_t p = 0;
  for (std::size_t n = 0; n < name.size();) {
    std::size_t next = p;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?'   ? (++next, true)
                                      : pattern[p] == '[' ? takes_set(pattern, next, name[n])
                                                          : (++next, pattern[p] == name[n]))) {
      p = next;
      ++n;
    } else if (star) {
      p = *star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.substr(p).find_first_not_of('*') == std::string_view::npos;
}

}  // namespace

std::span<const Named<ElementType>> named_values(ElementType /*any*/) {
  static constexpr std::array types{Named{"float32", ElementType::float32}, Named{"float64", ElementType::float64},
                                    Named{"float16", ElementType::float16}, Named{"bfloat16", ElementType::bfloat16},
                                    Named{"uint8", ElementType::uint8}};
  static_assert(is_in_order(types));
  return types;
}

bool names_tensor(std::string_view pattern, std::string_view name) {
  if (pattern == name) return true;
  const std::vector<std::string> plain = without_braces(pattern);
  return std::ranges::any_of(plain, [&](const std::string& one) { return matches_plain(one, name); });
}

bool is_pattern(std::string_view name) { return name.find_first_of("*?[{") != std::string_view::npos; }

std::vector<TensorHeader> find_tensors(const fs::path& path, std::span<const std::string> names, OtherDtypes others) {
  FileStream content(path);
  const std::string called = in_one_line(path.native());
  return read_headers(Bytes(content, called), names, others);
}

bool has_names(const fs::path& path) {
  FileStream content(path);
  const std::string called = in_one_line(path.native());
  Bytes bytes(content, called);
  return bytes.text(0, std::min<std::uint64_t>(bytes.size(), npy_magic.size())) != npy_magic;
}

std::string printable(std::string_view text) {
  const auto quoted = [](std::string_view part) {
    return nlohmann::json(part).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  };
  constexpr std::size_t most = 80;
  if (text.size() <= most) return quoted(text);
  const std::string begin = quoted(text.substr(0, 24));
  const std::string end = quoted(text.substr(text.size() - 53));  // where a path's file name is
  return begin.substr(0, begin.size() - 1) + "..." + end.substr(1);
}

std::uint64_t bytes_of(ElementType type) {
  switch (type) {
    case ElementType::float32: return sizeof(float);
    case ElementType::float64: return sizeof(double);
    case ElementType::float16: return sizeof(Half);
    case ElementType::bfloat16: return sizeof(BFloat16);
    case ElementType::uint8: return sizeof(std::uint8_t);
  }
  return 0;
}

std::optional<std::uint64_t> elements_of(std::span<const std::uint64_t> shape, ElementType type) {
  if (std::ranges::find(shape, 0U) != shape.end()) return 0;
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() / bytes_of(type);
  std::uint64_t elements = 1;
  for (const std::uint64_t length : shape) {
    if (elements > most / length) return std::nullopt;
    elements *= length;
  }
  return elements;
}

Bytes::Bytes(std::istream& content, std::string_view called) : content_(&content), called_(called) {
  content.clear();
  content.seekg(0, std::ios::end);
  const std::streamoff end = content.tellg();
  if (!content || end < 0) fail("its size is not known");
  size_ = static_cast<std::uint64_t>(end);
}

void Bytes::read(std::uint64_t at, std::span<std::byte> out) {
  if (at > size_ || out.size() > size_ - at) {
    fail("it ends at byte " + std::to_string(size_) + ", and its header describes more");
  }
  content_->clear();
  content_->seekg(static_cast<std::streamoff>(at));
  content_->read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
  if (!*content_) fail("its bytes from " + std::to_string(at) + " on cannot be read");
}

std::string Bytes::text(std::uint64_t at, std::uint64_t length) {
  if (at > size_ || length > size_ - at) {
    fail("it ends at byte " + std::to_string(size_) + ", within its header");
  }
  std::string text(length, '\0');
  read(at, std::as_writable_bytes(std::span(text)));
  return text;
}

std::uint64_t Bytes::number(std::uint64_t at, std::uint64_t length) {
  std::uint64_t number = 0;
  const std::string bytes = text(at, length);
  std::memcpy(&number, bytes.data(), std::min(bytes.size(), sizeof(number)));
  return number;
}

void Bytes::fail(std::string_view reason) const { throw std::runtime_error(cannot_read(called_, reason)); }
void Bytes::refuse(std::string_view reason) const { throw std::invalid_argument(cannot_read(called_, reason)); }

TensorFile::TensorFile(const fs::path& path, std::string_view tensor)
    : TensorFile(std::make_unique<FileStream>(path), path.native(), tensor) {}

TensorFile::TensorFile(const fs::path& path, TensorHeader header)
    : content_(std::make_unique<FileStream>(path)), called_(in_one_line(path.native())), header_(std::move(header)) {}

TensorFile::TensorFile(ReadBytes read, std::string_view called, TensorHeader header)
    : read_(std::move(read)), called_(in_one_line(called)), header_(std::move(header)) {}

TensorFile::TensorFile(std::unique_ptr<std::istream> content, std::string_view called, std::string_view tensor)
    : content_(std::move(content)),
      called_(in_one_line(called)),
      header_(read_header(Bytes(*content_, called_), tensor)) {}

void TensorFile::read_as(ElementType type, std::uint64_t first, std::span<std::byte> out) {
  const auto refuse_it = [&](const std::string& reason) { throw std::invalid_argument(cannot_read(called_, reason)); };
  if (type != header_.type) {
    refuse_it(std::string("its elements are ").append(name_of(header_.type)).append(", not ").append(name_of(type)));
  }
  const std::uint64_t wanted = out.size() / bytes_of(type);
  if (first > header_.size || wanted > header_.size - first) {
    refuse_it("it has " + std::to_string(header_.size) + " elements, not " + std::to_string(wanted) + " from " +
              std::to_string(first) + " on");
  }
  const std::uint64_t at = header_.offset + first * bytes_of(type);
  if (read_) return read_(at, out);
  Bytes(*content_, called_).read(at, out);
}

void TensorFile::read(std::uint64_t first, std::span<float> out) {
  read_as(ElementType::float32, first, std::as_writable_bytes(out));
}
void TensorFile::read(std::uint64_t first, std::span<double> out) {
  read_as(ElementType::float64, first, std::as_writable_bytes(out));
}
void TensorFile::read(std::uint64_t first, std::span<Half> out) {
  read_as(ElementType::float16, first, std::as_writable_bytes(out));
}
void TensorFile::read(std::uint64_t first, std::span<BFloat16> out) {
  read_as(ElementType::bfloat16, first, std::as_writable_bytes(out));
}
void TensorFile::read(std::uint64_t first, std::span<std::uint8_t> out) {
  read_as(ElementType::uint8, first, std::as_writable_bytes(out));
}

}  // namespace fp8lab::experiments
