// SPDX-License-Identifier: Apache-2.0
#include "gpu/ledger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "gpu/libraries.hpp"
#include "gpu/primer_record.hpp"

namespace fp8lab::experiments {
namespace {

// 1. Writing.

std::string hex_of(std::uint64_t digest) { return fmt::format("{:016x}", digest); }
Json hex_of(const std::vector<std::uint64_t>& digests) {
  Json list = Json::array();
  for (const std::uint64_t digest : digests) list.push_back(hex_of(digest));
  return list;
}

template <typename Entries, typename ToJson>
Json list_of(const Entries& entries, const ToJson& to_json) {
  Json list = Json::array();
  for (const auto& entry : entries) list.push_back(to_json(entry));
  return list;
}

Json json_of_cast(const CastRecord& record) {
  return {{"sweep", record.sweep},
          {"first", record.first},
          {"inputs_per_chunk", record.inputs_per_chunk},
          {"digests", hex_of(record.digests)}};
}
Json json_of_dots(const DotRecord& record) {
  return {{"instruction", record.instruction},
          {"model", record.model},
          {"draw", record.draw},
          {"seed", record.seed},
          {"first", record.first},
          {"tiles_per_chunk", record.tiles_per_chunk},
          {"digests", hex_of(record.digests)}};
}
Json json_of_primer(const PrimerRecord& record) {
  return {{"tensor", record.tensor},
          {"model", record.model},
          {"seed", record.seed},
          {"multiprocessors", record.multiprocessors},
          {"rows", record.rows},
          {"in_features", record.in_features},
          {"out_features", record.out_features},
          {"digest", hex_of(record.digest)}};
}
Json json_of_product(const ProductRecord& record) {
  Json composition(nullptr);
  if (const auto& found = record.composition) {
    composition = {{"promote_k", found->promote_k}, {"split_k", found->split_k}, {"descending", found->descending}};
  }
  return {{"library", record.library},
          {"fast_accumulation", record.fast},
          {"model", record.model},
          {"rows", record.rows},
          {"columns", record.columns},
          {"depth", record.depth},
          {"seed", record.seed},
          {"composition", std::move(composition)},
          {"digest", hex_of(record.digest)}};
}
Json json_of_function(const FunctionRecord& record) {
  return {{"variant", record.variant},
          {"function", record.function},
          {"units", record.units ? Json(std::string(name_of(*record.units))) : Json(nullptr)},
          {"seed", record.seed ? Json(*record.seed) : Json(nullptr)},
          {"chunk", record.chunk},
          {"digests", hex_of(record.digests)}};
}
Json json_of_words(const WordsRecord& record) {
  return {{"function", record.function},
          {"first", record.first},
          {"count", record.count},
          {"file", record.file},
          {"digest", hex_of(record.digest)}};
}
Json json_of_call(const CallRecord& record) {
  return {{"part", record.part},
          {"name", record.name},
          {"library", record.library},
          {"count", record.count},
          {"digest", hex_of(record.digest)}};
}
Json json_of_finding(const Finding& finding) {
  return {{"part", finding.part},
          {"name", finding.name},
          {"question", finding.question},
          {"answer", finding.answer},
          {"agrees", finding.agrees ? Json(*finding.agrees) : Json(nullptr)},
          {"words", Json(finding.words)}};
}
Json json_of_difference(const Difference& difference) {
  return {{"record", difference.record},
          {"index", difference.index},
          {"operands", difference.operands},
          {"got", difference.got},
          {"expected", difference.expected}};
}
Json json_of_speed(const Speed& speed) {
  return {{"name", speed.name},
          {"what", speed.what},
          {"amount", speed.amount},
          {"unit", speed.unit},
          {"milliseconds", speed.milliseconds},
          {"bound_milliseconds", speed.bound_milliseconds}};
}
Json json_of_part(const PartNote& part) {
  return {{"part", part.part},
          {"task", part.task},
          {"status", part.status},
          {"note", part.note},
          {"seconds", part.seconds}};
}

// 2. Reading.

using Value = nlohmann::json;

/// The values of a list, each made by `from`.
template <typename From>
auto read_list(const Value& object, const char* key, const From& from) {
  std::vector<decltype(from(object))> list;
  for (const Value& value : object.at(key).get_ref<const Value::array_t&>()) list.push_back(from(value));
  return list;
}

std::string text_of(const Value& object, const char* key) { return object.at(key).get<std::string>(); }

std::uint64_t count_of(const Value& object, const char* key) {
  const Value& value = object.at(key);
  if (!value.is_number_unsigned()) refuse(key, " must be a whole number from 0, not ", printable(value.dump()));
  return value.get<std::uint64_t>();
}

std::uint64_t digest_of(const Value& value) {
  const auto text = value.get<std::string>();
  std::uint64_t digest = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), digest, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) {
    refuse("a digest has 16 hexadecimal digits, which ", printable(text), " has not");
  }
  return digest;
}

