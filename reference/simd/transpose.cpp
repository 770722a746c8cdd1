// SPDX-License-Identifier: Apache-2.0
#include "simd/transpose.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/transpose.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "formats/simd/memory.hpp"
#include "fp8lab/formats/memory.hpp"

HWY_BEFORE_NAMESPACE();
namespace fp8lab::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t edge = 16;
constexpr std::size_t most_rows = 256;  // at a time

#if HWY_TARGET != HWY_SCALAR
/// A square of 16 x 16, one vector per row: interleaving rows i and i + 8, four times, turns them into columns.
HWY_INLINE void TransposeSquare(const std::uint8_t* in, std::size_t in_stride, std::uint8_t* out,
                                std::size_t out_stride) {
  const hn::CappedTag<std::uint8_t, edge> bytes;
  hn::Vec<decltype(bytes)> row[edge];
  hn::Vec<decltype(bytes)> turned[edge];
  for (std::size_t i = 0; i < edge; ++i) row[i] = hn::LoadU(bytes, in + i * in_stride);
  for (int half = 0; half < 2; ++half) {
    for (std::size_t i = 0; i < edge / 2; ++i) {
      turned[2 * i] = hn::InterleaveLower(bytes, row[i], row[i + edge / 2]);
      turned[2 * i + 1] = hn::InterleaveUpper(bytes, row[i], row[i + edge / 2]);
    }
    for (std::size_t i = 0; i < edge / 2; ++i) {
      row[2 * i] = hn::InterleaveLower(bytes, turned[i], turned[i + edge / 2]);
      row[2 * i + 1] = hn::InterleaveUpper(bytes, turned[i], turned[i + edge / 2]);
    }
  }
  for (std::size_t i = 0; i < edge; ++i) hn::StoreU(row[i], bytes, out + i * out_stride);
}
#else
HWY_INLINE void TransposeSquare(const std::uint8_t* in, std::size_t in_stride, std::uint8_t* out,
                                std::size_t out_stride) {
  for (std::size_t r = 0; r < edge; ++r) {
    for (std::size_t c = 0; c < edge; ++c) out[c * out_stride + r] = in[r * in_stride + c];
  }
}
#endif

/// Copies a few vectors, a multiple of `edge` bytes. `stream` needs an aligned `out`.
HWY_INLINE void Copy(const std::uint8_t* in, std::size_t count, std::uint8_t* out, bool stream) {
  const hn::ScalableTag<std::uint8_t> wide;
  const hn::CappedTag<std::uint8_t, edge> narrow;
  std::size_t i = 0;
  for (; stream && i + cache_line <= count; i += cache_line) {
    for (std::size_t k = i; k < i + cache_line; k += hn::Lanes(wide))
      hn::Stream(hn::LoadU(wide, in + k), wide, out + k);
  }
  for (; i + hn::Lanes(wide) <= count; i += hn::Lanes(wide)) hn::StoreU(hn::LoadU(wide, in + i), wide, out + i);
  for (; i < count; i += hn::Lanes(narrow)) hn::StoreU(hn::LoadU(narrow, in + i), narrow, out + i);
}

HWY_ATTR void Transpose(const std::uint8_t* in, std::size_t rows, std::size_t columns, std::size_t in_stride,
                        std::uint8_t* out, std::size_t out_stride, bool stream) {
  const std::size_t even_rows = rows / edge * edge;
  const std::size_t even_columns = columns / edge * edge;
  // Writes to a buffer first and copies whole columns then. Columns often lie a power of two apart, so a cache has room
  // for few, and whole columns are written faster.
  std::uint8_t apart[edge * most_rows];
  for (std::size_t first = 0; first < even_rows; first += most_rows) {
    const std::size_t some = even_rows - first < most_rows ? even_rows - first : most_rows;
    for (std::size_t c = 0; c < even_columns; c += edge) {
      // The next columns are fetched ahead.
      for (std::size_t k = edge; !stream && k < 2 * edge && c + k < columns; ++k) {
        for (std::size_t i = 0; i < some; i += 64) hwy::Prefetch(out + (c + k) * out_stride + first + i);
      }
      for (std::size_t r = 0; r < some; r += edge) {
        TransposeSquare(in + (first + r) * in_stride + c, in_stride, apart + r, most_rows);
      }
      for (std::size_t k = 0; k < edge; ++k) {
        Copy(apart + k * most_rows, some, out + (c + k) * out_stride + first, stream);
      }
    }
  }
  for (std::size_t c = 0; c < columns; ++c) {
    const std::size_t first = c < even_columns ? even_rows : 0;
    for (std::size_t r = first; r < rows; ++r) out[c * out_stride + r] = in[r * in_stride + c];
  }
}

}  // namespace fp8lab::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace fp8lab {

HWY_EXPORT(Transpose);

void transpose_bytes(const std::uint8_t* in, std::size_t rows, std::size_t columns, std::size_t in_stride,
                     std::uint8_t* out, std::size_t out_stride, bool stream) {
  const bool streams = stream && begin_with_lines(out, out_stride);
  HWY_DYNAMIC_DISPATCH(Transpose)(in, rows, columns, in_stride, out, out_stride, streams);
}

}  // namespace fp8lab
#endif
