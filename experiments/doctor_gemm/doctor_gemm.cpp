// SPDX-License-Identifier: Apache-2.0
#include "doctor_gemm/doctor_gemm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "doctor_gemm/gemm_files.hpp"
#include "files/npy_writer.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/gemm/gemm_recipe_names.hpp"
#include "kit/output.hpp"

namespace fp8lab::experiments {
namespace {

/// Explanations that a probe is about.
constexpr std::size_t most_probed = 24;

void check_gemm_arguments(const DoctorGemmArguments& arguments) {
  const auto one_of = [](const std::string& name, const std::string& value, std::span<const std::string_view> allowed) {
    if (std::ranges::find(allowed, value) == allowed.end()) {
      refuse(name, " must be ", fmt::format("{}", fmt::join(allowed, " or ")), ", not ", printable(value));
    }
  };
  constexpr std::array<std::string_view, 4> layouts{"nt", "nn", "tn", "tt"};
  constexpr std::array<std::string_view, 2> scale_layouts{"compact", "swizzled"};
  constexpr std::array<std::string_view, 2> scale_formats{"e8m0", "ue4m3"};
  one_of("layout", arguments.layout, layouts);
  one_of("scale_layout", arguments.scale_layout, scale_layouts);
  if (arguments.scale_format) one_of("scale_format", *arguments.scale_format, scale_formats);
  if (arguments.places.size() % 2 != 0) refuse("places must be pairs m,n, an even number of them");
  const auto check_scale = [](const char* name, double scale) {
    if (!std::isnormal(static_cast<float>(scale))) refuse(name, " must be a normal number of float32, not ", scale);
  };
  check_scale("tensor_scale_a", arguments.tensor_scale_a);
  check_scale("tensor_scale_b", arguments.tensor_scale_b);
  check_scale("scale_out", arguments.scale_out);
}

std::vector<std::size_t> indices_of(const DoctorGemmArguments& arguments, const GemmFiles& files) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i + 1 < arguments.places.size(); i += 2) {
    const std::uint64_t m = arguments.places[i];
    const std::uint64_t n = arguments.places[i + 1];
    if (m >= files.rows || n >= files.columns) {
      refuse("places: (", m, ", ", n, ") lies outside of an output of ", files.rows, " x ", files.columns);
    }
    indices.push_back(static_cast<std::size_t>(m) * files.columns + static_cast<std::size_t>(n));
  }
  if (!indices.empty() && indices.size() != files.out.size()) {
    refuse("places are ", indices.size(), ", the elements of the product ", files.out.size());
  }
  return indices;
}

std::optional<GemmRecipe> expected_of(const DoctorGemmArguments& arguments) {
  if (!arguments.expected) return std::nullopt;
  GemmRecipe expected = arguments.expected->recipe;
  if (arguments.expected_promote_k) expected.promote_k = *arguments.expected_promote_k;
  const auto& ranges = arguments.expected_split_k;
  if (!ranges.empty()) {
    expected.ranges = expected.range_k = 0;
    expected.split_k.assign(ranges.begin(), ranges.end());
  }
  const auto& order = arguments.expected_split_order;
  if (!order.empty()) expected.split_order.assign(order.begin(), order.end());
  if (arguments.expected_zero_rule)
    expected.zero_rule = find_value<ZeroRule>("zero_rule", *arguments.expected_zero_rule);
  if (arguments.expected_c_enters) expected.c_enters = find_value<CEntry>("c_enters", *arguments.expected_c_enters);
  if (arguments.expected_scale_order) {
    expected.scale_order = find_value<ScaleOrder>("scale_order", *arguments.expected_scale_order);
  }
  if (arguments.expected_profile) expected.cast = arguments.expected_profile->policy;
  return expected;
}

/// The path as one word of a shell.
std::string as_word(const std::string& path) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
  if (path.find_first_not_of(plain) == std::string::npos) return path;
  std::string word = "'";
  for (const char c : path) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

/// The files of a probe, and what to say of them.
class ProbeFiles {
 public:
  ProbeFiles(const DoctorGemmResult& result, const std::filesystem::path& directory)
      : probe_(*result.probe), inputs_(result.diagnosis.inputs), at_(as_word(directory.native())) {
    const std::size_t packing_a = inputs_.format_a.bits() == 4 ? 2 : 1;
    const std::size_t packing_b = inputs_.format_b.bits() == 4 ? 2 : 1;
    add("a", "|u1", {probe_.rows, probe_.depth / packing_a}, std::as_bytes(std::span(probe_.a)), "");
    add("b", "|u1", {probe_.columns, probe_.depth / packing_b}, std::as_bytes(std::span(probe_.b)), "");
    command_ += " out.npy --format-a " + format_name(inputs_.format_a) + " --format-b " + format_name(inputs_.format_b);
    add_scales("scale_a", probe_.blocks_a, probe_.tiles_a, probe_.rows_a, probe_.rows, inputs_.tile_rows_a);
    add_scales("scale_b", probe_.blocks_b, probe_.tiles_b, probe_.rows_b, probe_.columns, inputs_.tile_rows_b);
    add_blocks_format();
    if (!probe_.c.empty()) {
      add("c", "<f4", {probe_.rows, probe_.columns}, std::as_bytes(std::span(probe_.c)), " --c ");
    }
    if (!probe_.bias.empty()) add("bias", "<f4", {probe_.columns}, std::as_bytes(std::span(probe_.bias)), " --bias ");
    add_number("--tensor-scale-a", probe_.scale_a);
    add_number("--tensor-scale-b", probe_.scale_b);
    add_number("--scale-out", probe_.scale_out);
    if (inputs_.format.bits() <= 8) command_ += " --product-format " + format_name(inputs_.format);
  }

