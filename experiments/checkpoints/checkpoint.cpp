// SPDX-License-Identifier: Apache-2.0
#include "checkpoints/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "checkpoints/containers.hpp"
#include "files/stored_file.hpp"
#include "files/tensor_file.hpp"
#include "files/tensor_header.hpp"
#include "files/weight_map.hpp"
#include "fp8lab/formats/interruption.hpp"

namespace fp8lab::experiments {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view npy_begin = "\x93NUMPY";
constexpr std::string_view zip_begin = "PK\3\4";

// These ask without an exception: what cannot be asked is opened then, and the message is that of all files.
bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}
bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

/// A JSON file of at most 2^26 bytes; null where there is none. Throws std::runtime_error.
nlohmann::json read_json(const fs::path& path) {
  if (!is_there(path)) return {};
  const StoredFile file(path);
  constexpr std::uint64_t most = std::uint64_t{1} << 26;
  if (file.size() > most) file.fail("it has more than 2^26 bytes");
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  text.resize(file.read(0, text));
  nlohmann::json whole = nlohmann::json::parse(text, nullptr, false);
  if (whole.is_discarded() || !whole.is_object()) file.fail("it is not an object of JSON");
  return whole;
}

/// The files of a directory whose names end so, in natural order.
std::vector<fs::path> files_ending(const fs::path& directory, std::string_view end) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().filename().native().ends_with(end) && !is_folder(entry->path())) found.push_back(entry->path());
  }
  if (error) throw std::runtime_error(cannot_read(in_one_line(directory.native()), error.message()));
  std::ranges::sort(found, [](const fs::path& a, const fs::path& b) { return comes_before(a.native(), b.native()); });
  return found;
}

/// The index of a directory: of several the one of that name.
std::optional<fs::path> find_index(const fs::path& directory) {
  fs::path usual = directory / "model.safetensors.index.json";
  if (is_there(usual)) return usual;
  const std::vector<fs::path> found = files_ending(directory, ".safetensors.index.json");
  if (found.empty()) return std::nullopt;
  return found.front();
}

std::string count_of(std::size_t count, std::string_view noun) {
  return std::to_string(count).append(" ").append(noun).append(count == 1 ? "" : "s");
}

/// The bytes that a tensor's shape and dtype need; none where they are not known.
std::optional<std::uint64_t> bytes_needed(const StoredTensor& tensor) {
  const auto gguf = std::ranges::find(gguf_types(), tensor.dtype, &GgufType::name);
  const std::optional<std::uint64_t> bits = bits_of_dtype(tensor.dtype);
  if (!bits || (gguf != gguf_types().end() && gguf->elements > 1)) return std::nullopt;
  const std::uint64_t elements = tensor.elements();
  if (elements > std::numeric_limits<std::uint64_t>::max() / *bits) return std::nullopt;
  return (elements * *bits + 7) / 8;
}

}  // namespace

std::uint64_t StoredTensor::elements() const { return elements_of(shape, ElementType::uint8).value_or(0); }

std::span<const Named<FileFault>> named_values(FileFault /*any*/) {
  static constexpr std::array faults{
      Named{"missing shard", FileFault::missing_shard}, Named{"unreadable", FileFault::unreadable},
      Named{"truncated", FileFault::truncated},         Named{"overlap", FileFault::overlap},
      Named{"wrong size", FileFault::wrong_size},       Named{"name twice", FileFault::name_twice},
      Named{"not in file", FileFault::not_in_file},     Named{"not in index", FileFault::not_in_index},
      Named{"total_size", FileFault::total_size},       Named{"equal shards", FileFault::equal_shards},
      Named{"bad config", FileFault::bad_config}};
  static_assert(is_in_order(faults));
  return faults;
}

