// SPDX-License-Identifier: Apache-2.0
#include "files/row_major.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "files/stored_file.hpp"
#include "fp8lab/formats/interruption.hpp"

namespace fp8lab::experiments {
namespace {

/// Columns that are read before their elements are written side by side.
constexpr std::uint64_t columns_at_once = 64;

}  // namespace

StoredOrder::StoredOrder(std::span<const std::uint64_t> lengths)
    : lengths_(lengths.begin(), lengths.end()), steps_(lengths.size()), at_(lengths.size()) {
  std::uint64_t step = 1;
  for (std::size_t i = lengths_.size(); i-- > 0;) {
    steps_[i] = step;
    step *= lengths_[i];
  }
}

void StoredOrder::next() {
  for (std::size_t i = 0; i < at_.size(); ++i) {
    place_ += steps_[i];
    if (++at_[i] < lengths_[i]) return;
    place_ -= steps_[i] * lengths_[i];
    at_[i] = 0;
  }
}

bool is_row_major(const TensorHeader& header) {
  return !header.fortran_order || std::ranges::count_if(header.shape, [](std::uint64_t n) { return n != 1; }) < 2;
}

std::uint64_t stored_place(const TensorHeader& header, std::uint64_t index) {
  if (is_row_major(header)) return index;
  std::uint64_t place = 0;
  std::uint64_t before = header.size;  // elements with one value of the indices from i on
  for (std::size_t i = header.shape.size(); i-- > 0;) {
    before /= header.shape[i];
    place += index % header.shape[i] * before;
    index /= header.shape[i];
  }
  return place;
}

RowMajorReader::RowMajorReader(const std::filesystem::path& path, TensorHeader header, std::uint64_t band_bytes)
    : header_(std::move(header)), file_(path, header_) {
  if (is_row_major(header_) || header_.size == 0) return;
  rows_ = header_.shape.front();
  columns_ = header_.size / rows_;
  const std::uint64_t row_bytes = columns_ * bytes_of(header_.type);
  if (row_bytes > band_bytes) {
    throw std::invalid_argument(cannot_read(
        in_one_line(path.native()), "it is in Fortran order, and the elements with one first index have " +
                                        std::to_string(row_bytes) + " bytes; up to " + std::to_string(band_bytes) +
                                        " are put in order. Save it in C order"));
  }
  band_rows_ = std::min(rows_, band_bytes / row_bytes);
}

void RowMajorReader::read(std::span<std::byte> out) {
  const std::uint64_t element = bytes_of(header_.type);
  if (band_rows_ == 0) {
    file_.read_bytes(next_, out);
    next_ += out.size() / element;
    return;
  }
  while (!out.empty()) {
    const std::uint64_t row = next_ / columns_;
    if (band_.empty() || row < band_first_ || row >= band_first_ + band_rows_) load_band();
    const std::uint64_t at = (next_ - band_first_ * columns_) * element;
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(band_.size() - at, out.size()));
    std::memcpy(out.data(), band_.data() + at, size);
    out = out.subspan(size);
    next_ += size / element;
  }
}

void RowMajorReader::load_band() {
  switch (bytes_of(header_.type)) {
    case 1: return load_band_of<std::uint8_t>();
    case 2: return load_band_of<std::uint16_t>();
    case 4: return load_band_of<std::uint32_t>();
    default: return load_band_of<std::uint64_t>();
  }
}

template <typename Word>
void RowMajorReader::load_band_of() {
  band_first_ = next_ / columns_;
  const std::uint64_t rows = std::min(band_rows_, rows_ - band_first_);
  band_.resize(static_cast<std::size_t>(rows * columns_ * sizeof(Word)));
  columns_read_.resize(static_cast<std::size_t>(std::min(columns_at_once, columns_) * rows * sizeof(Word)));
  StoredOrder column(std::span(header_.shape).subspan(1));
  for (std::uint64_t first = 0; first < columns_; first += columns_at_once) {
    checkpoint();
    // 1. Some columns of these rows: side by side where they are whole.
    const std::uint64_t count = std::min(columns_at_once, columns_ - first);
    const std::span<std::byte> room(columns_read_.data(), static_cast<std::size_t>(count * rows * sizeof(Word)));
    if (rows == rows_) {
      file_.read_bytes(first * rows_, room);
    } else {
      for (std::uint64_t j = 0; j < count; ++j) {
        const std::uint64_t size = rows * sizeof(Word);
        file_.read_bytes((first + j) * rows_ + band_first_, room.subspan(j * size, size));
      }
    }
    // 2. Their elements, in rows.
    std::array<std::uint64_t, columns_at_once> places{};
    for (std::uint64_t j = 0; j < count; ++j, column.next()) places[j] = column.place();
    for (std::uint64_t i = 0; i < rows; ++i) {
      for (std::uint64_t j = 0; j < count; ++j) {
        std::memcpy(band_.data() + (i * columns_ + places[j]) * sizeof(Word),
                    room.data() + (j * rows + i) * sizeof(Word), sizeof(Word));
      }
    }
  }
}

}  // namespace fp8lab::experiments
