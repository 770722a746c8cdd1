// SPDX-License-Identifier: Apache-2.0
#include "files/recorded_groups.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <istream>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <streambuf>
#include <utility>

namespace fp8lab::experiments {
namespace {

// These limits bound the memory that a small gzipped file can take when it is unpacked.
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 26;
constexpr std::size_t most_groups = 1 << 12;
constexpr std::size_t row_limit = 1 << 20;
constexpr std::size_t deepest = 64;

/// A file as it is, or unpacked where it is gzipped, piece by piece.
class Unpacked final : public std::streambuf {
 public:
  explicit Unpacked(const StoredFile& file) {
    const int own = ::fcntl(file.descriptor(), F_DUPFD_CLOEXEC, 0);
    if (own < 0) throw std::runtime_error(std::strerror(errno));
    file_.reset(gzdopen(own, "rb"));
    if (file_) return;
    ::close(own);
    throw std::bad_alloc();
  }

 protected:
  int_type underflow() override {
    const int count = gzread(file_.get(), room_.data(), static_cast<unsigned>(room_.size()));
    if (!std::cmp_equal(count, room_.size())) check();
    total_ += static_cast<std::uint64_t>(std::max(count, 0));
    if (total_ > most_bytes) throw std::runtime_error("it has more than 2^26 bytes of JSON, the most that is read");
    setg(room_.data(), room_.data(), room_.data() + std::max(count, 0));
    return count > 0 ? traits_type::to_int_type(*gptr()) : traits_type::eof();
  }

 private:
  void check() const {
    int error = Z_OK;
    std::string reason = gzerror(file_.get(), &error);
    reason.erase(0, reason.find(": ") + 2);  // its name for the file
    if (error == Z_MEM_ERROR) throw std::bad_alloc();
    if (error == Z_ERRNO) throw std::runtime_error(std::strerror(errno));
    if (error == Z_BUF_ERROR) throw std::runtime_error("it ends too early");
    if (error != Z_OK) throw std::runtime_error("it is not a complete gzip file (" + reason + ")");
  }

  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  std::unique_ptr<gzFile_s, Close> file_;
  std::uint64_t total_ = 0;
  std::array<char, std::size_t{1} << 16> room_;
};

/// The JSON is not what was asked for.
struct WrongForm : std::exception {};

/// Follows the parser through {"source": "...", "groups": [{"model": "...", "rows": [["38", ...], ...]}, ...], ...}. A
/// group is handed on when it ends; what has another key is skipped, and nothing of it kept.
class RowsListener final : public nlohmann::json::json_sax_t {
 public:
  /// take(list, group) gets every group.
  using Take = std::function<void(std::string_view, const Group&)>;
  RowsListener(const Form& form, Take take) : form_(form), take_(std::move(take)) {}

  std::optional<std::string> source;
  std::vector<std::string_view> lists;  ///< that were there

  bool start_object(std::size_t /*unknown*/) override {
    return begin(Place::start, Place::file, Place::list, Place::group);
  }
  bool start_array(std::size_t /*unknown*/) override {
    if (place_ == Place::rows_expected) {
      if (group_.has_rows) throw WrongForm();
      group_.has_rows = true;
    }
    if (place_ == Place::rows) {
      if (++row_count_ > row_limit) throw std::runtime_error("it has more than 2^20 rows, the most that are read");
      group_.rows.begin_row();
    }
    if (place_ == Place::rows) {
      place_ = Place::row;
      return true;
    }
    return begin(Place::list_expected, Place::list, Place::rows_expected, Place::rows);
  }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(std::string& text) override {
    if (skipped_ > 0) return true;
    const auto is = [&](std::string_view name) { return name == text; };
    if (place_ == Place::file) {
      const auto list = std::ranges::find_if(form_.lists, is);
      place_ = Place::other;
      if (text == "source") place_ = Place::source;
      if (list == form_.lists.end()) return true;
      if (std::ranges::find(lists, *list) != lists.end()) throw WrongForm();
      lists.push_back(*list);
      place_ = Place::list_expected;
    } else {
      place_ = text == form_.rows ? Place::rows_expected : Place::other_of_group;
      if (std::ranges::any_of(form_.texts, is)) {
        place_ = Place::text;
        key_ = text;
      }
    }
    return true;
  }
  bool string(std::string& text) override {
    if (place_ == Place::row) {
      group_.rows.add(text);
    } else if (place_ == Place::source) {
      if (source) throw WrongForm();
      source = std::move(text);
      place_ = Place::file;
    } else if (place_ == Place::text) {
      if (!group_.texts.emplace(key_, std::move(text)).second) throw WrongForm();
      place_ = Place::group;
    } else {
      return value();
    }
    return true;
  }
  bool null() override { return value(); }
  bool boolean(bool /*value*/) override { return value(); }
  bool number_integer(std::int64_t /*value*/) override { return value(); }
  bool number_unsigned(std::uint64_t /*value*/) override { return value(); }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return value(); }
  bool binary(nlohmann::json::binary_t& /*bytes*/) override { return value(); }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    throw std::runtime_error("it is not JSON, or a part of it is missing");
  }