std::optional<std::uint64_t> bits_of_dtype(std::string_view dtype) {
  struct Bits {
    std::string_view dtype;
    std::uint64_t bits;
  };
  constexpr std::array known{Bits{"F4", 4},      Bits{"F6_E2M3", 6},     Bits{"F6_E3M2", 6},     Bits{"F8_E4M3", 8},
                             Bits{"F8_E5M2", 8}, Bits{"F8_E4M3FNUZ", 8}, Bits{"F8_E5M2FNUZ", 8}, Bits{"F8_E8M0", 8},
                             Bits{"BOOL", 8},    Bits{"U8", 8},          Bits{"I8", 8},          Bits{"F16", 16},
                             Bits{"BF16", 16},   Bits{"I16", 16},        Bits{"U16", 16},        Bits{"V2", 16},
                             Bits{"F32", 32},    Bits{"I32", 32},        Bits{"U32", 32},        Bits{"F64", 64},
                             Bits{"I64", 64},    Bits{"U64", 64},        Bits{"C64", 64}};
  const auto* const found = std::ranges::find(known, dtype, &Bits::dtype);
  if (found == known.end()) return std::nullopt;
  return found->bits;
}

Container read_container(const std::shared_ptr<const StoredFile>& file, Bytes& bytes, const std::string& stem) {
  // 1. The formats that have a magic number.
  const std::string begin = bytes.text(0, std::min<std::uint64_t>(bytes.size(), 9));
  if (begin.starts_with("GGUF")) return read_gguf(bytes);
  if (begin.starts_with(zip_begin)) return read_npz(file, bytes);
  if (begin.starts_with(npy_begin)) {
    Container container;
    container.tensors.push_back(npy_tensor(bytes, stem));
    return container;
  }
  if (begin.size() < 9 || begin.back() != '{') {
    if (begin.starts_with('\x80')) bytes.fail("it is a pickled file, which is not read: to read it is to run it");
    bytes.fail("it is none of .safetensors, .gguf, .npy and .npz, and too short or of another begin");
  }

  // 2. .safetensors.
  StatedHeader header = read_stated_header(bytes);
  Container container;
  for (const auto& [key, words] : header.metadata) container.metadata.emplace(key, words);
  for (StatedTensor& stated : header.tensors) {
    container.tensors.push_back({.name = std::move(stated.name),
                                 .dtype = std::move(stated.dtype),
                                 .shape = std::move(stated.shape),
                                 .offset = stated.begin,
                                 .bytes = stated.end - std::min(stated.begin, stated.end)});
  }
  return container;
}

struct Checkpoint::Content {
  fs::path path;
  std::vector<fs::path> files;
  std::vector<std::uint64_t> sizes;          // of files; 0 where there is none
  std::vector<std::vector<Member>> members;  // of archives, by file and tensor
  std::vector<StoredTensor> tensors;
  std::unordered_map<std::string_view, std::size_t> by_name;
  std::unordered_map<std::string_view, Member> member_of;
  std::vector<FileProblem> problems;
  bool has_index = false;
  nlohmann::json config, hf_quant_config, metadata = nlohmann::json::object();
  const nlohmann::json* quantization = nullptr;
  nlohmann::json none;

  // Files that were read last stay open, few at a time: a process may open about a thousand.
  std::mutex mutex;
  std::deque<std::pair<std::size_t, std::shared_ptr<const StoredFile>>> open;
  std::map<std::string, std::unique_ptr<MemberReader>, std::less<>> readers;

  /// The tensor of that name which is read in place of all others, as the index or the order of files has it.
  struct Chosen {
    std::size_t file, tensor;
  };
  using ByFile = std::vector<std::vector<StoredTensor>>;

  void add(FileFault fault, const fs::path& file, std::vector<std::string> names, std::string words) {
    problems.push_back({fault, file.filename().native(), std::move(names), std::move(words)});
  }

