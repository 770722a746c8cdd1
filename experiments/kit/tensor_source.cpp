// SPDX-License-Identifier: Apache-2.0
#include "kit/tensor_source.hpp"

#include <cmath>
#include <type_traits>

#include "files/row_major.hpp"
#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "kit/chosen.hpp"

namespace fp8lab::experiments {
namespace {

constexpr long long most_of_a_grid = 1LL << 26;

/// Throws where rows * columns, which may overflow, is not from 1 to `most`.
void check_dimensions(long long rows, long long columns, long long most) {
  if (rows < 1 || columns < 1) refuse("rows and columns must be 1 or more, not ", rows, " and ", columns);
  if (rows <= most && columns <= most / rows) return;
  refuse("rows * columns must be at most 2^", std::ilogb(static_cast<double>(most)), ", not ", rows, " * ", columns);
}

std::string count_text(std::size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// "256 x 512 float32 values".
std::string values_text(const std::vector<std::uint64_t>& shape, ElementType type) {
  std::string text;
  for (const std::uint64_t length : shape) text += (text.empty() ? "" : " x ") + std::to_string(length);
  const bool is_one = std::ranges::all_of(shape, [](std::uint64_t length) { return length == 1; });
  if (shape.empty()) text = "1";
  return text + " " + std::string(name_of(type)) + (is_one ? " value" : " values");
}

/// The shape of draws: one dimension where there is one row.
std::vector<std::uint64_t> drawn_shape(long long rows, long long columns) {
  if (rows == 1) return {static_cast<std::uint64_t>(columns)};
  return {static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns)};
}

std::string outliers_text(const OutlierLines& outliers, const char* lines) {
  if (outliers.count == 0) return "";
  TextStream text;
  text << ", " << outliers.count << ' ' << lines << " times " << outliers.factor;
  return text.str();
}

constexpr std::size_t piece = std::size_t{1} << 20;  // elements read at a time

TensorFile opened(const FoundTensor& found) {
  if (found.read) return {found.read, found.path.native(), found.header};
  return {found.path, found.header};
}

/// Reads elements [first, first + out.size()) as they are stored.
template <typename T, typename Out>
void read_stored(TensorFile& file, std::uint64_t first, std::span<Out> out) {
  Buffer<T> room;
  for (std::size_t done = 0; done < out.size(); done += piece) {
    checkpoint();
    const std::span<Out> some = out.subspan(done, std::min(piece, out.size() - done));
    if constexpr (std::is_same_v<T, Out>) {
      file.read(first + done, some);
    } else {
      room.resize(some.size());
      file.read(first + done, std::span<T>(room));
      std::ranges::transform(room, some.begin(), [](T x) { return as_float32(x); });
    }
  }
}

/// Reads a tensor in Fortran order, some columns at a time, and so without a second copy of all.
template <typename T, typename Out>
void read_fortran(TensorFile& file, const SourceTensor& facts, std::span<Out> out) {
  const std::size_t rows = facts.rows;
  const std::size_t columns = facts.columns;
  const std::size_t most = std::max<std::size_t>(1, piece / rows);
  Buffer<T> room;
  for (std::size_t first = 0; first < columns; first += most) {
    const std::size_t count = std::min(most, columns - first);
    room.resize(count * rows);
    read_stored<T, T>(file, std::uint64_t{first} * rows, std::span<T>(room));
    const std::span<const std::uint64_t> shape = matrix_shape(facts.shape);
    StoredOrder row(shape.first(shape.size() - 1));
    for (std::size_t i = 0; i < rows; ++i, row.next()) {
      checkpoint(i);
      for (std::size_t j = 0; j < count; ++j) {
        if constexpr (std::is_same_v<T, Out>) {
          out[row.place() * columns + first + j] = room[j * rows + i];
        } else {
          out[row.place() * columns + first + j] = as_float32(room[j * rows + i]);
        }
      }
    }
  }
}

/// Reads elements [first, first + out.size()) in the order of rows, where the matrix is stored by columns.
template <typename T>
void read_fortran_range(TensorFile& file, const SourceTensor& facts, std::uint64_t first, std::span<T> out) {
  const std::uint64_t columns = facts.columns;
  const std::uint64_t top = first / columns;
  const std::uint64_t bottom = (first + out.size() + columns - 1) / columns;
  std::vector<T> column(static_cast<std::size_t>(bottom - top));
  for (std::uint64_t j = 0; j < columns; ++j) {
    checkpoint();
    file.read(j * facts.rows + top, std::span<T>(column));
    for (std::uint64_t i = top; i < bottom; ++i) {
      const std::uint64_t at = i * columns + j;
      if (at >= first && at < first + out.size()) out[at - first] = column[i - top];
    }
  }
}

/// Calls use(T{}), T the type of the elements. Precondition: they are no codes.
template <typename Use>
void with_type(ElementType type, const Use& use) {
  switch (type) {
    case ElementType::float32: return use(float{});
    case ElementType::float64: return use(double{});
    case ElementType::float16: return use(Half{});
    case ElementType::bfloat16: return use(BFloat16{});
    case ElementType::uint8: return;  // open() refuses codes
  }
}

/// Reads elements [first, first + out.size()) of codes as they are stored, and decodes them.
void read_codes(TensorFile& file, const TensorHeader& header, std::uint64_t first, std::span<float> out) {
  const Format format = choose_format(header.format).format;
  Buffer<std::uint8_t> bytes;
  Buffer<std::uint8_t> codes;
  for (std::size_t done = 0; done < out.size();) {
    checkpoint();
    const std::uint64_t at = first + done;
    const std::size_t count = std::min(piece, out.size() - done);
    const std::span<float> some = out.subspan(done, count);
    done += count;
    if (!header.pairs) {
      bytes.resize(count);
      file.read(at, std::span<std::uint8_t>(bytes));
      decode(format, std::span<const std::uint8_t>(bytes), some);
      continue;
    }
    bytes.resize(static_cast<std::size_t>((at + count + 1) / 2 - at / 2));
    file.read(at / 2, std::span<std::uint8_t>(bytes));
    codes.resize(2 * bytes.size());
    unpack_pairs(std::span<const std::uint8_t>(bytes), std::span<std::uint8_t>(codes));
    decode(format, std::span<const std::uint8_t>(codes).subspan(at % 2, count), some);
  }
}

/// The name of a tensor of a file in messages and results.
std::string called_of(const std::filesystem::path& path, const std::string& tensor) {
  return printable(path.native()) + (tensor.empty() ? "" : ", tensor " + printable(tensor));
}

}  // namespace

std::span<const std::uint64_t> matrix_shape(const std::vector<std::uint64_t>& shape) {
  std::size_t dimensions = shape.size();
  while (dimensions > 2 && shape[dimensions - 1] == 1) --dimensions;
  return std::span(shape).first(dimensions);
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

TensorStream::TensorStream(TensorSource source, const StreamOptions& options)
    : source_(std::move(source)), options_(options) {
  std::visit([&](const auto& kind) { open(kind); }, source_);
}

double TensorStream::elements() const {
  double sum = 0;
  for (const SourceTensor& facts : facts_) sum += static_cast<double>(facts.size());
  return sum;
}

std::string TensorStream::called(std::size_t i) const {
  if (!facts_[i].name.empty()) return facts_[i].name + ": ";
  const std::string array = array_name(i);
  return array.empty() ? "" : array + ": ";
}

std::string TensorStream::stamp(std::size_t i) const {
  if (stored_.empty()) return "";
  std::error_code error;  // a file that is gone is told by who reads it
  const std::filesystem::path& path = stored_[i].path;
  const auto time = std::filesystem::last_write_time(path, error).time_since_epoch().count();
  return std::filesystem::absolute(path, error).lexically_normal().native() + " from byte " +
         std::to_string(stored_[i].header.offset) + " of " + std::to_string(std::filesystem::file_size(path, error)) +
         ", " + std::to_string(time);
}

/// The name in messages of an array that has none itself; empty where the source holds no array.
std::string TensorStream::array_name(std::size_t i) const {
  const auto* held = std::get_if<HeldTensors>(&source_);
  if (held == nullptr) return "";
  return held->size() == 1 ? "x" : "x[" + std::to_string(i) + "]";
}

/// Computes rows and columns. Throws where the experiment does not take such a tensor.
void TensorStream::add(SourceTensor facts) {
  std::string what = facts.name.empty() ? array_name(count()) : facts.name;
  if (what.empty()) what = "a tensor";
  if (facts.type == ElementType::uint8) {
    refuse(what, " holds uint8, which are codes; float32, float64, float16 and bfloat16 are read");
  }
  std::uint64_t size = 1;
  for (const std::uint64_t length : facts.shape) size *= length;  // a reader or a view has found that it fits
  if ((size == 0 && !options_.takes_empty) || size > std::uint64_t{1} << options_.log2_most_elements) {
    refuse(what, " must have from ", options_.takes_empty ? 0 : 1, " to 2^", options_.log2_most_elements,
           " elements, not ", size, " (shape ", shape_text(facts.shape), ")");
  }
  facts.columns = facts.shape.empty() ? 1 : static_cast<std::size_t>(matrix_shape(facts.shape).back());
  facts.rows = facts.columns == 0 ? 0 : static_cast<std::size_t>(size) / facts.columns;
  facts_.push_back(std::move(facts));
}

void TensorStream::open(const Draws& draws) {
  check_dimensions(draws.rows, draws.columns, 1LL << options_.log2_most_elements);
  check_draws(draws);
  SourceTensor facts{.name = "", .type = ElementType::float32, .shape = drawn_shape(draws.rows, draws.columns)};
  const std::string values = values_text(facts.shape, facts.type);
  for (long long step = 0; step < draws.steps; ++step) add(facts);
  if (draws.steps > 1) description_ = count_text(count(), "tensor") + " of ";
  description_ += values + " drawn with seed " + std::to_string(draws.seed) + " from " +
                  std::string(draws.distribution.name) + outliers_text(draws.outlier_rows, "rows") +
                  outliers_text(draws.outlier_columns, "columns");
  if (draws.steps > 1 || draws.kind != StreamKind::stationary) {
    description_ += "; " + std::string(name_of(draws.kind)) + ": " + std::string(entry_of(draws.kind).words);
  }
}

void TensorStream::open(const Grid& grid) {
  check_dimensions(grid.rows, grid.columns, std::min(most_of_a_grid, 1LL << options_.log2_most_elements));
  add({.name = "", .type = ElementType::float32, .shape = drawn_shape(grid.rows, grid.columns)});
  description_ =
      values_text(facts_.front().shape, ElementType::float32) + " of the normal grid: quantiles of N(0, 1), no chance";
  grid_.resize(facts_.front().rows * facts_.front().columns);
  normal_grid(grid_);
}

void TensorStream::open(const StoredTensors& stored) {
  if (stored.paths.empty()) refuse("a stream needs at least one file");
  FoundTensors all = stored.found ? *stored.found : find_stored_tensors(stored.paths, stored.names);
  left_out_ = std::move(all.left_out);
  for (const FoundTensor& found : all.found) add_stored(found);
  if (facts_.empty()) {
    if (left_out_.empty()) refuse(printable(stored.paths.front().native()), " has no tensors");
    refuse("none of the tensors can be used; ", left_out_.front().name, ": ", left_out_.front().reason);
  }
  const SourceTensor& first = facts_.front();
  if (count() == 1) {
    description_ = values_text(first.shape, first.type) + " of " + first.name;
  } else {
    description_ = count_text(count(), "tensor") + ", " + first.name + " to " + facts_.back().name;
  }
  if (!left_out_.empty()) description_ += "; " + std::to_string(left_out_.size()) + " left out";
}

void TensorStream::add_stored(const FoundTensor& found) {
  const bool is_named_by_path = !found.by_name && found.path.extension() == ".npy";  // of a folder
  const std::string called = called_of(found.path, is_named_by_path ? "" : found.header.name);
  try {
    try_to_add(found, called);
  } catch (const std::invalid_argument& error) {
    if (found.by_name) throw;
    std::string reason = error.what();
    if (reason.starts_with(called)) reason.erase(0, called.size());
    reason.erase(0, reason.find_first_not_of(": "));
    left_out_.push_back({called, std::move(reason), found.header.name});
  }
}

void TensorStream::try_to_add(const FoundTensor& found, const std::string& called) {
  FoundTensor one = found;
  TensorHeader& header = one.header;
  // 1. Types that have no values.
  if (!header.dtype.empty()) refuse(called, ": its dtype is ", header.dtype);
  if (!header.format.empty() && !is_row_major(header)) refuse(called, ": it holds codes in Fortran order");
  if (header.pairs) header.shape.back() *= 2;  // elements, no more bytes
  // 2. Experts, each of which is a matrix.
  const std::span<const std::uint64_t> shape = matrix_shape(header.shape);
  const bool are_experts = options_.splits_experts && shape.size() > 2 && is_row_major(header) &&
                           header.name.find("expert") != std::string::npos;
  const std::uint64_t matrices = are_experts ? header.shape.front() : 1;
  if (are_experts) {
    header.shape.erase(header.shape.begin());
    header.size /= std::max<std::uint64_t>(1, matrices);
  }
  // 3. All of them can be used, or none.
  const ElementType type = header.format.empty() ? header.type : ElementType::float32;
  for (std::uint64_t i = 0; i < matrices; ++i) {
    const std::string name = are_experts ? called + ", expert " + std::to_string(i) : called;
    add({.name = name, .type = type, .shape = header.shape, .own_name = header.name});
    if (const std::string reason = options_.unfit ? options_.unfit(facts_.back()) : ""; !reason.empty()) {
      facts_.pop_back();
      refuse(name, ": ", reason);
    }
    stored_.push_back(one);
    header.offset += header.size * bytes_of(header.type);
  }
}

/// Named arrays as the tensors of a file: what cannot be used is left out, and experts are a matrix each.
void TensorStream::open_named(const HeldTensors& held) {
  HeldTensors taken;
  for (const HeldTensor& tensor : held) {
    std::vector<std::uint64_t> shape =
        tensor.shape.value_or(std::vector<std::uint64_t>{tensor.values.rows(), tensor.values.columns()});
    const bool are_experts =
        options_.splits_experts && matrix_shape(shape).size() > 2 && tensor.name.find("expert") != std::string::npos;
    const std::uint64_t matrices = are_experts ? shape.front() : 1;
    if (are_experts) shape.erase(shape.begin());
    try {
      for (std::uint64_t i = 0; i < matrices; ++i) {
        const std::string name = printable(tensor.name) + (are_experts ? ", expert " + std::to_string(i) : "");
        add({.name = name, .type = Tensor(tensor.values).type(), .shape = shape, .own_name = tensor.name});
        if (const std::string reason = options_.unfit ? options_.unfit(facts_.back()) : ""; !reason.empty()) {
          facts_.pop_back();
          refuse(reason);
        }
        const SourceTensor& facts = facts_.back();
        taken.push_back({tensor.values.visit([&](auto all) {
                           const auto size = static_cast<std::size_t>(facts.size());
                           return MatrixView(all.subspan(static_cast<std::size_t>(i) * size, size), facts.rows,
                                             facts.columns);
                         }),
                         facts.shape, tensor.name});
      }
    } catch (const std::invalid_argument& error) {
      left_out_.push_back({printable(tensor.name), error.what(), tensor.name});
    }
  }
  if (taken.empty()) {
    refuse("none of the arrays can be used; ", left_out_.front().name, ": ", left_out_.front().reason);
  }
  description_ = count_text(count(), "array");
  if (!left_out_.empty()) description_ += "; " + std::to_string(left_out_.size()) + " left out";
  source_ = std::move(taken);
}

void TensorStream::open(const HeldTensors& held) {
  if (held.empty()) refuse("a stream needs at least one tensor");
  const bool are_named = std::ranges::none_of(held, [](const HeldTensor& one) { return one.name.empty(); });
  if (are_named && options_.unfit) return open_named(held);
  for (const HeldTensor& tensor : held) {
    const std::vector<std::uint64_t> whole{tensor.values.rows(), tensor.values.columns()};
    std::vector<std::uint64_t> shape = tensor.shape.value_or(whole);
    add({.name = tensor.name.empty() ? "" : printable(tensor.name),
         .type = Tensor(tensor.values).type(),
         .shape = std::move(shape),
         .own_name = tensor.name});
  }
  const SourceTensor& first = facts_.front();
  description_ = count() == 1 ? values_text(first.shape, first.type) + " of an array" : count_text(count(), "array");
}

void TensorStream::draw_on_threads(const Draws& draws, std::size_t i, std::uint64_t first, std::span<float> out) const {
  for (std::size_t done = 0; done < out.size(); done += piece) {
    const std::span<float> some = out.subspan(done, std::min(piece, out.size() - done));
    parallel_for(some.size(), options_.threads, [&](std::size_t from, std::size_t to) {
      draw(draws, i, first + done + from, some.subspan(from, to - from));
    });
    checkpoint();
    if (options_.progress != nullptr && *options_.progress) (*options_.progress)(0);
  }
}

void TensorStream::load(std::size_t i, Tensor& into) const {
  const SourceTensor& facts = facts_[i];
  if (const auto* draws = std::get_if<Draws>(&source_)) {
    return draw_on_threads(*draws, i, 0, into.allocate<float>(facts.rows, facts.columns));
  }
  if (std::holds_alternative<StoredTensors>(source_)) {
    const TensorHeader& header = stored_[i].header;
    TensorFile file = opened(stored_[i]);
    if (header.type == ElementType::uint8) {
      read_codes(file, header, 0, into.allocate<float>(facts.rows, facts.columns));
      return;
    }
    return with_type(facts.type, [&]<typename T>(T /*type*/) {
      const auto read = [&]<typename Out>(std::span<Out> out) {
        is_row_major(header) ? read_stored<T, Out>(file, 0, out) : read_fortran<T, Out>(file, facts, out);
      };
      if (is_read_as_float32(facts.type)) return read(into.allocate<float>(facts.rows, facts.columns));
      read(into.allocate<T>(facts.rows, facts.columns));
    });
  }
  into = whole_for_blocks(i);
  if (into.type() == ElementType::float32 || !is_read_as_float32(into.type())) return;
  const Tensor held(into.view());
  held.widen(0, into.allocate<float>(facts.rows, facts.columns));
}

bool TensorStream::is_read_as_float32(ElementType type) const {
  switch (options_.loads) {
    case Loads::as_stored: return false;
    case Loads::quantizable: return type == ElementType::float64;
    case Loads::float32: return true;
  }
  return false;
}

void TensorStream::load_row(std::size_t i, std::size_t row, Tensor& into) const {
  const Tensor whole = whole_for_blocks(i);
  const std::size_t columns = facts_[i].columns;
  if (!whole.has_values()) return read_range(i, std::uint64_t{row} * columns, columns, into);
  whole.view().visit([&]<typename T>(std::span<const T> all) {
    std::ranges::copy(all.subspan(row * columns, columns), into.allocate<T>(1, columns).begin());
  });
}

void TensorStream::load_rows(std::size_t i, std::size_t first, std::size_t count, Tensor& into) const {
  const Tensor whole = whole_for_blocks(i);
  const std::size_t columns = facts_[i].columns;
  if (whole.has_values()) {
    whole.view().visit([&]<typename T>(std::span<const T> all) {
      std::ranges::copy(all.subspan(first * columns, count * columns), into.allocate<T>(count, columns).begin());
    });
    return;
  }
  read_range(i, std::uint64_t{first} * columns, count * columns, into);
  into.reshape(count, columns);
}

Tensor TensorStream::whole_for_blocks(std::size_t i) const {
  const SourceTensor& facts = facts_[i];
  if (const auto* held = std::get_if<HeldTensors>(&source_)) {
    return Tensor((*held)[i].values.visit([&](auto values) { return MatrixView(values, facts.rows, facts.columns); }));
  }
  if (std::holds_alternative<Grid>(source_)) {
    return Tensor(MatrixView(std::span<const float>(grid_), facts.rows, facts.columns));
  }
  Tensor whole;
  const bool is_stored = std::holds_alternative<StoredTensors>(source_);
  if (!is_stored || is_row_major(stored_[i].header) || matrix_shape(facts.shape).size() == 2) return whole;
  // In Fortran order, the elements of a row of three or more dimensions do not lie together.
  load(i, whole);
  return whole;
}

void TensorStream::read_range(std::size_t i, std::uint64_t first, std::size_t count, Tensor& into) const {
  if (const auto* draws = std::get_if<Draws>(&source_))
    return draw_on_threads(*draws, i, first, into.allocate<float>(1, count));
  const TensorHeader& header = stored_[i].header;
  TensorFile file = opened(stored_[i]);
  if (header.type == ElementType::uint8) return read_codes(file, header, first, into.allocate<float>(1, count));
  with_type(facts_[i].type, [&]<typename T>(T /*type*/) {
    const std::span<T> out = into.allocate<T>(1, count);
    if (is_row_major(header)) return read_stored<T, T>(file, first, out);
    read_fortran_range<T>(file, facts_[i], first, out);
  });
}

}  // namespace fp8lab::experiments
