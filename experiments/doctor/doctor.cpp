// SPDX-License-Identifier: Apache-2.0
#include "doctor/doctor.hpp"

#include <fmt/format.h>

#include <bit>
#include <span>
#include <utility>

#include "files/tensor_file.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "kit/output.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {
namespace {

/// Elements of x that are read into memory: 4 GiB as float32.
constexpr std::uint64_t most_doctor_elements = std::uint64_t{1} << 30;

/// The bytes of a file's tensor.
struct DoctorFile {
  TensorHeader header;
  std::vector<std::byte> bytes;
};

std::string name_at(const DoctorArguments& arguments, std::size_t i) {
  return i < arguments.names.size() ? arguments.names[i] : "";
}

DoctorFile bytes_in(const std::filesystem::path& path, const std::string& name, const std::string& called) {
  std::vector<std::string> names;
  if (!name.empty()) names.push_back(name);
  const std::vector<TensorHeader> headers = find_tensors(path, names);
  if (headers.size() != 1) refuse(called, ": ", headers.size(), " tensors of the file have that name; name one");
  DoctorFile file{headers.front(), {}};
  if (file.header.size > most_doctor_elements) {
    refuse(called, " has ", file.header.size, " elements, of which at most ", most_doctor_elements,
           " are read into memory: dump some rows of x, and the codes and scales of these");
  }
  if (file.header.fortran_order && file.header.shape.size() > 1) {
    refuse(called, " is stored in Fortran order: store it in C order, as the kernel has it");
  }
  file.bytes.resize(static_cast<std::size_t>(file.header.size * bytes_of(file.header.type)));
  TensorFile opened(path, file.header);
  opened.read_bytes(0, file.bytes);
  return file;
}

Tensor tensor_in(const DoctorArguments& arguments, std::vector<std::uint64_t>& shape) {
  const std::string name = name_at(arguments, 0);
  StoredTensors stored{.paths = {arguments.x}};
  if (!name.empty()) stored.names.push_back(name);
  const TensorStream stream(stored, {.takes_empty = true});
  if (stream.count() != 1) refuse("x: the file has ", stream.count(), " tensors of that name; name one");
  shape = stream.facts(0).shape;
  if (stream.facts(0).size() > most_doctor_elements) {
    refuse("x has ", stream.facts(0).size(), " elements, of which at most ", most_doctor_elements,
           " are read into memory: dump some rows of it, and the codes and scales of these");
  }
  Tensor x;
  stream.load(0, x);
  return x;
}

/// Left out of bytes where no argument tells their format.
std::optional<Format> scale_type(const DoctorArguments& arguments, const TensorHeader& header) {
  switch (header.type) {
    case ElementType::float32: return binary32;
    case ElementType::float16: return binary16;
    case ElementType::bfloat16: return bfloat16;
    case ElementType::uint8:
      if (!arguments.scale_format) return std::nullopt;
      return find_format(*arguments.scale_format).format;
    case ElementType::float64: break;
  }
  refuse("scales is of float64, which no kernel stores");
}

/// The header of a .npy file of float32.
std::string npy_of(const forensics::Probe& probe) {
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", probe.rows, probe.columns);
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  for (const float value : probe.values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int byte = 0; byte < 4; ++byte) file += static_cast<char>(bits >> (8 * byte) & 0xFF);
  }
  return file;
}

void write_probe(const std::filesystem::path& directory, const forensics::Diagnosis& diagnosis,
                 const forensics::Probe& probe) {
  std::string text = fmt::format(
      "Run probe.npy, {} x {} of float32, through the kernel. Its codes, a byte for each, then have the digest "
      "(FNV-1a,\n"
      "64 bits) of one of these hypotheses. {} of {} pairs of hypotheses differ on it.\n\n",
      probe.rows, probe.columns, probe.parted, probe.pairs);
  for (std::size_t i = 0; i < probe.digests.size(); ++i) {
    text += fmt::format("{:016X}  {}\n", probe.digests[i], describe(diagnosis.explanations[i].hypothesis));
  }
  write_files(directory, {{"probe.txt", std::move(text)}, {"probe.npy", npy_of(probe)}});
}

}  // namespace

DoctorResult run_doctor(const DoctorArguments& arguments) {
  const DefaultEnvironment environment;
  if (arguments.x.empty() || arguments.codes.empty()) refuse("x and codes must be given: two files");
  if (arguments.probe) check_writable(*arguments.probe, {"probe.txt", "probe.npy"});
  // 1. The files.
  DoctorResult result;
  const Tensor x = tensor_in(arguments, result.shape);
  if (x.type() == ElementType::float64) refuse("x is of float64, which no kernel quantizes");
  const DoctorFile codes = bytes_in(arguments.codes, name_at(arguments, 1), "codes");
  if (codes.header.type != ElementType::uint8) {
    refuse("codes is of ", name_of(codes.header.type), "; codes are bytes");
  }
  forensics::Dump dump;
  dump.codes = {reinterpret_cast<const std::uint8_t*>(codes.bytes.data()), codes.bytes.size()};
  if (arguments.format) {
    dump.format = find_format(*arguments.format).format;
  } else if (!codes.header.format.empty()) {
    dump.format = find_format(codes.header.format).format;
  }
  DoctorFile scales;
  if (arguments.scales) {
    scales = bytes_in(*arguments.scales, name_at(arguments, 2), "scales");
    dump.scales.bytes = scales.bytes;
    dump.scales.format = scale_type(arguments, scales.header);
  }
  if (arguments.tensor_scale) dump.scales.of_tensor = static_cast<float>(*arguments.tensor_scale);
  // 2. The diagnosis.
  forensics::DiagnoseOptions options{.most_shown = arguments.most_shown, .threads = arguments.threads};
  if (arguments.expected) {
    options.expected = arguments.expected->recipe;
    options.expected_name = arguments.expected->name;
  }
  if (arguments.direction) options.direction = find_direction(*arguments.direction);
  result.diagnosis = forensics::diagnose(x.view(), dump, options);
  // 3. What would tell more.
  if (!arguments.probe) return result;
  std::vector<forensics::Hypothesis> hypotheses;
  hypotheses.reserve(result.diagnosis.explanations.size());
  for (const forensics::Explanation& one : result.diagnosis.explanations) hypotheses.push_back(one.hypothesis);
  if (hypotheses.size() < 2) refuse("a probe parts at least two explanations; shown is ", arguments.most_shown);
  Format type = bfloat16;
  if (x.type() == ElementType::float32) type = binary32;
  if (x.type() == ElementType::float16) type = binary16;
  result.probe = forensics::probe(hypotheses, type);
  write_probe(*arguments.probe, result.diagnosis, *result.probe);
  return result;
}

}  // namespace fp8lab::experiments