  void write(const std::filesystem::path& directory, const DoctorGemmResult& result) {
    const bool parts = result.probed != 0;
    std::string text = fmt::format(
        "Run the GEMM of a ({} x {}) and b ({} x {}), row-major, through the kernel, with the scales and what is added "
        "as in these files.\nThe numbers of the command below are scales of whole tensors, which multiply. Store the "
        "output as out.npy, and then:\n\n{}\n\n",
        probe_.rows, probe_.depth, probe_.columns, probe_.depth, command_);
    text += parts ? fmt::format("{} of {} pairs of these hypotheses differ on it:\n\n", probe_.parted(), probe_.pairs)
                  : std::string(
                        "Row i of a is 0 from element (i + 1) * K / M on: the answer tells where along K the first "
                        "difference enters.\n");
    for (std::size_t i = 0; i < result.probed; ++i) {
      text += fmt::format("{}. {}\n", i + 1, describe(result.diagnosis.explanations[i]));
    }
    files_.insert(files_.begin(), {"probe.txt", std::move(text)});
    write_files(directory, files_);
  }

 private:
  void add(const std::string& name, std::string_view descr, std::initializer_list<std::size_t> shape,
           std::span<const std::byte> elements, const std::string& option) {
    files_.emplace_back(name + ".npy", npy_of(descr, shape, elements));
    command_ += (option.empty() ? " " : option) + at_ + "/" + name + ".npy";
  }

  void add_scales(const std::string& name, const std::vector<std::uint8_t>& blocks, const std::vector<float>& tiles,
                  const std::vector<float>& of_rows, std::size_t rows, std::size_t tile_rows) {
    const std::string option = name == "scale_a" ? " --scale-a " : " --scale-b ";
    if (!blocks.empty()) add(name, "|u1", {rows, blocks.size() / rows}, std::as_bytes(std::span(blocks)), option);
    if (!tiles.empty()) {
      const std::size_t down = (rows + tile_rows - 1) / tile_rows;
      add(name, "<f4", {down, tiles.size() / down}, std::as_bytes(std::span(tiles)), option);
    }
    if (!of_rows.empty()) add(name, "<f4", {rows, 1}, std::as_bytes(std::span(of_rows)), option);
  }

  void add_blocks_format() {
    const std::optional<BlockScales>& type = inputs_.blocks_a ? inputs_.blocks_a : inputs_.blocks_b;
    if (type) command_ += " --scale-format " + format_name(type->format);
  }

  void add_number(const std::string& option, float x) {
    if (x != 1) command_ += fmt::format(" {} {:.9g}", option, x);
  }

  const doctor::GemmProbe& probe_;
  const doctor::GemmInputs& inputs_;
  std::string at_;
  std::string command_ = "fp8lab doctor-gemm";
  Files files_ = {};
};

}  // namespace

DoctorGemmResult run_doctor_gemm(const DoctorGemmArguments& arguments) {
  const DefaultEnvironment environment;
  check_gemm_arguments(arguments);
  if (arguments.probe) check_writable(*arguments.probe, {"probe.txt", "a.npy", "b.npy"});
  // 1. The files.
  const GemmFiles files(arguments);
  const Operand a = files.left(arguments);
  const Operand b = files.right(arguments);
  const doctor::GemmOutput out{.format = files.out.format,
                               .words = files.out.bytes,
                               .indices = indices_of(arguments, files),
                               .c = files.c,
                               .bias = files.bias,
                               .scale_out = static_cast<float>(arguments.scale_out)};
  // 2. The diagnosis, and what would tell more.
  DoctorGemmResult result{.format = out.format};
  result.diagnosis = diagnose_gemm(a, b, out,
                                   {.most_products = arguments.most_products,
                                    .most_shown = arguments.most_shown,
                                    .expected = expected_of(arguments),
                                    .threads = arguments.threads});
  const bool are_codes = a.format.bits() <= 8 && b.format.bits() <= 8;
  const std::vector<doctor::GemmExplanation>& all = result.diagnosis.explanations;
  result.probed = std::min(all.size(), std::clamp<std::size_t>(result.diagnosis.tied, 2, most_probed));
  const bool is_explained = result.diagnosis.explained();
  if (!is_explained) result.probed = 0;
  if (are_codes && !is_explained && arguments.probe) result.probe = prefix_probe(result.diagnosis.inputs);
  if (are_codes && result.probed >= 2 && (result.diagnosis.tied > 1 || arguments.probe)) {
    result.probe = probe_gemm(std::span(all).first(result.probed), result.diagnosis.inputs);
  }
  if (!arguments.probe) return result;
  if (!are_codes) refuse("a probe is of codes of at most 8 bits, which a and b are not");
  if (!result.probe) refuse("a probe parts at least two explanations, and there is one");
  ProbeFiles(result, *arguments.probe).write(*arguments.probe, result);
  return result;
}

}  // namespace fp8lab::experiments