/// A number of a chunk's elements that is not zero.
std::uint64_t chunk_of(const Value& object, const char* key) {
  const std::uint64_t count = count_of(object, key);
  if (count == 0) refuse(key, " must not be 0");
  return count;
}

CastRecord cast_of(const Value& object) {
  CastRecord record{text_of(object, "sweep"), count_of(object, "first"), chunk_of(object, "inputs_per_chunk"),
                    read_list(object, "digests", digest_of)};
  const auto& sweeps = gpu::cast_sweeps();
  const auto found = std::ranges::find(sweeps, record.sweep, &gpu::CastSweep::name);
  if (found == sweeps.end()) refuse("unknown sweep ", printable(record.sweep));
  const std::uint64_t chunks = found->inputs() / record.inputs_per_chunk;
  const std::uint64_t before = record.first / record.inputs_per_chunk;
  if (found->inputs() % record.inputs_per_chunk != 0 || record.first % record.inputs_per_chunk != 0 ||
      before > chunks || record.digests.size() > chunks - before) {
    refuse(record.sweep, " has not so many chunks of ", record.inputs_per_chunk, " inputs from ", record.first, " on");
  }
  return record;
}

DotRecord dots_of(const Value& object) {
  DotRecord record{text_of(object, "instruction"),
                   text_of(object, "model"),
                   text_of(object, "draw"),
                   count_of(object, "seed"),
                   count_of(object, "first"),
                   chunk_of(object, "tiles_per_chunk"),
                   read_list(object, "digests", digest_of)};
  const auto& all = gpu::instructions();
  if (std::ranges::find(all, record.instruction, &gpu::Instruction::name) == all.end()) {
    refuse("unknown instruction ", printable(record.instruction));
  }
  (void)find_model(record.model);
  (void)find_value<gpu::Draw>("draw", record.draw);
  return record;
}

