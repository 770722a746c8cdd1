// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/formats/matrix_view.hpp"

#include "fp8lab/formats/refuse.hpp"

namespace fp8lab {

MatrixView::MatrixView(Values values, std::size_t rows, std::size_t columns)
    : values_(values), rows_(rows), columns_(columns) {
  const std::size_t count = std::visit([](auto all) { return all.size(); }, values_);
  if (columns == 0 ? count == 0 : count % columns == 0 && count / columns == rows) return;
  refuse("a matrix must have ", rows, " x ", columns, " elements, not ", count);
}

}  // namespace fp8lab
