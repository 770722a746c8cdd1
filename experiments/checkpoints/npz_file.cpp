// SPDX-License-Identifier: Apache-2.0
// .npz, an archive of .npy files: https://numpy.org/doc/stable/reference/generated/numpy.savez.html, and ZIP's
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT (sections 4.3 and 4.5.3)
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <istream>
#include <new>
#include <stdexcept>
#include <streambuf>
#include <utility>

#include "checkpoints/containers.hpp"

namespace fp8lab::experiments {
namespace {

/// A member as a stream that can seek, for the reader of .npy headers.
class MemberStream final : public std::istream {
 public:
  MemberStream(std::shared_ptr<const StoredFile> file, const Member& member)
      : std::istream(nullptr), buffer_(std::move(file), member) {
    rdbuf(&buffer_);
    exceptions(std::ios_base::badbit);
  }

 private:
  class Buffer final : public std::streambuf {
   public:
    Buffer(std::shared_ptr<const StoredFile> file, const Member& member)
        : reader_(std::move(file), member), size_(member.size) {}

   protected:
    int_type underflow() override {
      const std::uint64_t count = std::min<std::uint64_t>(room_.size(), size_ - next_);
      if (count == 0) return traits_type::eof();
      reader_.read(next_, std::as_writable_bytes(std::span(room_).first(static_cast<std::size_t>(count))));
      next_ += count;
      setg(room_.data(), room_.data(), room_.data() + count);
      return traits_type::to_int_type(*gptr());
    }
    pos_type seekoff(off_type offset, std::ios_base::seekdir from, std::ios_base::openmode which) override {
      const auto here = static_cast<off_type>(next_) - (egptr() - gptr());
      off_type base = 0;
      if (from == std::ios_base::cur) base = here;
      if (from == std::ios_base::end) base = static_cast<off_type>(size_);
      return seekpos(base + offset, which);
    }
    pos_type seekpos(pos_type position, std::ios_base::openmode /*which*/) override {
      if (position < 0 || std::cmp_greater(static_cast<off_type>(position), size_)) return {off_type{-1}};
      next_ = static_cast<std::uint64_t>(static_cast<off_type>(position));
      setg(nullptr, nullptr, nullptr);
      return position;
    }

   private:
    MemberReader reader_;
    std::uint64_t size_;
    std::uint64_t next_ = 0;
    std::array<char, 4096> room_;
  };
  Buffer buffer_;
};

/// The end of the archive: where its directory lies. It is the last thing but a comment of at most 2^16 bytes.
struct Directory {
  std::uint64_t entries = 0, size = 0, at = 0;
};
Directory find_directory(Bytes& bytes) {
  constexpr std::uint64_t record = 22;
  const std::uint64_t searched = std::min<std::uint64_t>(bytes.size(), record + 65535);
  const std::uint64_t begin = bytes.size() - searched;
  const std::string tail = bytes.text(begin, searched);
  const std::size_t found = tail.rfind(std::string("PK\5\6", 4));
  if (found == std::string::npos || tail.size() - found < record) bytes.fail("it is a ZIP archive without an end");
  const std::uint64_t end = begin + found;
  Directory directory{bytes.number(end + 10, 2), bytes.number(end + 12, 4), bytes.number(end + 16, 4)};
  constexpr std::uint64_t locator = 20;
  if (end >= locator && bytes.text(end - locator, 4) == std::string("PK\6\7", 4)) {  // the record of large archives
    const std::uint64_t large = bytes.number(end - locator + 8, 8);
    directory = {bytes.number(large + 32, 8), bytes.number(large + 40, 8), bytes.number(large + 48, 8)};
  }
  if (directory.at > bytes.size() || directory.size > bytes.size() - directory.at ||
      directory.entries > directory.size / 46) {
    bytes.fail("it is a ZIP archive that ends within its directory");
  }
  return directory;
}

/// The sizes that do not fit in 32 bits stand in an extra field, in this order.
void widen(Bytes& bytes, std::uint64_t extra, std::uint64_t length, std::array<std::uint64_t*, 3> numbers) {
  constexpr std::uint64_t too_large = 0xFFFFFFFF;
  for (std::uint64_t at = extra; at + 4 <= extra + length;) {
    const std::uint64_t kind = bytes.number(at, 2);
    const std::uint64_t size = bytes.number(at + 2, 2);
    std::uint64_t next = at + 4;
    if (kind == 1) {
      for (std::uint64_t* number : numbers) {
        if (*number != too_large || next + 8 > at + 4 + size) continue;
        *number = bytes.number(next, 8);
        next += 8;
      }
    }
    at += 4 + size;
  }
}

/// The spelling of .safetensors of what a .npy file holds.
std::string spelled(const TensorHeader& header) {
  if (header.dtype == "V2") return "BF16";  // what NumPy makes of ml_dtypes' bfloat16
  if (!header.dtype.empty()) return header.dtype;
  switch (header.type) {
    case ElementType::float32: return "F32";
    case ElementType::float64: return "F64";
    case ElementType::float16: return "F16";
    case ElementType::bfloat16: return "BF16";
    case ElementType::uint8: return header.format == "e5m2" ? "F8_E5M2" : "U8";
  }
  return "";
}

}  // namespace

struct MemberReader::State {
  std::shared_ptr<const StoredFile> file;
  Member member = {};
  z_stream stream = {};
  bool open = false;
  std::uint64_t taken = 0;  ///< packed bytes
  std::uint64_t given = 0;  ///< unpacked bytes
  std::array<char, std::size_t{1} << 16> packed;

