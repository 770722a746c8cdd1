#include "all_headers.hpp"

#include <fp8lab/gpu/kernel_list.hpp>
#include <fp8lab/reference/gemm/gemm.hpp>
#include <fp8lab/reference/scaling/representable.hpp>
#include <fp8lab/reference/tensor_core/models.hpp>
#include <vector>

int main() {
  const std::vector<std::uint8_t> ones(32, 0x38);
  std::vector<float> out(1);
  const auto row = fp8lab::Operand::codes(ones, fp8lab::e4m3, 1, 32);
  fp8lab::gemm({.model = fp8lab::hopper_wgmma_fp8}, row, row, out);
  return out[0] == 32 && fp8lab::cast_to_representable(fp8lab::e4m3, {}, 0.3F) == 0.3125F ? 0 : 1;
}
