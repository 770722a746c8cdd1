// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/scaling/recipe_names.hpp"

#include <array>

namespace fp8lab {
namespace {

// In the order of the enumerators. A value with words changes what describe() says.
constexpr std::array transforms{
    Named{"none", Transform::none},
    Named{"hadamard_columnwise", Transform::hadamard_columnwise, "turned by a Hadamard matrix where columnwise"},
    Named{"hadamard_columnwise_bfloat16", Transform::hadamard_columnwise_bfloat16,
          "turned by a Hadamard matrix where columnwise and rounded to bfloat16"}};
constexpr std::array nans_in_amax{Named{"dropped", NanInAmax::dropped}, Named{"counted", NanInAmax::counted}};
constexpr std::array quotients{
    Named{"given_scale", Quotient::given_scale, "scale = "},
    Named{"given_scale_inv", Quotient::given_scale_inv, "scale_inv = "},
    Named{"largest_over_amax", Quotient::largest_over_amax, "scale = largest / amax"},
    Named{"largest_times_inverse", Quotient::largest_times_inverse, "scale = largest * fl(1 / amax)"},
    Named{"amax_over_largest", Quotient::amax_over_largest, "scale_inv = amax / largest"},
    Named{"amax_times_inverse", Quotient::amax_times_inverse, "scale_inv = amax * fl(1 / largest)"},
    Named{"amax_over_power", Quotient::amax_over_power, "scale_inv = amax / the power of two of the largest value"},
    Named{"inverse_of_quotient", Quotient::inverse_of_quotient, "scale_inv = 1 / fl(largest / amax)"},
    Named{"inverse_of_product", Quotient::inverse_of_product, "scale_inv = 1 / fl(largest * fl(1 / amax))"}};
constexpr std::array arithmetics{Named{"float32", ScaleArithmetic::float32},
                                 Named{"input_type", ScaleArithmetic::input_type, "in the type of the tensor"},
                                 Named{"bfloat16", ScaleArithmetic::bfloat16_type, "in bfloat16"}};
constexpr std::array roundings{
    Named{"none", ScaleRounding::none},
    Named{"down", ScaleRounding::down, "rounded down to a power of two"},
    Named{"up", ScaleRounding::up, "rounded up to a power of two"},
    Named{"even", ScaleRounding::even, "rounded down to a power of two after rounding to"},
    Named{"down_by_log2", ScaleRounding::down_by_log2, "rounded down to a power of two by its float32 log2"},
    Named{"up_by_log2", ScaleRounding::up_by_log2, "rounded up to a power of two by its float32 log2"},
    Named{"nearest_by_log2", ScaleRounding::nearest_by_log2,
          "rounded to the nearest power of two by its float32 log2"}};
constexpr std::array limits{Named{"none", ScaleLimit::none},
                            Named{"float32", ScaleLimit::float32, "at most the largest float32"},
                            Named{"input_type", ScaleLimit::input_type, "at most the largest of the tensor's type"}};
constexpr std::array special_scales{Named{"computed", SpecialScale::computed},
                                    Named{"one", SpecialScale::one, "1"},
                                    Named{"nan", SpecialScale::nan, "NaN"},
                                    Named{"smallest", SpecialScale::smallest, "2^-127"},
                                    Named{"epsilon", SpecialScale::epsilon, "a scale_inv of 2^-23"},
                                    Named{"type_epsilon", SpecialScale::type_epsilon, "the epsilon of its type"},
                                    Named{"smallest_of_nan", SpecialScale::smallest_of_nan, "2^-127 and all NaN"},
                                    Named{"largest", SpecialScale::largest, "2^127"},
                                    Named{"zero_factor", SpecialScale::zero_factor, "elements are multiplied by 0"},
                                    Named{"as_infinity", SpecialScale::as_infinity, "what an infinite amax makes"}};
constexpr std::array scale_types{Named{"float32", ScaleType::float32, "a float32 scale"},
                                 Named{"e8m0", ScaleType::e8m0_code, "an E8M0 scale"},
                                 Named{"e4m3", ScaleType::e4m3_code, "an E4M3 scale"}};
constexpr std::array e8m0_edges{
    Named{"specified", E8m0Edges::specified},
    Named{"te_before_2_19", E8m0Edges::te_before_2_19, "scales 00 and FF dequantize as 0 and infinity"},
    Named{"te_before_2_13", E8m0Edges::te_before_2_13,
          "blocks with scale 00 are multiplied by 1, with FE by 0, with FF by -infinity; 00 and FF dequantize as 0 and "
          "infinity"},
    Named{"torchao_0_18", E8m0Edges::torchao_0_18, "blocks with scale 00 are multiplied by 2^126, with FF by 0"},
    Named{"torchao_0_18_rceil", E8m0Edges::torchao_0_18_rceil, "blocks with scale 00 are multiplied by 1"},
    Named{"zero_at_ends", E8m0Edges::zero_at_ends, "blocks with scale 00 or FE are multiplied by 0"}};
constexpr std::array tensor_scales{
    Named{"none", TensorScaleRule::none},
    Named{"largest_over_amax", TensorScaleRule::largest_over_amax, "E = 448 * largest / its amax"},
    Named{"largest_times_inverse", TensorScaleRule::largest_times_inverse, "E = 448 * largest * fl(1 / its amax)"},
    Named{"amax_over_largest", TensorScaleRule::amax_over_largest, "D = its amax / (448 * largest)"},
    Named{"two_products", TensorScaleRule::two_products, "E = 448 * fl(largest * fl(1 / its amax))"}};
constexpr std::array block_products{
    Named{"amax_times_scale", BlockProduct::amax_times_scale, "amax * fl(E * fl(1 / largest))"},
    Named{"scale_times_amax", BlockProduct::scale_times_amax, "E * fl(amax * fl(1 / largest))"},
    Named{"scale_times_quotient", BlockProduct::scale_times_quotient, "E * fl(amax / largest)"},
    Named{"quotient_over_inverse", BlockProduct::quotient_over_inverse, "fl(amax / largest) / D"},
    Named{"amax_over_inverse", BlockProduct::amax_over_inverse, "amax / fl(largest * D)"},
    Named{"quotient_over_quotient", BlockProduct::quotient_over_quotient,
          "fl(fl(amax / largest) * 448) / fl(tensor's amax / largest)"}};
constexpr std::array block_factors{
    Named{"inverse_of_product", BlockFactor::inverse_of_product, "1 / fl(d * D)"},
    Named{"inverse_of_product_or_zero", BlockFactor::inverse_of_product_or_zero, "1 / fl(d * D), or 0 where d is 0"},
    Named{"inverse_of_product_by_amax", BlockFactor::inverse_of_product_by_amax,
          "1 / fl(d * D), or 0 where the amax is 0"},
    Named{"inverse_of_product_by_product", BlockFactor::inverse_of_product_by_product,
          "1 / fl(d * D), or 0 where d is 0 before it is rounded"},
    Named{"scale_over_block", BlockFactor::scale_over_block, "E / d"},
    Named{"scale_over_block_bfloat16", BlockFactor::scale_over_block_bfloat16, "E / d, rounded to bfloat16"},
    Named{"scale_times_inverse_or_zero", BlockFactor::scale_times_inverse_or_zero, "E * fl(1 / d), or 0 where d is 0"},
    Named{"product", BlockFactor::product, "d * D"},
    Named{"block_over_scale", BlockFactor::block_over_scale, "d / E"}};
constexpr std::array block_choices{
    Named{"none", BlockChoice::none},
    Named{"four_or_six_absolute", BlockChoice::four_or_six_absolute, "or 1.5 * d where that has the smaller |error|"},
    Named{"four_or_six_squared", BlockChoice::four_or_six_squared, "or 1.5 * d where that has the smaller error^2"},
    Named{"four_or_six_absolute_scaled", BlockChoice::four_or_six_absolute_scaled,
          "or 1.5 * d where that has the smaller |error| of E * x"},
    Named{"four_or_six_squared_scaled", BlockChoice::four_or_six_squared_scaled,
          "or 1.5 * d where that has the smaller error^2 of E * x"}};
constexpr std::array factors{
    Named{"of_scale", FactorRule::of_scale},
    Named{"largest_over_amax", FactorRule::largest_over_amax, "multiplied by fl(largest / amax)"},
    Named{"of_rounded_scale", FactorRule::of_rounded_scale, "divided by the rounded scale_inv"}};
constexpr std::array operations{
    Named{"multiply", TileOperation::multiply},
    Named{"divide", TileOperation::divide},
    Named{"multiply_add_zero", TileOperation::multiply_add_zero, "-0 becomes +0"},
    Named{"multiply_then_add_zero", TileOperation::multiply_then_add_zero, "a product of -0 becomes +0"},
    Named{"divide_then_add_zero", TileOperation::divide_then_add_zero, "a quotient of -0 becomes +0"},
    Named{"multiply_negative_zero", TileOperation::multiply_negative_zero, "a product of zero becomes -0"}};

}  // namespace

std::span<const Named<Transform>> named_values(Transform /*any*/) { return transforms; }
std::span<const Named<NanInAmax>> named_values(NanInAmax /*any*/) { return nans_in_amax; }
std::span<const Named<Quotient>> named_values(Quotient /*any*/) { return quotients; }
std::span<const Named<ScaleArithmetic>> named_values(ScaleArithmetic /*any*/) { return arithmetics; }
std::span<const Named<ScaleRounding>> named_values(ScaleRounding /*any*/) { return roundings; }
std::span<const Named<ScaleLimit>> named_values(ScaleLimit /*any*/) { return limits; }
std::span<const Named<SpecialScale>> named_values(SpecialScale /*any*/) { return special_scales; }
std::span<const Named<ScaleType>> named_values(ScaleType /*any*/) { return scale_types; }
std::span<const Named<E8m0Edges>> named_values(E8m0Edges /*any*/) { return e8m0_edges; }
std::span<const Named<TensorScaleRule>> named_values(TensorScaleRule /*any*/) { return tensor_scales; }
std::span<const Named<BlockProduct>> named_values(BlockProduct /*any*/) { return block_products; }
std::span<const Named<BlockFactor>> named_values(BlockFactor /*any*/) { return block_factors; }
std::span<const Named<BlockChoice>> named_values(BlockChoice /*any*/) { return block_choices; }
std::span<const Named<FactorRule>> named_values(FactorRule /*any*/) { return factors; }
std::span<const Named<TileOperation>> named_values(TileOperation /*any*/) { return operations; }

}  // namespace fp8lab
