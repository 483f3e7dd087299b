#include "json_writer.h"

#include <cassert>
#include <cerrno>
#include <iterator>

namespace ch3_offload {
namespace {

constexpr std::size_t kWriteBytes = std::size_t{1} << 20;

}  // namespace

void JsonWriter::separate(bool new_line) {
  if (!first_) buffer_.push_back(',');
  if (new_line && !closing_.empty()) buffer_.push_back('\n');
  first_ = false;
}

void JsonWriter::open(std::string_view key, char bracket, char closing) {
  separate(key.empty());
  if (!key.empty()) {
    quote(key);
    buffer_.push_back(':');
  }
  buffer_.push_back(bracket);
  closing_.push_back(closing);
  first_ = true;
}

void JsonWriter::end() {
  assert(!closing_.empty());
  buffer_.push_back(closing_.back());
  closing_.pop_back();
  first_ = false;
  if (buffer_.size() >= kWriteBytes) write_out();
}

void JsonWriter::field(std::string_view key, std::string_view value) {
  separate(false);
  quote(key);
  buffer_.push_back(':');
  quote(value);
}

void JsonWriter::field_us(std::string_view key, std::int64_t ns) {
  separate(false);
  quote(key);
  fmt::format_to(std::back_inserter(buffer_), ":{:.3f}", static_cast<double>(ns) / 1000);
}

void JsonWriter::raw_field(std::string_view key, std::string_view value) {
  separate(false);
  quote(key);
  buffer_.push_back(':');
  buffer_.append(value);
}

void JsonWriter::element(std::string_view value) {
  separate(true);
  quote(value);
}

void JsonWriter::quote(std::string_view text) {
  buffer_.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') buffer_.push_back('\\');
    if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(buffer_), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      buffer_.push_back(c);
    }
  }
  buffer_.push_back('"');
}

void JsonWriter::write_out() {
  if (file_ != nullptr && error_ == 0 &&
      std::fwrite(buffer_.data(), 1, buffer_.size(), file_) != buffer_.size()) {
    error_ = errno;
  }
  buffer_.clear();
}

int JsonWriter::finish() {
  assert(closing_.empty());
  buffer_.push_back('\n');
  write_out();
  if (file_ != nullptr && std::fflush(file_) != 0 && error_ == 0) error_ = errno;
  return error_;
}

}  // namespace ch3_offload
