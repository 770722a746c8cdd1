// SPDX-License-Identifier: Apache-2.0
#include "compare/compare.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

#include "compare/inventory.hpp"
#include "files/row_major.hpp"
#include "files/tensor_header.hpp"
#include "fp8lab/doctor/shared_kinds.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/memory.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

/// Bytes of each file that are in memory at a time: few enough to stay in the cache.
constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 18;

Format format_called(const std::string& name) {
  if (name == "float32") return binary32;
  if (name == "float64") return binary64;
  return find_format(name).format;
}

/// The type that a file tells; none for bytes of which it tells nothing. Words without a format have any of their
/// width, since which of them are equal does not depend on it.
std::optional<doctor::ElementType> told_type(const TensorHeader& header) {
  const auto told = [](const Format& format, bool pairs = false) { return doctor::ElementType{format, pairs}; };
  switch (header.type) {
    case ElementType::float32: return told(binary32);
    case ElementType::float64: return told(binary64);
    case ElementType::float16: return told(binary16);
    case ElementType::bfloat16: return told(bfloat16);
    case ElementType::uint8: break;
  }
  if (!header.dtype.empty()) return told(e5m2);
  if (header.format.empty()) return std::nullopt;
  return told(find_format(header.format).format, header.pairs);
}

/// The format that one of the files tells; where neither does, that of the user.
doctor::ElementType type_of(const CompareArguments& arguments, const TensorHeader& a, const TensorHeader& b,
                            const std::string& name) {
  if (const auto told = told_type(a)) return *told;
  if (const auto told = told_type(b)) return *told;
  if (!arguments.format) {
    refuse(name, " has bytes of a format that its file does not tell: give the format (such as e4m3, e8m0 or e2m1)");
  }
  const doctor::ElementType type{format_called(*arguments.format), arguments.pairs};
  if (!arguments.raw && type.bits() > 8) {
    refuse(name, " has elements of a byte, ", *arguments.format, " has ", type.bits(), " bits");
  }
  return type;
}

std::string type_name(const doctor::ElementType& type, const TensorHeader& header) {
  if (!header.dtype.empty()) return header.dtype;
  return format_name(type.format) + (type.pairs ? ", pairs" : "");
}

/// Leaves of words without a format which of them differ: what says how is of the format that stood for theirs.
void forget_values(doctor::Comparison& found) {
  found.zero_signs = found.nan_words = found.nan_in_a = found.nan_in_b = found.numbers = 0;
  found.opposite_signs = found.opposite_values = found.became_zero = found.was_zero = 0;
  found.distances = {};
}

/// The shape in elements.
std::vector<std::uint64_t> shape_of(const CompareArguments& arguments, const TensorHeader& header,
                                    const doctor::ElementType& type, const std::string& name) {
  const auto bits = static_cast<std::uint64_t>(type.bits());
  if (!arguments.raw) return shape_in_elements(header, type.pairs);
  if (header.size * 8 % bits != 0) {
    refuse(name, " has ", header.size, " bytes, which are no whole number of elements of ", bits / 8);
  }
  const std::uint64_t elements = header.size * 8 / bits;
  if (arguments.shape.empty()) return {elements};
  const std::optional<std::uint64_t> wanted = elements_of(arguments.shape, ElementType::uint8);
  if (!wanted) refuse("the shape ", shape_text(arguments.shape), " has more elements than a file can hold");
  if (*wanted != elements) {
    refuse(name, " has ", elements, elements == 1 ? " element" : " elements", ", the shape ",
           shape_text(arguments.shape), " ", *wanted);
  }
  return arguments.shape;
}

/// The format of a float tensor.
Format float_format(ElementType type) {
  switch (type) {
    case ElementType::float32: return binary32;
    case ElementType::float64: return binary64;
    case ElementType::float16: return binary16;
    case ElementType::bfloat16: return bfloat16;
    case ElementType::uint8: break;
  }
  throw std::logic_error("a float tensor has no codes");
}

/// Elements of a float tensor, by index.
std::vector<double> inputs_of(const fs::path& path, const ComparedTensor& tensor) {
  const TensorHeader header = find_tensors(path).front();
  TensorFile file(path, header);
  if (file.type() == ElementType::uint8) refuse(printable(path.native()), " holds codes; an input is of floats");
  if (file.size() != tensor.comparison.elements) {
    refuse("the input has ", file.size(), file.size() == 1 ? " element, " : " elements, ", tensor.name, " has ",
           tensor.comparison.elements);
  }
  // An array of one dimension meets any of as many elements.
  if (file.shape() != tensor.shape && file.shape().size() > 1 && tensor.shape.size() > 1) {
    refuse("the input has the shape ", shape_text(file.shape()), ", ", tensor.name, " ", shape_text(tensor.shape));
  }
  std::vector<double> values;
  for (const doctor::Mismatch& mismatch : tensor.comparison.first) {
    std::uint64_t word = 0;
    file.read_bytes(stored_place(header, mismatch.index),
                    std::as_writable_bytes(std::span(&word, 1)).first(bytes_of(file.type())));
    values.push_back(doctor::value_of({float_format(file.type())}, word));
  }
  return values;
}

