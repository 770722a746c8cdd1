// SPDX-License-Identifier: Apache-2.0
#include "scaling/stream.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "files/tensor_file.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

constexpr long long most_steps = 1 << 16;
constexpr std::uint64_t most_elements = std::uint64_t{1} << 28;  // of a tensor
constexpr float jump_factor = 32;
constexpr float outlier_factor = 256;
constexpr std::size_t outlier_spacing = 4096;

constexpr std::array stream_kinds{
    Named{"stationary", StreamKind::stationary, "no tensor differs from the others but by chance"},
    Named{"drift", StreamKind::drift, "step t is multiplied by 2^(t / 8)"},
    Named{"outliers", StreamKind::outliers, "in steps 4, 12, 20, ... one element of 4096 is multiplied by 256"},
    Named{"jump", StreamKind::jump, "the middle third of the steps is multiplied by 32"}};

void check_size(const char* what, long long size, long long most) {
  if (size < 1 || size > most) refuse(what, " must be from 1 to ", most, ", not ", size);
}

std::string shape_of(std::size_t rows, std::size_t columns) {
  return std::to_string(rows).append(" x ").append(std::to_string(columns));
}

/// Reads a whole tensor of any type into float32.
template <typename T>
void read_all(TensorFile& file, Buffer<float>& out) {
  constexpr std::size_t most = 1 << 20;
  std::vector<T> piece;
  for (std::size_t first = 0; first < out.size(); first += most) {
    checkpoint();
    piece.resize(std::min(most, out.size() - first));
    file.read(first, std::span<T>(piece));
    std::ranges::transform(piece, out.begin() + static_cast<std::ptrdiff_t>(first), [](T x) {
      if constexpr (std::is_same_v<T, Half>) return decode(binary16, x.bits);
      if constexpr (std::is_same_v<T, BFloat16>) return decode(bfloat16, x.bits);
      if constexpr (std::is_floating_point_v<T>) return static_cast<float>(x);
    });
  }
}

}  // namespace

StreamKind find_stream_kind(std::string_view name) { return find_named(stream_kinds, "stream", name).value; }
std::string_view name_of(StreamKind kind) { return entry_of(stream_kinds, kind).name; }
std::string_view describe(StreamKind kind) { return entry_of(stream_kinds, kind).words; }

Stream::Stream(const ScalingSource& source, int threads) : source_(&source), threads_(threads) {
  std::visit([&](const auto& kind) { open(kind); }, source);
}

double Stream::elements() const {
  double sum = 0;
  for (const Shape& shape : shapes_) sum += static_cast<double>(shape.rows) * static_cast<double>(shape.columns);
  return sum;
}

std::string Stream::called(std::size_t step) const {
  if (!names_.empty()) return names_[step] + ": ";
  return std::holds_alternative<std::vector<HeldMatrix>>(*source_) ? "x[" + std::to_string(step) + "]: " : "";
}

void Stream::open(const DrawnStream& drawn) {
  check_size("steps", drawn.steps, most_steps);
  check_size("rows", drawn.rows, 1 << 20);
  check_size("columns", drawn.columns, 1 << 20);
  check_size("rows * columns", drawn.rows * drawn.columns, most_elements);
  check_size("steps * rows * columns", drawn.steps * drawn.rows * drawn.columns, 1LL << 32);
  const Shape shape{static_cast<std::size_t>(drawn.rows), static_cast<std::size_t>(drawn.columns)};
  shapes_.assign(static_cast<std::size_t>(drawn.steps), shape);
  description_ = std::to_string(drawn.steps) + (drawn.steps == 1 ? " tensor, " : " tensors, ") +
                 shape_of(shape.rows, shape.columns) + ", of " + std::string(drawn.distribution.name) + ", seed " +
                 std::to_string(drawn.seed) + "; " + std::string(name_of(drawn.kind)) + ": " +
                 std::string(describe(drawn.kind));
}

void Stream::open(const GridStream& grid) {
  check_size("rows", grid.rows, 1 << 26);
  check_size("columns", grid.columns, 1 << 26);
  check_size("rows * columns", grid.rows * grid.columns, 1 << 26);
  const Shape shape{static_cast<std::size_t>(grid.rows), static_cast<std::size_t>(grid.columns)};
  shapes_.assign(1, shape);
  description_ =
      "one tensor, " + shape_of(shape.rows, shape.columns) + ", of the normal grid: quantiles of N(0, 1), no chance";
}

