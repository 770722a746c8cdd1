// SPDX-License-Identifier: Apache-2.0
#include "files/weight_map.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>

#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"

namespace fp8lab::experiments {

std::map<std::string, std::string> read_weight_map(const std::filesystem::path& index) {
  const StoredFile file(index);
  constexpr std::uint64_t most = std::uint64_t{1} << 26;
  if (file.size() > most) file.fail("it has more than 2^26 bytes");
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  text.resize(file.read(0, text));
  const nlohmann::json whole = nlohmann::json::parse(text, nullptr, false);
  if (whole.is_discarded()) file.fail("it is not JSON");
  const auto map = whole.find("weight_map");
  if (map == whole.end() || !map->is_object()) file.fail("it has no weight_map, as the index of a checkpoint has");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, name] : map->items()) {
    if (!name.is_string()) file.fail("its weight_map names no file for tensor " + printable(tensor));
    const std::string& beside = files[tensor] = name.get<std::string>();
    if (beside.empty() || std::filesystem::path(beside).filename() != beside) {
      file.fail("its weight_map names " + printable(beside) + ", which is no file beside it");
    }
  }
  return files;
}

}  // namespace fp8lab::experiments