/// The arguments that a record is of are checked where it is computed again.
PrimerRecord primer_of(const Value& object) {
  PrimerRecord record{.tensor = text_of(object, "tensor"),
                      .model = text_of(object, "model"),
                      .seed = count_of(object, "seed"),
                      .multiprocessors = object.at("multiprocessors").get<int>(),
                      .rows = count_of(object, "rows"),
                      .in_features = count_of(object, "in_features"),
                      .out_features = count_of(object, "out_features"),
                      .digest = digest_of(object.at("digest"))};
  check_primer_record(record);
  return record;
}
ProductRecord product_of(const Value& object) {
  ProductRecord record{.library = text_of(object, "library"),
                       .fast = object.at("fast_accumulation").get<bool>(),
                       .model = text_of(object, "model"),
                       .rows = count_of(object, "rows"),
                       .columns = count_of(object, "columns"),
                       .depth = count_of(object, "depth"),
                       .seed = count_of(object, "seed"),
                       .digest = digest_of(object.at("digest"))};
  if (const Value& found = object.at("composition"); !found.is_null()) {
    record.composition = {found.at("promote_k").get<int>(), count_of(found, "split_k"),
                          found.at("descending").get<bool>()};
  }
  check_product_record(record);
  return record;
}
FunctionRecord function_record_of(const Value& object) {
  FunctionRecord record{.variant = text_of(object, "variant"),
                        .function = text_of(object, "function"),
                        .chunk = chunk_of(object, "chunk"),
                        .digests = read_list(object, "digests", digest_of)};
  const auto variant = find_value<gpu::FunctionVariant>("variant", in_one_line(record.variant));
  const gpu::RecordedFunction& facts =
      gpu::recorded_functions()[gpu::function_number(variant, in_one_line(record.function))];
  if (const Value& units = object.at("units"); !units.is_null()) {
    record.units = find_value<SpecialUnits>("units", in_one_line(units.get<std::string>()));
  }
  if (!object.at("seed").is_null()) record.seed = count_of(object, "seed");
  if (record.seed.has_value() != facts.has_pairs()) {
    refuse(record.function, facts.has_pairs() ? " needs the seed of its pairs" : " has no pairs, and so no seed");
  }
  const std::uint64_t most = facts.has_pairs() ? std::uint64_t{1} << 40 : facts.inputs();
  if (record.chunk > most || record.digests.size() > most / record.chunk) {
    refuse(record.function, " has not so many chunks of ", record.chunk, " inputs");
  }
  return record;
}
/// Throws where a ledger says that fp8lab knows functions of a chip or of a CUDA that it does not know.
void check_units_of(const Ledger& ledger) {
  const gpu::RecordedDevice& device = ledger.device;
  for (const FunctionRecord& record : ledger.functions) {
    if (record.units != SpecialUnits::hopper || device.is_host_team) continue;
    if (device.capability != 90) {
      refuse("units are hopper, which are not those of compute capability ", device.capability / 10, ".",
             device.capability % 10);
    }
    if (record.variant == "units" || device.runtime == "13.0") continue;
    refuse("functions of CUDA ", printable(device.runtime), " are not known; known: 13.0");
  }
}
WordsRecord words_record_of(const Value& object) {
  WordsRecord record{.function = text_of(object, "function"),
                     .file = text_of(object, "file"),
                     .first = count_of(object, "first"),
                     .count = chunk_of(object, "count"),
                     .digest = digest_of(object.at("digest"))};
  (void)gpu::function_number(gpu::FunctionVariant::units, in_one_line(record.function));
  return record;
}
CallRecord call_record_of(const Value& object) {
  return {text_of(object, "part"), text_of(object, "name"), text_of(object, "library"), count_of(object, "count"),
          digest_of(object.at("digest"))};
}
Finding finding_of(const Value& object) {
  const Value& agrees = object.at("agrees");
  return {text_of(object, "part"),
          text_of(object, "name"),
          text_of(object, "question"),
          text_of(object, "answer"),
          agrees.is_null() ? std::nullopt : std::optional(agrees.get<bool>()),
          read_list(object, "words", [](const Value& value) { return value.get<std::string>(); })};
}
Difference difference_of(const Value& object) {
  return {text_of(object, "record"), count_of(object, "index"), text_of(object, "operands"), text_of(object, "got"),
          text_of(object, "expected")};
}
Speed speed_of(const Value& object) {
  return {text_of(object, "name"),
          text_of(object, "what"),
          object.at("amount").get<double>(),
          text_of(object, "unit"),
          object.at("milliseconds").get<double>(),
          object.at("bound_milliseconds").get<double>()};
}
PartNote part_of(const Value& object) {
  return {text_of(object, "part"), text_of(object, "task"), text_of(object, "status"), text_of(object, "note"),
          object.at("seconds").get<double>()};
}

gpu::RecordedDevice device_of(const Value& object) {
  gpu::RecordedDevice device{.name = text_of(object, "name"),
                             .capability = static_cast<int>(count_of(object, "compute_capability")),
                             .multiprocessors = static_cast<int>(count_of(object, "multiprocessors")),
                             .driver = text_of(object, "driver"),
                             .runtime = text_of(object, "cuda"),
                             .memory = count_of(object, "memory")};
  device.is_host_team = device.name == "host team";
  return device;
}

/// Throws where this version of fp8lab does not read it.
void check_head(const Value& root) {
  if (count_of(root, "ledger") != ledger_schema) {
    refuse("it is a ledger of schema ", count_of(root, "ledger"), ", and this fp8lab reads ", ledger_schema);
  }
  const Value& generator = root.at("generator");
  if (text_of(generator, "name") != ledger_generator || count_of(generator, "version") != gpu::generator_version) {
    refuse("its operands were drawn by ", printable(text_of(generator, "name")), " ", count_of(generator, "version"),
           ", and this fp8lab has ", ledger_generator, " ", gpu::generator_version);
  }
}