void Stream::open(const StoredStream& stored) {
  if (stored.paths.empty()) refuse("a stream needs at least one file");
  for (const std::filesystem::path& path : stored.paths) {
    const TensorFile file(path, stored.tensor);
    const std::string called = printable(path.native());
    if (file.type() == ElementType::uint8) {
      refuse(called, " holds uint8, which are codes; float32, float64, float16 and bfloat16 are quantized");
    }
    if (file.shape().empty()) refuse(called, " holds a single number; a tensor of 1 dimension or more is needed");
    if (file.fortran_order() && file.shape().size() > 1) {
      refuse(called,
             " is in Fortran order, whose rows are not contiguous; numpy.ascontiguousarray() makes one that is");
    }
    if (file.size() == 0 || file.size() > most_elements) {
      refuse(called, " has ", file.size(), " elements; from 1 to ", most_elements, " can be quantized");
    }
    const auto columns = static_cast<std::size_t>(file.shape().back());
    shapes_.push_back({static_cast<std::size_t>(file.size()) / columns, columns});
    names_.push_back(called);
  }
  description_ = std::to_string(names_.size()) + (names_.size() == 1 ? " tensor" : " tensors") + ", " + names_.front();
  if (names_.size() > 1) description_ += " to " + names_.back();
}

void Stream::open(const std::vector<HeldMatrix>& held) {
  if (held.empty()) refuse("a stream needs at least one tensor");
  for (const HeldMatrix& matrix : held) {
    if (matrix.values.empty() || matrix.values.size() != matrix.rows * matrix.columns) {
      refuse("a tensor of ", matrix.rows, " x ", matrix.columns, " cannot have ", matrix.values.size(), " elements");
    }
    shapes_.push_back({matrix.rows, matrix.columns});
  }
  description_ = std::to_string(held.size()) + (held.size() == 1 ? " array" : " arrays");
}

std::span<const float> Stream::tensor(std::size_t step) {
  if (const auto* held = std::get_if<std::vector<HeldMatrix>>(source_)) return (*held)[step].values;
  room_.resize(shapes_[step].rows * shapes_[step].columns);
  if (const auto* drawn = std::get_if<DrawnStream>(source_)) {
    draw(*drawn, step);
  } else if (const auto* stored = std::get_if<StoredStream>(source_)) {
    read(*stored, step);
  } else {
    normal_grid(room_);
  }
  return room_;
}

void Stream::draw(const DrawnStream& drawn, std::size_t step) {
  const std::size_t size = room_.size();
  parallel_for(size, threads_, [&](std::size_t first, std::size_t last) {
    sample(drawn.distribution, drawn.seed, step * size + first, std::span(room_).subspan(first, last - first));
  });
  const auto multiply = [&](float factor, std::size_t every) {
    for (std::size_t i = 0; i < size; i += every) {
      checkpoint(i / every);
      room_[i] *= factor;
    }
  };
  switch (drawn.kind) {
    case StreamKind::stationary: break;
    case StreamKind::drift: multiply(static_cast<float>(std::exp2(static_cast<double>(step) / 8)), 1); break;
    case StreamKind::outliers:
      if (step % 8 == 4) multiply(outlier_factor, outlier_spacing);
      break;
    case StreamKind::jump:
      if (step >= shapes_.size() / 3 && step < shapes_.size() - shapes_.size() / 3) multiply(jump_factor, 1);
      break;
  }
}

void Stream::read(const StoredStream& stored, std::size_t step) {
  TensorFile file(stored.paths[step], stored.tensor);
  if (file.size() != room_.size()) refuse(names_[step], " changed while it was read");
  switch (file.type()) {
    case ElementType::float32: return read_all<float>(file, room_);
    case ElementType::float64: return read_all<double>(file, room_);
    case ElementType::float16: return read_all<Half>(file, room_);
    case ElementType::bfloat16: return read_all<BFloat16>(file, room_);
    case ElementType::uint8: refuse(names_[step], " changed while it was read");
  }
}

}  // namespace fp8lab::experiments
