// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/named.hpp"
#include "fp8lab/formats/tiles.hpp"

namespace fp8lab {

/// What becomes of the amax history at the end of a step, and which amax the new scale is made of. Row 0 is the running
/// step's.
enum class HistoryRule : std::uint8_t {
  bulk_kernel,    ///< of Transformer Engine: an amax of 0 changes nothing; any other moves into the window; NaN is
                  ///< ignored by the maximum
  single_kernel,  ///< of Transformer Engine: the same, but an amax of 0 moves into the window too
  unfused,        ///< torch.max over the rows, which gives NaN where one is; then every amax moves into the window
  ms_amp_0_1,     ///< just in time until the window is full; an amax of inf or NaN moves into the window, keeps the
                  ///< scale, and all begins anew
  ms_amp,         ///< the same, but an amax of inf or NaN is dropped, and the scale is made of the others
  torchao,        ///< the very first cast takes the scale of its own amax, which stays in row 1: the larger of it and
                  ///< the running step's makes the scale; the other rows stay 0
};

/// How an amax becomes a scale; all operations are those of float32 unless it says otherwise. Where the amax is not
/// positive and finite, the old scale stays, except by the clamped quotients.
///
/// PyTorch divides a number by a tensor so: the tensor's reciprocal is rounded, then its product with the number. The
/// kernels divide once. On a GPU, code that torch.compile makes of PyTorch's may differ in the last bits.
enum class ScaleFormula : std::uint8_t {
  power_of_two,      ///< e = floor(log2(fp8_max / amax)) - margin, divided as PyTorch does; 2^|e|; last of all, where
                     ///< e < 0, its inverse: of the old scale as well, so that an infinite amax inverts it
  margin_first,      ///< (fp8_max * 2^-margin) / amax, divided as the kernels do
  margin_last,       ///< (fp8_max / amax) / 2^margin, divided as PyTorch does
  clamped_quotient,  ///< fp8_max / max(amax, 1e-12), divided as PyTorch does: 0 for an infinite amax, NaN for NaN
  clamped_quotient_in_double,  ///< the same in double, rounded to float32 in the end
};

/// Where the unfused update writes the moved window, which a function for the amax sees that returned a view of a row.
enum class MovedWindow : std::uint8_t {
  beside,               ///< the old one, which the view is of, stays
  beside_unless_short,  ///< the same, but a window of 1 is set to zero in its place
  in_place,             ///< the view has what moved into its row
};

/// A release of a system that scales with delay, as far as its scales differ from others'.
struct DelayedVersion {
  std::string_view name;
  HistoryRule history;
  ScaleFormula formula;
  float largest_scale = std::numeric_limits<float>::infinity();  ///< a larger scale becomes this
  bool inverse_is_of_the_cast = true;                            ///< scale_inv is written with the data, not with the
                                                                 ///< new scale
  MovedWindow moved_window = MovedWindow::in_place;
  std::string_view description = {};
  std::string_view source = {};

