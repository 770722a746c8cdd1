// SPDX-License-Identifier: Apache-2.0
// A fuzz target: any bytes as a tensor file. What may come out is one of the two announced errors, in one clean line,
// or a tensor whose elements can all be read.
#include "files/tensor_file.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace {

using namespace fp8lab;
using namespace fp8lab::experiments;

void require(bool holds) {
  if (!holds) std::abort();
}

void check_message(std::string_view text) {
  require(text.starts_with("cannot read t: ") && text.size() < 3000);
  require(std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; }));
}

/// Pieces of three elements are the whole, and nothing lies behind it.
template <typename T>
void check_elements(TensorFile& file, std::size_t bytes) {
  require(file.size() <= bytes / sizeof(T));
  std::vector<T> whole(file.size());
  std::vector<T> pieces(file.size());
  file.read(0, whole);
  for (std::size_t first = 0; first < pieces.size(); first += 3) {
    file.read(first, std::span(pieces).subspan(first, std::min<std::size_t>(3, pieces.size() - first)));
  }
  require(whole.empty() || std::memcmp(whole.data(), pieces.data(), whole.size() * sizeof(T)) == 0);
  try {
    file.read(file.size() + 1, std::span<T>{});
    std::abort();
  } catch (const std::invalid_argument&) {
  }
}

void check(const std::string& bytes, std::string_view tensor) {
  std::optional<TensorFile> file;
  try {
    file.emplace(std::make_unique<std::istringstream>(bytes), "t", tensor);
  } catch (const std::runtime_error& error) {
    return check_message(error.what());
  } catch (const std::invalid_argument& error) {
    return check_message(error.what());
  }
  // What was opened can be read: from here on any error is a finding.
  require(tensor.empty() || file->name() == tensor);
  switch (file->type()) {
    case ElementType::float32: return check_elements<float>(*file, bytes.size());
    case ElementType::float64: return check_elements<double>(*file, bytes.size());
    case ElementType::float16: return check_elements<Half>(*file, bytes.size());
    case ElementType::bfloat16: return check_elements<BFloat16>(*file, bytes.size());
    case ElementType::uint8: return check_elements<std::uint8_t>(*file, bytes.size());
  }
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  check(bytes, "");
  check(bytes, "a");
  return 0;
}
