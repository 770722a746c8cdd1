// SPDX-License-Identifier: Apache-2.0
// A fuzz target: any bytes as recorded words, JSON or gzipped JSON, of both kinds. What may come out is an error in one
// line that names the file, or dot products that the model can compute.
#include "files/recorded.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

using namespace fp8lab::experiments;

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const RecordedDots& set) {
  const std::size_t count = set.d.size();
  const std::size_t codes = count * static_cast<std::size_t>(set.model.k());
  require(set.dots.count() == count && set.dots.a.size() == codes && set.dots.b.size() == codes);
  if (!set.model.scales) return;
  const std::size_t scales = codes / static_cast<std::size_t>(set.model.scales->block);
  require(set.dots.scale_a.size() == scales && set.dots.scale_b.size() == scales);
}

template <typename Read>
void check(const Read& read, const std::string& path) {
  Recorded recorded;
  try {
    recorded = read(path);
  } catch (const std::runtime_error& error) {
    const std::string_view text = error.what();
    return require(text.starts_with("cannot read " + path + ": ") && text.find('\n') == std::string_view::npos);
  }
  require(!recorded.sets.empty() || !recorded.chains.empty());
  for (const RecordedDots& set : recorded.sets) check(set);
  for (const RecordedChains& set : recorded.chains) {
    for (const RecordedChain& chain : set.chains) {
      require(chain.dot.k > 0 && chain.dot.a.size() == chain.dot.k && chain.dot.b.size() == chain.dot.k);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int file = ::memfd_create("fuzz", MFD_CLOEXEC);
  require(file >= 0 && ::ftruncate(file, 0) == 0);
  require(::pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  check(read_vectors, path);
  check(read_gpu_rows, path);
  return 0;
}