  /// Sets `files`; gives the tensors that an index sends to each file.
  std::map<std::string, std::string> find_files() {
    std::map<std::string, std::string> weight_map;
    std::optional<fs::path> index;
    if (is_folder(path)) {
      index = find_index(path);
      if (!index) {
        for (const std::string_view end : {".safetensors", ".gguf", ".npz", ".npy"}) {
          files = files_ending(path, end);
          if (!files.empty()) return weight_map;
        }
        const bool pickled = !files_ending(path, ".bin").empty() || !files_ending(path, ".pt").empty();
        throw std::runtime_error(
            cannot_read(in_one_line(path.native()),
                        pickled ? "it has pickled files alone, which are not read: to read them is to run them"
                                : "the directory has no .safetensors, .gguf, .npz or .npy file"));
      }
    } else if (path.filename().native().ends_with(".index.json")) {
      index = path;
    } else {
      files.push_back(path);
      return weight_map;
    }
    has_index = true;
    weight_map = read_weight_map(*index);
    for (const auto& [tensor, file] : weight_map) {
      const fs::path beside = index->parent_path() / file;
      if (std::ranges::find(files, beside) == files.end()) files.push_back(beside);
    }
    std::ranges::sort(files, [](const fs::path& a, const fs::path& b) { return comes_before(a.native(), b.native()); });
    check_total_size(*index);
    return weight_map;
  }

  std::optional<std::uint64_t> stated_total;
  void check_total_size(const fs::path& index) {
    const nlohmann::json whole = read_json(index);
    const auto about = whole.find("metadata");
    if (about == whole.end() || !about->is_object()) return;
    const auto total = about->find("total_size");
    if (total != about->end() && total->is_number_unsigned()) stated_total = total->get<std::uint64_t>();
  }

  ByFile read_headers(const std::map<std::string, std::string>& weight_map) {
    ByFile by_file(files.size());
    std::optional<std::string> first_reason;
    std::size_t read = 0;
    sizes.assign(files.size(), 0);
    members.resize(files.size());
    for (std::size_t f = 0; f < files.size(); ++f) {
      checkpoint();
      std::vector<std::string> lost;
      for (const auto& [tensor, file] : weight_map) {
        if (files[f].filename() == file) lost.push_back(tensor);
      }
      if (has_index && !is_there(files[f])) {
        std::string words = "the index sends " + count_of(lost.size(), "tensor") + " to this file, which is not there";
        if (!first_reason) first_reason = cannot_read(in_one_line(files[f].native()), "there is no such file");
        add(FileFault::missing_shard, files[f], std::move(lost), std::move(words));
        continue;
      }
      try {
        const auto file = std::make_shared<const StoredFile>(files[f]);
        FileStream stream(files[f]);
        Bytes bytes(stream, file->name());
        Container container = read_container(file, bytes, files[f].stem().native());
        sizes[f] = file->size();
        for (StoredTensor& tensor : container.tensors) tensor.file = f;
        by_file[f] = std::move(container.tensors);
        members[f] = std::move(container.members);
        for (const auto& [key, value] : container.metadata.items()) metadata.emplace(key, std::move(value));
        ++read;
      } catch (const std::runtime_error& error) {
        if (!first_reason) first_reason = error.what();
        add(FileFault::unreadable, files[f], std::move(lost), error.what());
      }
    }
    if (read == 0) throw std::runtime_error(first_reason.value_or("there is no file"));
    return by_file;
  }

  /// Whether a tensor lies in its file as it states.
  [[nodiscard]] bool lies_within(const StoredTensor& tensor) const {
    if (!members[tensor.file].empty()) return true;  // the archive's directory was compared with the file
    return tensor.offset <= sizes[tensor.file] && tensor.bytes <= sizes[tensor.file] - tensor.offset;
  }