  /// Whether it takes anything but the maximum of the window, and a margin: Transformer Engine's do.
  [[nodiscard]] constexpr bool has_options() const {
    return history == HistoryRule::bulk_kernel || history == HistoryRule::single_kernel ||
           history == HistoryRule::unfused;
  }
};

// Where the versions' rules are to be read.
inline constexpr std::string_view te_kernels =
    "NVIDIA/TransformerEngine, transformer_engine/common/recipe/delayed_scaling.cu";
inline constexpr std::string_view te_functions = "NVIDIA/TransformerEngine, transformer_engine/pytorch/fp8.py";
inline constexpr std::string_view ms_amp_classes =
    "Azure/MS-AMP, msamp/common/tensor and msamp/optim/optimizer.py; Peng et al., FP8-LM, arXiv 2310.18313";
inline constexpr std::string_view torchao_functions =
    "pytorch/ao, torchao/float8/float8_utils.py and float8_linear_utils.py";

inline constexpr float largest_float32 = std::numeric_limits<float>::max();
inline constexpr float largest_float16 = 65504;

// Transformer Engine by its releases, then others: most are another one, and what changed.
inline constexpr DelayedVersion te_0_1{
    .name = "te_0_1",
    .history = HistoryRule::unfused,
    .formula = ScaleFormula::power_of_two,
    .moved_window = MovedWindow::beside,
    .description =
        "Transformer Engine 0.1 to 0.4: scales are powers of two, without a limit (an amax below fp8_max / 2^128 makes "
        "them infinite), and an infinite amax inverts the scale; the cast writes scale_inv; its defaults were "
        "amax_history_len 1 and most_recent",
    .source = te_functions};
inline constexpr DelayedVersion te_0_5 =
    changed(te_0_1, "te_0_5",
            "Transformer Engine 0.5 to 0.12: the scales of 0.1, and the update writes scale_inv; a window of 1 is set "
            "to zero in its place since 0.6; the defaults are amax_history_len 1024 and max since 0.7",
            [](DelayedVersion& version) {
              version.inverse_is_of_the_cast = false;
              version.moved_window = MovedWindow::beside_unless_short;
            });
inline constexpr DelayedVersion te_0_13 =
    changed(te_0_5, "te_0_13", "Transformer Engine 0.13 to 1.3: full-mantissa scales without a limit, by PyTorch code",
            [](DelayedVersion& version) { version.formula = ScaleFormula::margin_last; });
inline constexpr DelayedVersion te_1_4 =
    changed(te_0_13, "te_1_4",
            "Transformer Engine 1.4 and 1.5, a kernel for each tensor: full-mantissa scales without a limit; an amax "
            "of 0 moves into the window; a callable amax_compute_algo takes the PyTorch code of 0.13",
            [](DelayedVersion& version) {
              version.history = HistoryRule::single_kernel;
              version.formula = ScaleFormula::margin_first;
              version.source = te_kernels;
            });
inline constexpr DelayedVersion te_1_6 =
    changed(te_1_4, "te_1_6",
            "Transformer Engine 1.6, one kernel for all tensors: full-mantissa scales without a limit; an amax of 0 no "
            "longer moves into the window",
            [](DelayedVersion& version) {
              version.history = HistoryRule::bulk_kernel;
              version.moved_window = MovedWindow::in_place;
            });
inline constexpr DelayedVersion te_1_7 =
    changed(te_1_6, "te_1_7", "Transformer Engine 1.7 to 1.10: a scale that overflows becomes the largest float32",
            [](DelayedVersion& version) { version.largest_scale = largest_float32; });
inline constexpr DelayedVersion te_current =
    changed(te_1_7, "te_current",
            "Transformer Engine since 1.11: the scales of 1.7, and the cast writes scale_inv beside its data (up to "
            "1.13 the update writes it too)",
            [](DelayedVersion& version) { version.inverse_is_of_the_cast = true; });

/// A release as its PyTorch code has it, which NVTE_UNFUSED_FP8_UPDATE=1 or a callable amax_compute_algo chooses.
[[nodiscard]] constexpr DelayedVersion unfused_of(const DelayedVersion& release, std::string_view name,
                                                  std::string_view description,
                                                  std::string_view source = te_functions) {
  return changed(release, name, description, [source](DelayedVersion& version) {
    version.history = HistoryRule::unfused;
    version.formula = ScaleFormula::margin_last;
    version.source = source;
  });
}
/// A release as its kernel for a single tensor has it.
[[nodiscard]] constexpr DelayedVersion single_of(const DelayedVersion& release, std::string_view name,
                                                 std::string_view description) {
  return changed(release, name, description,
                 [](DelayedVersion& version) { version.history = HistoryRule::single_kernel; });
}
inline constexpr DelayedVersion te_1_6_unfused = unfused_of(
    te_1_6, "te_1_6_unfused",
    "Transformer Engine 1.6 as NVTE_UNFUSED_FP8_UPDATE=1 or a callable amax_compute_algo has it: the scales of "
    "0.13, the window moved in its place");
inline constexpr DelayedVersion te_1_7_unfused =
    unfused_of(te_1_7, "te_1_7_unfused",
               "Transformer Engine 1.7 to 1.10 as NVTE_UNFUSED_FP8_UPDATE=1 or a callable amax_compute_algo has it");
inline constexpr DelayedVersion te_1_7_single = single_of(
    te_1_7, "te_1_7_single",
    "Transformer Engine 1.7 to 1.10, its kernel for a single tensor, for other frameworks: an amax of 0 moves "
    "into the window");
inline constexpr DelayedVersion te_current_unfused = unfused_of(
    te_current, "te_current_unfused",
    "Transformer Engine since 1.11 as NVTE_UNFUSED_FP8_UPDATE=1 or a callable amax_compute_algo has it: NaN in "
    "the window keeps the scale, an amax of 0 moves into the window, and a margin is applied after the "
    "quotient has overflowed",
    "NVIDIA/TransformerEngine, transformer_engine/pytorch/quantization.py (fp8.py before 2.9)");
inline constexpr DelayedVersion te_current_single = single_of(
    te_current, "te_current_single",
    "Transformer Engine's kernel for a single tensor since 1.11, for other frameworks: an amax of 0 moves into "
    "the window");

inline constexpr DelayedVersion ms_amp_0_1{
    .name = "ms_amp_0_1",
    .history = HistoryRule::ms_amp_0_1,
    .formula = ScaleFormula::power_of_two,
    .description =
        "MS-AMP 0.1: an amax that is not finite keeps the scale and stays in the window, where inf inverts the scale "
        "at every update and NaN keeps it; else as ms_amp",
    .source = ms_amp_classes};
inline constexpr DelayedVersion ms_amp =
    changed(ms_amp_0_1, "ms_amp",
            "MS-AMP 0.2 to 0.4: powers of two, just in time for the first amax_history_len steps and after every amax "
            "that is not finite; its layers have a window of 16 for inputs and their gradients, of 1 for weights",
            [](DelayedVersion& version) { version.history = HistoryRule::ms_amp; });

inline constexpr DelayedVersion torchao_0_4{
    .name = "torchao_0_4",
    .history = HistoryRule::torchao,
    .formula = ScaleFormula::clamped_quotient,
    .description = "torchao 0.4 and 0.5: the quotient is of float32; else as torchao",
    .source = torchao_functions};
inline constexpr DelayedVersion torchao_delayed =
    changed(torchao_0_4, "torchao",
            "torchao 0.6 to 0.9, the last with delayed scaling: the first cast takes the scale of its own amax; each "
            "update takes the larger of the first and the newest amax, for it moves a copy of the window alone (with a "
            "window of 1 the newest); an infinite amax makes the scale 0, and NaN makes it NaN; its default is a "
            "window of 16",
            [](DelayedVersion& version) { version.formula = ScaleFormula::clamped_quotient_in_double; });
inline constexpr auto limit_to_float16 = [](DelayedVersion& version) { version.largest_scale = largest_float16; };
inline constexpr DelayedVersion torchao_0_4_float16 =
    changed(torchao_0_4, "torchao_0_4_float16", "torchao 0.4 and 0.5, for inputs of float16: scales are at most 65504",
            limit_to_float16);
inline constexpr DelayedVersion torchao_0_6_float16 =
    changed(torchao_delayed, "torchao_0_6_float16", "torchao 0.6, for inputs of float16: scales are at most 65504",
            limit_to_float16);

inline constexpr std::array delayed_versions{te_0_1,
                                             te_0_5,
                                             te_0_13,
                                             te_1_4,
                                             te_1_6,
                                             te_1_6_unfused,
                                             te_1_7,
                                             te_1_7_unfused,
                                             te_1_7_single,
                                             te_current,
                                             te_current_unfused,
                                             te_current_single,
                                             ms_amp_0_1,
                                             ms_amp,
                                             torchao_0_4,
                                             torchao_0_4_float16,
                                             torchao_0_6_float16,
                                             torchao_delayed};

/// The version called `name`. Throws std::invalid_argument that lists the known names.
[[nodiscard]] const DelayedVersion& find_delayed_version(std::string_view name);

/// The formats that a recipe casts to.
enum class Fp8Format : std::uint8_t {
  hybrid,     ///< E4M3 forward, E5M2 backward
  e4m3_only,  ///< E4M3 for both; "e4m3" by name
};
/// The half of a step that a tensor belongs to: inputs and weights to the first, gradients of outputs to the second.
enum class Pass : std::uint8_t { forward, backward };

/// The amax of the window that makes the scale.
enum class AmaxComputeAlgo : std::uint8_t { max, most_recent };
/// A row of the history, in place of its number: what a function has chosen that returns a view of the history, such as
/// PyTorch's `history[0]`. It is read after the window has moved where the version moves it in its place.
struct AmaxRow {
  std::size_t index = 0;
};
/// The same as a function of the history, row 0 the newest. It returns the amax, or the row that it is in.
using AmaxFunction = std::function<std::variant<float, AmaxRow>(std::span<const float>)>;

/// Throws std::invalid_argument that lists the known names.
/// Their names, from which name_of() follows.
[[nodiscard]] std::span<const Named<Fp8Format>> named_values(Fp8Format of_type);
[[nodiscard]] std::span<const Named<AmaxComputeAlgo>> named_values(AmaxComputeAlgo of_type);

/// The GEMMs of a Linear layer that run in high precision.
struct LinearPrecision {
  bool fprop = false, dgrad = false, wgrad = false;
};

/// The largest amax_history_len.
inline constexpr std::size_t longest_amax_history = 1 << 20;

/// Delayed scaling: the scale of a cast comes from the amaxes of earlier steps. Fields and defaults are those of
/// Transformer Engine's DelayedScaling recipe.
struct Delayed {
  int margin = 0;    ///< the scale is divided by 2^margin; -62 to 62: beyond, PyTorch's 2 ** margin is no int64
  int interval = 1;  ///< read by none of the versions, whose scales change every step
  Fp8Format fp8_format = Fp8Format::hybrid;
  std::size_t amax_history_len = 1024;  ///< the window, the running step included
  /// A function takes the version's unfused path, as in Transformer Engine.
  std::variant<AmaxComputeAlgo, AmaxFunction> amax_compute_algo = AmaxComputeAlgo::max;
  bool reduce_amax = true;  ///< ranks share the largest of their amaxes: see reduced_amax()
  LinearPrecision override_linear_precision =
      {};  ///< of these, Transformer Engine takes wgrad alone; no scale depends on it
  DelayedVersion version = te_current;
};

/// Calls f(name, field) for each field of a Delayed, in order.
template <typename AnyDelayed, typename Function>
  requires std::same_as<std::remove_const_t<AnyDelayed>, Delayed>
void for_fields(AnyDelayed& recipe, const Function& f) {
  f("margin", recipe.margin);
  f("interval", recipe.interval);
  f("fp8_format", recipe.fp8_format);
  f("amax_history_len", recipe.amax_history_len);
  f("amax_compute_algo", recipe.amax_compute_algo);
  f("reduce_amax", recipe.reduce_amax);
  f("override_linear_precision", recipe.override_linear_precision);
  f("version", recipe.version);
}

/// The state of one tensor, which the caller owns. Nothing locks it: threads that share one need a lock of their own,
/// from a cast's record_amax() to its use of the scale.
struct AmaxHistory {
  std::vector<float> amaxes;   ///< row 0: the running step
  float scale = 1;             ///< of the next cast
  float scale_inv = 1;         ///< of the last one's data
  std::uint64_t position = 0;  ///< steps done; by MS-AMP's rule since it began anew
};

/// Throws std::invalid_argument for a field that is out of range, or that the version does not have.
void check(const Delayed& recipe);

/// The largest value of the format that a tensor of that pass is cast to.
[[nodiscard]] float fp8_max(const Delayed& recipe, Pass pass);

/// The format that a tensor of that pass is cast to.
[[nodiscard]] Format format_of(const Delayed& recipe, Pass pass);

/// The state before the first step: no amaxes, scale 1. Throws as check() does.
[[nodiscard]] AmaxHistory start_history(const Delayed& recipe);

/// Whether the amax that a cast of the tensor records counts NaN: torch's maximum does (torchao's, and MS-AMP's just in
/// time), the maximum of a cast's kernel does not.
[[nodiscard]] NanInAmax nan_in_amax(const Delayed& recipe, const AmaxHistory& history);

/// Records that a tensor with that amax is cast: afterwards `scale` and, by the versions that write it then,
/// `scale_inv` are those that the cast used. Several casts in a step leave the largest amax (torchao and, just in time,
/// MS-AMP: the last one). NaN of either sign is NaN. Throws std::invalid_argument for a negative amax, and where recipe
/// and history differ in length.
void record_amax(const Delayed& recipe, Pass pass, AmaxHistory& history, float amax);

/// The end of a step: the next scale, and the window moves on. Throws std::invalid_argument where recipe and history
/// differ in length or a function chose a row that the history does not have, and what such a function throws; the
/// history is as it was then.
void update_scale(const Delayed& recipe, Pass pass, AmaxHistory& history);

/// The scale that an amax makes, given the scale before. Precondition: check() accepts the recipe.
[[nodiscard]] float scale_of(const Delayed& recipe, Pass pass, float amax, float old_scale);

/// Another length in the middle of a run, as Transformer Engine's set_meta_tensor has it: rows are cut off or, as
/// zeros, added at the end, so that a shorter history keeps the oldest amaxes and drops the newest. Throws
/// std::invalid_argument unless the length is from 1 to longest_amax_history.
void resize_history(AmaxHistory& history, std::size_t amax_history_len);

/// The amax that an all-reduce with MAX makes of the ranks' amaxes: the largest; NaN where all are. Throws
/// std::invalid_argument where there is none.
[[nodiscard]] float reduced_amax(std::span<const float> of_ranks);

/// The recipe in words.
[[nodiscard]] std::string describe(const Delayed& recipe);

}  // namespace fp8lab
