// Writes JSON to a file as it comes, escaped and with its commas. No tree is kept.
//
// The caller opens and closes brackets in order; keys go to fields of objects only. Failures of
// the file are kept until finish().

#pragma once

#include <fmt/format.h>

#include <concepts>
#include <cstdio>
#include <string_view>
#include <vector>

namespace ch3_offload {

class JsonWriter {
 public:
  /// Does not own `file`, which may be null if opening failed: nothing is written then.
  explicit JsonWriter(std::FILE* file) : file_(file) {}
  JsonWriter(const JsonWriter&) = delete;
  JsonWriter& operator=(const JsonWriter&) = delete;

  /// Opens an object or an array: as the field `key`, or, without one, as an element or the whole text.
  void begin_object(std::string_view key = {}) { open(key, '{', '}'); }
  void begin_array(std::string_view key = {}) { open(key, '[', ']'); }
  /// Closes what was opened last.
  void end();

  void field(std::string_view key, std::string_view value);
  void field(std::string_view key, const char* value) { field(key, std::string_view(value)); }
  template <std::integral Value>
  void field(std::string_view key, Value value) {
    if constexpr (std::same_as<Value, bool>) {
      raw_field(key, value ? "true" : "false");
    } else {
      raw_field(key, fmt::format_int(value).c_str());
    }
  }
  /// A time or duration, given in ns, in us with three decimals.
  void field_us(std::string_view key, std::int64_t ns);
  void field_null(std::string_view key) { raw_field(key, "null"); }
  /// An element of an array.
  void element(std::string_view value);

  /// Writes what is left, and a newline. Returns 0 or the errno of the first failure.
  int finish();

 private:
  void open(std::string_view key, char bracket, char closing);
  void separate(bool new_line);
  void raw_field(std::string_view key, std::string_view value);
  void quote(std::string_view text);
  void write_out();

  std::FILE* file_;
  int error_ = 0;
  bool first_ = true;          ///< Nothing stands before the next item inside its brackets.
  std::vector<char> closing_;  ///< Brackets that are due.
  fmt::memory_buffer buffer_;
};

}  // namespace ch3_offload
