// SPDX-License-Identifier: Apache-2.0
#include "kit/tensor_arguments.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string_view>

#include "fp8lab/formats/refuse.hpp"

namespace fp8lab::experiments {

void TensorArguments::add_arrays(ArgumentList& list, const std::string& taken) {
  list.add("x", arrays, "the tensors in order, or one array alone: " + taken + "; or paths, which mean `file`")
      .by_default("drawn, or read from `file`,")
      .positional()
      .only_python();
}

void TensorArguments::add_files(ArgumentList& list) {
  list.add("file", files,
           "read tensors of .npy or .safetensors files, of the *.index.json of a checkpoint, or of all files of a "
           "folder")
      .called("PATH ...")
      .also_called("--files")
      .excluding({"x"});
  list.add("tensor", names,
           "names of the tensors to read, or patterns such as 'layers.[0-3].*_proj.weight' and '*.{q,k}_proj.*'")
      .called("NAME ...")
      .as_words()
      .needing({"file"});
}

void TensorArguments::add_draws(ArgumentList& list) {
  list.add("distribution", draws.distribution, "the distribution of drawn values (fp8lab distributions lists them)")
      .excluding({"x", "file"});
  list.add("seed", draws.seed, "the seed of the draws").excluding({"x", "file"});
}

void TensorArguments::add_shape(ArgumentList& list) {
  list.add("rows", draws.rows, "rows of a drawn tensor").excluding({"x", "file"});
  list.add("columns", draws.columns, "columns of a drawn tensor").excluding({"x", "file"});
}

void TensorArguments::add_size(ArgumentList& list) {
  is_flat = true;
  list.add("size", draws.columns, "the number of values that are drawn, or in the grid").excluding({"x", "file"});
}

void TensorArguments::add_grid(ArgumentList& list) {
  list.add("grid", grid, "take the quantiles of N(0, 1) instead of draws: always the same values, without chance")
      .excluding({"x", "file", "distribution", "seed"});
}

void TensorArguments::add_stream(ArgumentList& list) {
  list.add("stream", draws.kind, "how drawn tensors change from step to step: stationary, drift, outliers, jump")
      .excluding({"x", "file", "grid"});
  list.add("steps", draws.steps, "the number of tensors that are drawn").excluding({"x", "file", "grid"});
}

void TensorArguments::add_outliers(ArgumentList& list) {
  list.add("outlier_rows", draws.outlier_rows,
           "multiply COUNT rows by FACTOR, as outlier tokens: rows i * rows / COUNT for i from 0 to COUNT - 1")
      .by_default("none")
      .excluding({"x", "file"});
  list.add("outlier_columns", draws.outlier_columns, "the same for columns, as outlier channels")
      .by_default("none")
      .excluding({"x", "file"});
}

TensorSource TensorArguments::source() const {
  if (!arrays.empty()) return arrays;
  if (!files.empty()) return StoredTensors{files, names};
  const int log2_most = grid ? 26 : 40;
  if (is_flat && (draws.columns < 1 || draws.columns > 1LL << log2_most)) {
    refuse("size must be from 1 to 2^", log2_most, ", not ", draws.columns);
  }
  if (grid) return Grid{draws.rows, draws.columns};
  return draws;
}

Table tensors_table(const std::vector<SourceTensor>& tensors) {
  return tabulate(tensors, {.name = "tensors", .detail = true})
      .column({"name"}, &SourceTensor::name)
      .column({"type"}, [](const SourceTensor& one) { return name_of(one.type); })
      .column({"shape"}, [](const SourceTensor& one) { return shape_text(one.shape); })
      .column({"rows"}, &SourceTensor::rows)
      .column({"columns"}, &SourceTensor::columns);
}

void add_left_out(const std::vector<LeftOutTensor>& left_out, std::size_t taken, std::vector<Section>& sections) {
  if (left_out.empty()) return;
  std::map<std::string, std::size_t> counts;
  for (const LeftOutTensor& one : left_out) ++counts[one.reason];
  Text text{.name = "left_out_reasons"};
  const std::size_t all = left_out.size() + taken;
  text.paragraphs.push_back(std::to_string(left_out.size()) + " of " + std::to_string(all) +
                            (left_out.size() == 1 ? " tensors is left out:" : " tensors are left out:"));
  constexpr std::size_t most = 5;
  std::size_t told = 0;
  for (const auto& [reason, count] : counts) {
    if (told++ == most) text.paragraphs.back() += " ... (the table left_out has all);";
    if (told > most) break;
    text.paragraphs.back() += " " + std::to_string(count) + ": " + reason + ";";
  }
  text.paragraphs.back().back() = '.';
  sections.emplace_back(std::move(text));
  sections.emplace_back(Table(tabulate(left_out, {.name = "left_out", .title = "Tensors left out", .detail = true})
                                  .column({"name"}, &LeftOutTensor::name)
                                  .column({"reason"}, &LeftOutTensor::reason)));
}

std::vector<std::string> names_in_tables(const std::vector<SourceTensor>& tensors) {
  std::vector<std::string> names;
  for (const SourceTensor& one : tensors) {
    const bool needs_number = one.name.empty() && tensors.size() > 1;
    names.push_back(needs_number ? "x[" + std::to_string(names.size()) + "]" : one.name);
  }
  if (names.size() < 2) return names;
  // 1. How far all begin alike.
  std::size_t alike = names.front().size();
  for (const std::string& name : names) {
    alike = std::min(alike, static_cast<std::size_t>(std::ranges::mismatch(name, names.front()).in1 - name.begin()));
  }
  // 2. Of that, whole parts are left out.
  std::size_t begin = 0;
  for (const std::string_view end : {std::string_view("/"), std::string_view(", tensor ")}) {
    const std::size_t at = names.front().substr(0, alike).rfind(end);
    if (at != std::string::npos) begin = std::max(begin, at + end.size());
  }
  for (std::string& name : names) {
    name.erase(0, begin);
    std::erase(name, '"');  // of a name in quotes, a part would have one of them
  }
  return names;
}

}  // namespace fp8lab::experiments