  void check_extents(std::size_t f, const std::vector<StoredTensor>& stated) {
    // 1. What the file is too short for.
    std::vector<std::string> lost;
    std::uint64_t end = 0;
    for (const StoredTensor& tensor : stated) {
      if (!lies_within(tensor)) lost.push_back(tensor.name);
      end = std::max(end,
                     tensor.offset + std::min(tensor.bytes, std::numeric_limits<std::uint64_t>::max() - tensor.offset));
    }
    if (!lost.empty()) {
      std::string words = "the file has " + std::to_string(sizes[f]) + " bytes, its header describes " +
                          std::to_string(end) + ": " + count_of(lost.size(), "tensor") + " cannot be read";
      add(FileFault::truncated, files[f], std::move(lost), std::move(words));
    }
    // 2. What two tensors share.
    if (!members[f].empty()) return;
    std::vector<const StoredTensor*> sorted;
    for (const StoredTensor& tensor : stated) {
      if (tensor.bytes != 0) sorted.push_back(&tensor);
    }
    std::ranges::stable_sort(sorted, {}, [](const StoredTensor* tensor) { return tensor->offset; });
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      const StoredTensor& before = *sorted[i - 1];
      const StoredTensor& after = *sorted[i];
      if (after.offset - before.offset >= before.bytes) continue;
      add(FileFault::overlap, files[f], {before.name, after.name},
          "its header gives the last " +
              std::to_string(std::min(before.bytes - (after.offset - before.offset), after.bytes)) +
              " bytes of the first tensor to the second, too");
    }
    // 3. What is not as long as its shape says.
    for (const StoredTensor& tensor : stated) {
      const std::optional<std::uint64_t> needed = bytes_needed(tensor);
      if (!needed || *needed == tensor.bytes) continue;
      add(FileFault::wrong_size, files[f], {tensor.name},
          "the tensor has " + std::to_string(tensor.bytes) + " bytes; its shape and dtype need " +
              std::to_string(*needed));
    }
  }

  /// The place in the file that the index states; the first where it has none there.
  [[nodiscard]] Chosen place_in(const std::string& file, const std::vector<Chosen>& all) const {
    Chosen place = all.front();
    for (const Chosen& other : all) {
      if (files[other.file].filename() == file) place = other;
    }
    return place;
  }

  /// Tells of the names that the index has in a file which has them not.
  void tell_absent(const std::map<std::string_view, std::vector<Chosen>>& places,
                   const std::map<std::string, std::string>& weight_map) {
    std::map<std::string, std::vector<std::string>> absent;
    for (const auto& [name, file] : weight_map) {
      const auto f = static_cast<std::size_t>(
          std::ranges::find_if(files, [&](const fs::path& path_of) { return path_of.filename() == file; }) -
          files.begin());
      if (sizes[f] == 0) continue;  // told of the whole file
      const auto found = places.find(name);
      if (found == places.end() || std::ranges::find(found->second, f, &Chosen::file) == found->second.end()) {
        absent[file].push_back(name);
      }
    }
    for (auto& [file, names] : absent) {
      std::string words = "the index sends " + count_of(names.size(), "tensor") + " to this file, which has " +
                          (names.size() == 1 ? "none of this name" : "none of these names");
      add(FileFault::not_in_file, file, std::move(names), std::move(words));
    }
  }

  void choose(ByFile& by_file, const std::map<std::string, std::string>& weight_map) {
    // 1. All places of each name.
    std::map<std::string_view, std::vector<Chosen>> places;
    for (std::size_t f = 0; f < by_file.size(); ++f) {
      for (std::size_t i = 0; i < by_file[f].size(); ++i) places[by_file[f][i].name].push_back({f, i});
    }
    // 2. One of them, and what is wrong with the others.
    std::map<std::pair<std::size_t, std::size_t>, std::vector<std::string>> twice;
    std::map<std::size_t, std::vector<std::string>> not_in_index;
    std::vector<Chosen> chosen;
    for (const auto& [name, all] : places) {
      Chosen place = all.front();
      const auto stated = weight_map.find(std::string(name));
      if (stated != weight_map.end()) {
        place = place_in(stated->second, all);
      } else if (has_index) {
        not_in_index[place.file].emplace_back(name);
      }
      for (std::size_t i = 1; i < all.size(); ++i) twice[{all[0].file, all[i].file}].emplace_back(name);
      chosen.push_back(place);
    }
    tell_absent(places, weight_map);
    for (auto& [pair, names] : twice) {
      std::string words = pair.first == pair.second ? count_of(names.size(), "name") + " of its header come twice"
                                                    : count_of(names.size(), "tensor") + " of this file are in " +
                                                          in_one_line(files[pair.first].filename().native()) + ", too";
      add(FileFault::name_twice, files[pair.second], std::move(names), std::move(words));
    }
    for (auto& [f, names] : not_in_index) {
      std::string words = "the index does not name " + count_of(names.size(), "tensor") + " of this file";
      add(FileFault::not_in_index, files[f], std::move(names), std::move(words));
    }
    // 3. In order.
    for (const Chosen& place : chosen) {
      if (!members[place.file].empty())
        member_names.emplace_back(by_file[place.file][place.tensor].name, members[place.file][place.tensor]);
      tensors.push_back(std::move(by_file[place.file][place.tensor]));
    }
    std::ranges::sort(tensors, [](const StoredTensor& a, const StoredTensor& b) {
      if (comes_before(a.name, b.name) || comes_before(b.name, a.name)) return comes_before(a.name, b.name);
      return a.name < b.name;
    });
    for (std::size_t i = 0; i < tensors.size(); ++i) by_name.emplace(tensors[i].name, i);
    for (const auto& [name, member] : member_names) member_of.emplace(name, member);
  }
  std::vector<std::pair<std::string, Member>> member_names;

  void check_sums(const ByFile& by_file) {
    // 1. The index's total.
    if (stated_total) {
      std::uint64_t total = 0;
      bool all = true;
      for (std::size_t f = 0; f < files.size(); ++f) {
        all = all && sizes[f] != 0;
        for (const StoredTensor& tensor : by_file[f]) total += tensor.bytes;
      }
      if (all && total != *stated_total) {
        add(FileFault::total_size, path, {},
            "the index states a total_size of " + std::to_string(*stated_total) + " bytes, the tensors have " +
                std::to_string(total));
      }
    }
    // 2. Files that are the same: only those of like length and with the same names can be.
    for (std::size_t b = 1; b < files.size(); ++b) {
      for (std::size_t a = 0; a < b; ++a) {
        if (sizes[a] == 0 || sizes[a] != sizes[b] || by_file[a].size() != by_file[b].size()) continue;
        const bool same_names =
            std::ranges::equal(by_file[a], by_file[b], {}, &StoredTensor::name, &StoredTensor::name);
        if (same_names && are_equal(files[a], files[b])) {
          std::vector<std::string> names;
          for (const StoredTensor& tensor : by_file[b]) names.push_back(tensor.name);
          add(FileFault::equal_shards, files[b], std::move(names),
              "the file is a copy of " + in_one_line(files[a].filename().native()) + ", byte by byte");
        }
      }
    }
  }

  static bool are_equal(const fs::path& a, const fs::path& b) {
    const StoredFile x(a);
    const StoredFile y(b);
    std::vector<char> one(std::size_t{1} << 20);
    std::vector<char> two(one.size());
    for (std::uint64_t at = 0;; at += one.size()) {
      checkpoint();
      const std::size_t count = x.read(at, one);
      if (count != y.read(at, two) ||
          !std::equal(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(count), two.begin())) {
        return false;
      }
      if (count < one.size()) return true;
    }
  }

  void read_configs() {
    const fs::path directory = is_folder(path) ? path : path.parent_path();
    for (const auto& [name, into] :
         {std::pair{"config.json", &config}, std::pair{"hf_quant_config.json", &hf_quant_config}}) {
      try {
        *into = read_json(directory / name);
      } catch (const std::runtime_error& error) {
        add(FileFault::bad_config, name, {}, error.what());
      }
    }
    for (const nlohmann::json* where :
         {std::as_const(config).is_object() ? &std::as_const(config) : nullptr, text_config()}) {
      for (const char* key : {"quantization_config", "compression_config"}) {
        if (where == nullptr || quantization != nullptr) continue;
        const auto found = where->find(key);
        if (found != where->end() && found->is_object()) quantization = &*found;
      }
    }
  }
  [[nodiscard]] const nlohmann::json* text_config() const {
    if (!config.is_object()) return nullptr;
    const auto found = config.find("text_config");
    return found != config.end() && found->is_object() ? &*found : nullptr;
  }

  /// Under the mutex.
  std::shared_ptr<const StoredFile> file(std::size_t f) {
    const auto found = std::ranges::find(open, f, [](const auto& entry) { return entry.first; });
    if (found != open.end()) return found->second;
    constexpr std::size_t most = 16;
    if (open.size() == most) open.pop_front();
    open.emplace_back(f, std::make_shared<const StoredFile>(files[f]));
    return open.back().second;
  }
};

