// SPDX-License-Identifier: Apache-2.0
// A libcublasLt for tests: it computes on arrays of the host, by gemm(), and takes what NVIDIA's takes for FP8. Fast
// products are not promoted; others are every 128, those of K from 4096 on in two parts.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>

#include "cublaslt_api.hpp"
#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"

namespace {

using namespace fp8lab;
namespace api = fp8lab::gpu::cublaslt;

constexpr api::Status invalid_value = 7;
constexpr api::Status not_supported = 15;
constexpr std::size_t workspace = 1024;

struct Desc {
  bool is_transposed = false;
  bool fast = false;
};
struct Layout {
  int type;
  std::uint64_t rows, columns;
};
struct Preference {
  std::uint64_t workspace = 0;
};

bool is_fp8(int type) { return type == api::real_e4m3 || type == api::real_e5m2; }
const Format& format_of(const Layout& layout) { return layout.type == api::real_e4m3 ? e4m3 : e5m2; }

/// cuBLASLt: A transposed, B not, sizes that are multiples of 16, and E5M2 of one operand at most.
bool is_supported(const Desc& desc, const Layout& a, const Layout& b, const Layout& d) {
  return desc.is_transposed && is_fp8(a.type) && is_fp8(b.type) && d.type == api::real_32f &&
         (a.type == api::real_e4m3 || b.type == api::real_e4m3) && a.rows == b.rows && a.columns == d.rows &&
         b.columns == d.columns && a.rows % 16 == 0 && d.rows % 16 == 0 && d.columns % 16 == 0;
}

}  // namespace

extern "C" {

api::Status cublasLtCreate(void** handle) {
  static int own = 0;
  *handle = &own;
  return 0;
}
api::Status cublasLtDestroy(void* /*handle*/) { return 0; }
const char* cublasLtGetStatusName(api::Status status) {
  return status == not_supported ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_INVALID_VALUE";
}
std::size_t cublasLtGetVersion() { return 130102; }

api::Status cublasLtMatmulDescCreate(void** desc, int compute_type, int scale_type) {
  if (compute_type != api::compute_32f || scale_type != api::real_32f) return invalid_value;
  *desc = new Desc;
  return 0;
}
api::Status cublasLtMatmulDescDestroy(void* desc) {
  delete static_cast<Desc*>(desc);
  return 0;
}
api::Status cublasLtMatmulDescSetAttribute(void* desc, int attribute, const void* value, std::size_t bytes) {
  auto& own = *static_cast<Desc*>(desc);
  if (attribute == api::desc_trans_a && bytes == 4) {
    std::int32_t operation = 0;
    std::memcpy(&operation, value, bytes);
    own.is_transposed = operation == api::transposed;
    return 0;
  }
  if (attribute == api::desc_fast_accum && bytes == 1) {
    own.fast = *static_cast<const std::int8_t*>(value) != 0;
    return 0;
  }
  return invalid_value;
}
api::Status cublasLtMatrixLayoutCreate(void** layout, int type, std::uint64_t rows, std::uint64_t columns,
                                       std::int64_t stride) {
  if (static_cast<std::uint64_t>(stride) != rows) return invalid_value;
  *layout = new Layout{type, rows, columns};
  return 0;
}
api::Status cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return 0;
}
api::Status cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new Preference;
  return 0;
}
api::Status cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<Preference*>(preference);
  return 0;
}
api::Status cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value,
                                                 std::size_t bytes) {
  if (attribute != api::pref_max_workspace_bytes || bytes != 8) return invalid_value;
  std::memcpy(&static_cast<Preference*>(preference)->workspace, value, bytes);
  return 0;
}
api::Status cublasLtMatmulAlgoGetHeuristic(void* /*handle*/, void* desc, void* a, void* b, void* c, void* d,
                                           void* preference, int wanted, api::Heuristic* results, int* found) {
  if (!is_supported(*static_cast<Desc*>(desc), *static_cast<Layout*>(a), *static_cast<Layout*>(b),
                    *static_cast<Layout*>(d)) ||
      c != d || wanted < 1) {
    return not_supported;
  }
  *found = static_cast<Preference*>(preference)->workspace >= workspace ? 1 : 0;
  results[0] = {.algorithm = {.data = {66}}, .workspace = workspace, .state = 0, .waves = 1, .reserved = {}};
  return 0;
}
api::Status cublasLtMatmulAlgoConfigGetAttribute(const api::Algorithm* algorithm, int attribute, void* value,
                                                 std::size_t bytes, std::size_t* written) {
  if (attribute != api::algo_id || bytes != 4) return invalid_value;  // and so of no other attribute
  const auto number = static_cast<std::int32_t>(algorithm->data[0]);
  std::memcpy(value, &number, bytes);
  *written = bytes;
  return 0;
}
api::Status cublasLtMatmul(void* /*handle*/, void* desc, const void* alpha, const void* a, void* layout_a,
                           const void* b, void* layout_b, const void* beta, const void* /*c*/, void* /*layout_c*/,
                           void* d, void* layout_d, const api::Algorithm* algorithm, void* room, std::size_t room_bytes,
                           void* /*stream*/) try {
  const auto& matrix_a = *static_cast<Layout*>(layout_a);
  const auto& matrix_b = *static_cast<Layout*>(layout_b);
  const bool fast = static_cast<Desc*>(desc)->fast;
  if (!is_supported(*static_cast<Desc*>(desc), matrix_a, matrix_b, *static_cast<Layout*>(layout_d)) ||
      *static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0 || algorithm->data[0] != 66 ||
      room_bytes < workspace || room == nullptr) {
    return invalid_value;
  }
  const auto operand = [](const void* codes, const Layout& layout) {
    const auto* const bytes = static_cast<const std::uint8_t*>(codes);
    return Operand::codes(std::span(bytes, layout.rows * layout.columns), format_of(layout), layout.columns,
                          layout.rows);
  };
  GemmRecipe recipe{.model = hopper_wgmma_fp8, .promote_k = fast ? 0 : 128};
  if (!fast && matrix_a.rows >= 4096) recipe.split_k = {matrix_a.rows / 2, matrix_a.rows / 2};
  // Its columns are the caller's rows.
  gemm(recipe, operand(b, matrix_b), operand(a, matrix_a),
       std::span(static_cast<float*>(d), matrix_a.columns * matrix_b.columns));
  return 0;
} catch (const std::exception&) {
  return invalid_value;
}

}  // extern "C"