 private:
  /// The place that the parser is at: within the file, a list of groups, a group, its rows, one of them; or the value
  /// of a key.
  enum class Place : std::uint8_t {
    start,
    file,
    source,
    other,
    list_expected,
    list,
    group,
    text,
    other_of_group,
    rows_expected,
    rows,
    row
  };

  /// An object or array: from one place to the next, from another to its next, or into what is skipped.
  bool begin(Place from, Place to, Place other_from, Place other_to) {
    if (skipped_ > 0 || place_ == Place::other || place_ == Place::other_of_group) {
      if (++skipped_ > deepest) throw WrongForm();
    } else if (place_ == from) {
      place_ = to;
    } else if (place_ == other_from) {
      place_ = other_to;
      if (other_to == Place::group && ++group_count_ > most_groups) {
        throw std::runtime_error("it has more than 2^12 groups, the most that are read");
      }
    } else {
      throw WrongForm();
    }
    return true;
  }
  bool end() {
    if (skipped_ > 0) {
      if (--skipped_ == 0) value();
      return true;
    }
    switch (place_) {
      case Place::row: place_ = Place::rows; break;
      case Place::rows: place_ = Place::group; break;
      case Place::list: place_ = Place::file; break;
      case Place::group:
        if (!group_.has_rows || group_.texts.size() != form_.texts.size()) throw WrongForm();
        take_(lists.back(), std::exchange(group_, {}));
        place_ = Place::list;
        break;
      case Place::start:
      case Place::file:
      case Place::source:
      case Place::other:
      case Place::list_expected:
      case Place::text:
      case Place::other_of_group:
      case Place::rows_expected: break;  // of the file, there is nothing behind
    }
    return true;
  }
  /// A value that is not of the form, which is right where it is skipped.
  bool value() {
    if (skipped_ > 0) return true;
    if (place_ != Place::other && place_ != Place::other_of_group) throw WrongForm();
    place_ = place_ == Place::other ? Place::file : Place::group;
    return true;
  }

  const Form& form_;
  Take take_;
  Place place_ = Place::start;
  std::string key_;
  Group group_;
  std::size_t skipped_ = 0;  // objects and arrays that are open within a value that is skipped
  std::size_t group_count_ = 0;
  std::size_t row_count_ = 0;
};

}  // namespace

std::string read_groups(const StoredFile& file, const Form& form,
                        const std::function<void(std::string_view, const Group&)>& take) {
  try {
    Unpacked unpacked(file);
    std::istream text(&unpacked);
    RowsListener listener(form, take);
    nlohmann::json::sax_parse(text, &listener);
    if (!listener.source || listener.lists.size() != form.lists.size()) throw WrongForm();
    return *listener.source;
  } catch (const WrongForm&) {
    file.fail("its JSON does not have the form of " + std::string(form.kind));
  } catch (const std::runtime_error& error) {
    file.fail(error.what());
  } catch (const std::invalid_argument& error) {
    file.fail(error.what());
  }
}

}  // namespace fp8lab::experiments