/// The values of a list that ledgers of earlier releases do not have.
template <typename From>
auto read_newer_list(const Value& root, const char* key, const From& from) {
  return root.contains(key) ? read_list(root, key, from) : std::vector<decltype(from(root))>();
}

Ledger ledger_of(const Value& root) {
  check_head(root);
  Ledger ledger{.device = device_of(root.at("device")),
                .version = text_of(root.at("fp8lab"), "version"),
                .commit = text_of(root.at("fp8lab"), "commit"),
                .date = text_of(root, "date"),
                .generator = static_cast<int>(count_of(root.at("generator"), "version")),
                .casts = read_list(root, "casts", cast_of),
                .dots = read_list(root, "dots", dots_of),
                .primer = read_list(root, "primer", primer_of),
                .products = read_list(root, "products", product_of),
                .functions = read_newer_list(root, "functions", function_record_of),
                .words = read_newer_list(root, "words", words_record_of),
                .calls = read_newer_list(root, "calls", call_record_of),
                .findings = read_list(root, "findings", finding_of),
                .differences = read_list(root, "differences", difference_of),
                .speeds = read_list(root, "speeds", speed_of),
                .parts = read_list(root, "parts", part_of)};
  check_units_of(ledger);
  return ledger;
}

template <typename T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

void Ledger::merge(Ledger other) {
  if (device.name.empty()) device = other.device;
  append(casts, other.casts);
  append(dots, other.dots);
  append(primer, other.primer);
  append(products, other.products);
  append(functions, other.functions);
  append(words, other.words);
  append(calls, other.calls);
  append(findings, other.findings);
  append(differences, other.differences);
  append(speeds, other.speeds);
  append(parts, other.parts);
}

Json json_of(const Ledger& ledger) {
  const gpu::RecordedDevice& device = ledger.device;
  return {{"ledger", ledger_schema},
          {"date", ledger.date},
          {"device",
           {{"name", device.name},
            {"compute_capability", device.capability},
            {"multiprocessors", device.multiprocessors},
            {"memory", device.memory},
            {"driver", device.driver},
            {"cuda", device.runtime}}},
          {"fp8lab", {{"version", ledger.version}, {"commit", ledger.commit}}},
          {"generator", {{"name", ledger_generator}, {"version", ledger.generator}}},
          {"casts", list_of(ledger.casts, json_of_cast)},
          {"dots", list_of(ledger.dots, json_of_dots)},
          {"primer", list_of(ledger.primer, json_of_primer)},
          {"products", list_of(ledger.products, json_of_product)},
          {"functions", list_of(ledger.functions, json_of_function)},
          {"words", list_of(ledger.words, json_of_words)},
          {"calls", list_of(ledger.calls, json_of_call)},
          {"findings", list_of(ledger.findings, json_of_finding)},
          {"differences", list_of(ledger.differences, json_of_difference)},
          {"speeds", list_of(ledger.speeds, json_of_speed)},
          {"parts", list_of(ledger.parts, json_of_part)}};
}

Ledger parse_ledger(const std::string& text) {
  const Value root = Value::parse(text, nullptr, false);
  if (root.is_discarded()) refuse("it is not JSON, or a part of it is missing");
  try {
    return ledger_of(root);
  } catch (const nlohmann::json::exception&) {
    refuse("its JSON does not have the form of a ledger: a key is missing in it, or a value has another type");
  }
}

Ledger read_ledger(const std::filesystem::path& path) {
  constexpr std::uint64_t most = std::uint64_t{1} << 26;
  const StoredFile file(path);
  if (file.size() > most) file.fail("it is larger than 64 MiB, which no ledger is");
  std::string text(file.size(), '\0');
  text.resize(file.read(0, text));
  try {
    return parse_ledger(text);
  } catch (const std::invalid_argument& error) {
    file.fail(error.what());
  }
}

}  // namespace fp8lab::experiments
