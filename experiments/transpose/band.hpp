// SPDX-License-Identifier: Apache-2.0
// The three copies of a matrix that transpose compares, and a band of their rows measured.
#pragma once

#include "fp8lab/formats/memory.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "transpose/transpose.hpp"

namespace fp8lab::experiments {

/// A band of rows of the matrix, quantized in one direction: codes and scales, the values they stand for, and each
/// element's scale, which its code is multiplied with on dequantize.
struct QuantizedBand {
  Quantized q;
  Buffer<float> values;
  Buffer<float> scales;
};

/// A band: some rows of the matrix, and the same rows of its copies.
struct Band {
  Buffer<float> x;  ///< the matrix's own
  QuantizedBand rowwise;
  QuantizedBand original;
  QuantizedBand requantized;
};

/// Makes values and scales of the band's codes.
void dequantize_band(QuantizedBand& band, int threads);

/// Adds what the band shows. Counts do not depend on an order; the totals of error_block elements are merged in theirs.
void measure_band(const Band& band, int threads, MeasuredTranspose& into);

}  // namespace fp8lab::experiments