Checkpoint::Checkpoint(const fs::path& path) : content_(std::make_unique<Content>()) {
  Content& c = *content_;
  c.path = path;
  const std::map<std::string, std::string> weight_map = c.find_files();
  Content::ByFile by_file = c.read_headers(weight_map);
  for (std::size_t f = 0; f < c.files.size(); ++f) c.check_extents(f, by_file[f]);
  c.check_sums(by_file);
  c.choose(by_file, weight_map);
  c.read_configs();
}

Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;

const fs::path& Checkpoint::path() const { return content_->path; }
const std::vector<fs::path>& Checkpoint::files() const { return content_->files; }
const std::vector<StoredTensor>& Checkpoint::tensors() const { return content_->tensors; }
const std::vector<FileProblem>& Checkpoint::problems() const { return content_->problems; }
bool Checkpoint::has_index() const { return content_->has_index; }
const nlohmann::json& Checkpoint::config() const { return content_->config; }
const nlohmann::json& Checkpoint::hf_quant_config() const { return content_->hf_quant_config; }
const nlohmann::json& Checkpoint::metadata() const { return content_->metadata; }
const nlohmann::json& Checkpoint::quantization() const {
  return content_->quantization != nullptr ? *content_->quantization : content_->none;
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto found = content_->by_name.find(name);
  return found == content_->by_name.end() ? nullptr : &content_->tensors[found->second];
}