  void restart() {
    if (open) inflateEnd(&stream);
    stream = {};
    open = inflateInit2(&stream, -MAX_WBITS) == Z_OK;  // without zlib's own header
    if (!open) throw std::bad_alloc();
    taken = given = 0;
  }
  void inflate_to(std::span<std::byte> out) {
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    while (stream.avail_out != 0) {
      if (stream.avail_in == 0) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(packed.size(), member.packed - taken));
        if (file->read(member.at + taken, std::span(packed).first(count)) != count || count == 0) {
          file->fail("a member of the archive ends too early");
        }
        taken += count;
        stream.next_in = reinterpret_cast<Bytef*>(packed.data());
        stream.avail_in = static_cast<uInt>(count);
      }
      const int status = inflate(&stream, Z_NO_FLUSH);
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status == Z_STREAM_END && stream.avail_out != 0) file->fail("a member of the archive ends too early");
      if (status != Z_OK && status != Z_STREAM_END) file->fail("a member of the archive is not deflated data");
    }
    given += out.size();
  }
};

MemberReader::MemberReader(std::shared_ptr<const StoredFile> file, const Member& member)
    : state_(std::make_unique<State>()) {
  state_->file = std::move(file);
  state_->member = member;
}
MemberReader::~MemberReader() {
  if (state_->open) inflateEnd(&state_->stream);
}

void MemberReader::read(std::uint64_t at, std::span<std::byte> out) {
  State& s = *state_;
  if (at > s.member.size || out.size() > s.member.size - at) s.file->fail("a member of the archive ends too early");
  if (!s.member.deflated) {
    const std::span<char> text(reinterpret_cast<char*>(out.data()), out.size());
    if (s.file->read(s.member.at + at, text) != out.size()) s.file->fail("a member of the archive ends too early");
    return;
  }
  if (!s.open || at < s.given) s.restart();
  std::array<std::byte, 4096> unused;
  while (s.given < at) {
    s.inflate_to(
        std::span(unused).first(static_cast<std::size_t>(std::min<std::uint64_t>(unused.size(), at - s.given))));
  }
  constexpr std::size_t piece = std::size_t{1} << 30;  // what zlib's counters hold
  for (; !out.empty(); out = out.subspan(std::min(piece, out.size())))
    s.inflate_to(out.first(std::min(piece, out.size())));
}

StoredTensor npy_tensor(Bytes& bytes, std::string name) {
  TensorHeader header = read_npy_header(bytes, OtherDtypes::as_words);
  return {.name = std::move(name),
          .dtype = spelled(header),
          .shape = std::move(header.shape),
          .offset = header.offset,
          .bytes = header.size * bytes_of(header.type),
          .fortran_order = header.fortran_order};
}

Container read_npz(const std::shared_ptr<const StoredFile>& file, Bytes& bytes) {
  const Directory directory = find_directory(bytes);
  Container container;
  std::uint64_t at = directory.at;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    if (bytes.text(at, 4) != std::string("PK\1\2", 4)) bytes.fail("an entry of its directory is none");
    const std::uint64_t flags = bytes.number(at + 8, 2);
    const std::uint64_t method = bytes.number(at + 10, 2);
    Member member{.packed = bytes.number(at + 20, 4), .size = bytes.number(at + 24, 4), .deflated = method == 8};
    const std::uint64_t name_length = bytes.number(at + 28, 2);
    const std::uint64_t extra_length = bytes.number(at + 30, 2);
    const std::uint64_t comment_length = bytes.number(at + 32, 2);
    std::uint64_t local = bytes.number(at + 42, 4);
    std::string name = bytes.text(at + 46, name_length);
    widen(bytes, at + 46 + name_length, extra_length, {&member.size, &member.packed, &local});
    at += 46 + name_length + extra_length + comment_length;
    if ((flags & 1) != 0 || (method != 0 && method != 8)) {
      bytes.fail("its member " + printable(name) + " is encrypted or packed by another method than deflate");
    }
    if (local > bytes.size() || bytes.text(local, 4) != std::string("PK\3\4", 4)) {
      bytes.fail("its member " + printable(name) + " is not where the directory says");
    }
    member.at = local + 30 + bytes.number(local + 26, 2) + bytes.number(local + 28, 2);
    if (member.at > bytes.size() || member.packed > bytes.size() - member.at) {
      bytes.fail("its member " + printable(name) + " ends behind the file");
    }
    if (!name.ends_with(".npy")) bytes.fail("its member " + printable(name) + " is no .npy file");
    MemberStream stream(file, member);
    Bytes content(stream, file->name());
    name.resize(name.size() - 4);
    container.tensors.push_back(npy_tensor(content, std::move(name)));
    container.members.push_back(member);
  }
  return container;
}

}  // namespace fp8lab::experiments