/// The next values of a float tensor.
void read_values(RowMajorReader& file, ElementType type, std::span<double> values) {
  const std::size_t width = bytes_of(type);
  const doctor::ElementType element{float_format(type)};
  std::vector<std::byte> bytes(values.size() * width);
  file.read(bytes);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, &bytes[i * width], width);
    values[i] = doctor::value_of(element, word);
  }
}

/// The kinds that all differing elements are of, in words: reads the files once more, as long as there may be any.
std::vector<std::string> kinds_of(const doctor::ElementType& type, const ListedTensor& a, const ListedTensor& b,
                                  const std::optional<fs::path>& input) {
  doctor::SharedKinds kinds(type);
  RowMajorReader file_a(a.path, a.header);
  RowMajorReader file_b(b.path, b.header);
  std::optional<TensorHeader> header;
  std::optional<RowMajorReader> inputs;
  if (input) {
    header = find_tensors(*input).front();
    inputs.emplace(*input, *header);
  }
  const std::uint64_t width = bytes_of(a.header.type);
  for (std::uint64_t first = 0; first < a.header.size && kinds.is_open();) {
    checkpoint();
    const std::uint64_t count = std::min(piece_bytes / width, a.header.size - first);
    std::vector<std::byte> bytes_a(static_cast<std::size_t>(count * width));
    std::vector<std::byte> bytes_b(bytes_a.size());
    file_a.read(bytes_a);
    file_b.read(bytes_b);
    std::vector<double> values(inputs ? bytes_a.size() * 8 / static_cast<std::size_t>(type.bits()) : 0);
    if (header && inputs) read_values(*inputs, header->type, values);
    kinds.add(bytes_a, bytes_b, values);
    first += count;
  }
  return kinds.findings();
}

class PairReader {
 public:
  PairReader(const CompareArguments& arguments, double all_bytes, const Progress& progress)
      : arguments_(arguments), all_bytes_(all_bytes), progress_(progress) {}

  ComparedTensor compare(const std::string& name, const ListedTensor& a, const ListedTensor& b) {
    const doctor::ElementType type = type_of(arguments_, a.header, b.header, name);
    ComparedTensor tensor{.name = name,
                          .type = type_name(type, a.header),
                          .shape = shape_of(arguments_, a.header, type, name),
                          .are_words = !a.header.dtype.empty()};
    const std::uint64_t element_bytes = bytes_of(a.header.type);
    const std::uint64_t elements = a.header.size * element_bytes * 8 / static_cast<std::uint64_t>(type.bits());
    const std::uint64_t columns = tensor.shape.empty() ? 1 : tensor.shape.back();
    doctor::Comparer comparer(type, elements, {.columns = columns, .most_shown = arguments_.most_shown});
    // Bands of a tensor in Fortran order are put in order by one thread, since each takes memory.
    const bool is_read_apart = is_row_major(a.header) && is_row_major(b.header);
    const int threads = doctor::useful_threads(arguments_.threads, a.header.size * element_bytes);
    const std::vector<doctor::ElementRange> ranges =
        comparer.parts(is_read_apart ? static_cast<std::size_t>(threads) : 1);
    std::vector<doctor::Comparer> parts;
    parts.reserve(ranges.size());
    for (const doctor::ElementRange& range : ranges) parts.push_back(comparer.part(range));
    caller_ = std::this_thread::get_id();
    parallel_for(parts.size(), threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) read_part(a, b, ranges[i], parts[i]);
    });
    for (doctor::Comparer& part : parts) comparer.append(std::move(part));
    tensor.comparison = comparer.result();
    if (tensor.are_words) forget_values(tensor.comparison);
    if (arguments_.input) tensor.inputs = inputs_of(*arguments_.input, tensor);
    if (!tensor.comparison.equal() && !tensor.are_words) tensor.kinds = kinds_of(type, a, b, arguments_.input);
    return tensor;
  }

 private:
  /// Compares a part of the tensors. Its elements need not be those of the file, such as two codes in a byte.
  void read_part(const ListedTensor& a, const ListedTensor& b, const doctor::ElementRange& range,
                 doctor::Comparer& part) {
    const std::uint64_t element_bytes = bytes_of(a.header.type);
    const auto bits = static_cast<std::uint64_t>(type_of(arguments_, a.header, b.header, "").bits());
    const auto stored = [&](std::uint64_t element) { return element * bits / 8 / element_bytes; };
    RowMajorReader file_a(a.path, a.header);
    RowMajorReader file_b(b.path, b.header);
    file_a.go_to(stored(range.first));
    file_b.go_to(stored(range.first));
    Buffer<std::byte> bytes_a;
    Buffer<std::byte> bytes_b;
    const std::uint64_t last = stored(range.last);
    for (std::uint64_t first = stored(range.first); first < last && !is_cancelled_;) {
      checkpoint();
      const std::uint64_t count = std::min(piece_bytes / element_bytes, last - first);
      bytes_a.resize(static_cast<std::size_t>(count * element_bytes));
      bytes_b.resize(bytes_a.size());
      file_a.read(bytes_a);
      file_b.read(bytes_b);
      part.add(bytes_a, bytes_b);
      first += count;
      done_bytes_ += bytes_a.size();
      tell_progress();
    }
  }

  /// On the calling thread alone; what it throws ends the other threads, too.
  void tell_progress() {
    if (!progress_ || std::this_thread::get_id() != caller_) return;
    try {
      progress_(static_cast<double>(done_bytes_) / all_bytes_);
    } catch (...) {
      is_cancelled_ = true;
      throw;
    }
  }

  const CompareArguments& arguments_;
  double all_bytes_;
  const Progress& progress_;
  std::atomic<std::uint64_t> done_bytes_ = 0;
  std::atomic<bool> is_cancelled_ = false;
  std::thread::id caller_;  ///< who hears of progress
};