bool Checkpoint::has_data(const StoredTensor& tensor) const { return content_->lies_within(tensor); }

void Checkpoint::read(const StoredTensor& tensor, std::uint64_t first, std::span<std::byte> out) const {
  if (first > tensor.bytes || out.size() > tensor.bytes - first) {
    throw std::invalid_argument("tensor " + printable(tensor.name) + " has " + std::to_string(tensor.bytes) +
                                " bytes, not " + std::to_string(out.size()) + " from " + std::to_string(first) + " on");
  }
  const auto member = content_->member_of.find(tensor.name);
  std::shared_ptr<const StoredFile> file;
  {
    const std::scoped_lock lock(content_->mutex);
    file = content_->file(tensor.file);
    if (member != content_->member_of.end()) {
      // The reader of an archive goes on from where it was, and keeps its file open.
      std::unique_ptr<MemberReader>& reader = content_->readers[tensor.name];
      if (!reader) reader = std::make_unique<MemberReader>(file, member->second);
      reader->read(tensor.offset + first, out);
      return;
    }
  }
  const std::span<char> text(reinterpret_cast<char*>(out.data()), out.size());
  if (file->read(tensor.offset + first, text) != out.size()) {
    file->fail("it ends within tensor " + printable(tensor.name));
  }
}

std::vector<std::byte> Checkpoint::read_whole(const StoredTensor& tensor, std::uint64_t most) const {
  if (tensor.bytes > most) {
    throw std::invalid_argument("tensor " + printable(tensor.name) + " has " + std::to_string(tensor.bytes) +
                                " bytes; at most " + std::to_string(most) + " are read at once");
  }
  if (!has_data(tensor)) {
    throw std::runtime_error(
        cannot_read(in_one_line(files()[tensor.file].native()), "it ends within tensor " + printable(tensor.name)));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes));
  read(tensor, 0, bytes);
  return bytes;
}

}  // namespace fp8lab::experiments