/// Refuses a format of the user that the files of a single pair contradict. Where there are several, those take it that
/// need it.
void check_told_format(const CompareArguments& arguments, const TensorHeader& a, const TensorHeader& b,
                       const std::string& name) {
  if (!arguments.format) return;
  const doctor::ElementType wanted{format_called(*arguments.format), arguments.pairs};
  const doctor::ElementType type = type_of(arguments, a, b, name);
  if (a.dtype.empty() && type.format == wanted.format && type.pairs == wanted.pairs) return;
  refuse(name, " is ", type_name(type, a), told_type(a) ? ", as its file tells, and not " : ", as b tells, and not ",
         type_name(wanted, {}));
}

void check(const CompareArguments& arguments) {
  if (arguments.a.empty() || arguments.b.empty()) refuse("a and b must be given: two files, or two folders");
  if (arguments.pairs && !arguments.format) refuse("pairs need a format of 4 bits, such as e2m1");
  if (!arguments.shape.empty() && !arguments.raw) refuse("a shape is for files without a header: say raw, too");
  if (arguments.raw && !arguments.names.empty())
    refuse("tensors are for .safetensors files, and raw files have no names");
  if (arguments.raw && !arguments.format) refuse("files without a header need a format, such as e4m3 or float32");
  const bool is_many_a = is_collection(arguments, arguments.a);
  const bool is_many_b = is_collection(arguments, arguments.b);
  if (is_many_a != is_many_b && (arguments.raw || !has_names(is_many_a ? arguments.b : arguments.a))) {
    refuse("one of a and b is a folder, and the other is not a .safetensors file");
  }
  if ((is_many_a || is_many_b) && arguments.input) refuse("an input is for two files, not for folders");
  if (arguments.format) doctor::ElementType{format_called(*arguments.format), arguments.pairs}.check();
}

}  // namespace

std::vector<std::string> ComparedTensor::findings() const {
  std::vector<std::string> all = doctor::findings(comparison);
  all.insert(all.end(), kinds.begin(), kinds.end());
  return all;
}

bool CompareResult::equal() const {
  return unpaired.empty() && std::ranges::all_of(tensors, [](const auto& one) { return one.comparison.equal(); });
}

CompareResult run_compare(const CompareArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  check(arguments);
  check_threads(arguments.threads);
  // 1. Pairs, and what has no partner.
  const Inventory all_a = inventory_of(arguments, arguments.a);
  const Inventory all_b = inventory_of(arguments, arguments.b);
  const bool are_files = !is_collection(arguments, arguments.a) && !is_collection(arguments, arguments.b);
  if (are_files) check_choice(all_a, all_b);
  if (are_files && !arguments.names.empty() && !has_names(arguments.a) && !has_names(arguments.b)) {
    refuse("tensors are for .safetensors files; the tensor of a .npy file has no name");
  }
  check_names(arguments, all_a, all_b);
  auto [pairs, unpaired] = meeting_of(all_a, all_b);
  if (pairs.empty()) refuse("nothing can be compared: ", unpaired.front());
  if (pairs.size() > 1 && arguments.input) refuse("an input is for one tensor: name it");
  if (pairs.size() == 1 && unpaired.empty()) {
    check_told_format(arguments, pairs.front().a->header, pairs.front().b->header, pairs.front().name);
  }
  double bytes = 0;
  for (const TensorPair& pair : pairs) {
    bytes += static_cast<double>(pair.a->header.size * bytes_of(pair.a->header.type));
  }
  if (bytes == 0) refuse("a and b have no elements: there is nothing to compare");
  // 2. One after the other.
  PairReader reader(arguments, bytes, progress);
  CompareResult result{.tensors = {}, .unpaired = std::move(unpaired)};
  for (const auto& [name, a, b] : pairs) result.tensors.push_back(reader.compare(name, *a, *b));
  return result;
}

}  // namespace fp8lab::experiments
