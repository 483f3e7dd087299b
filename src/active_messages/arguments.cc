// ch3_offload_am.h: arguments. A value is a byte that names its type, then its bytes; what has a length has
// that first, in 4 bytes. A string's null byte is part of it.

#include <cstdint>
#include <cstring>

#include "active_messages/ch3_offload_am.h"
#include "active_messages/little_endian.h"

using namespace ch3_offload::active_messages;

namespace {

enum class Type : unsigned char { kU32 = 1, kU64, kDouble, kBytes, kString, kName };

constexpr std::size_t kTypeBytes = 1;
constexpr std::size_t kLengthBytes = 4;

/// Makes room for a value of that type. Returns null if there is none: the arguments cannot be sent then.
unsigned char* append(ch3_offload_am_arguments_t* arguments, Type type, std::size_t length) noexcept {
  if (arguments->code != CH3_OFFLOAD_AM_OK) return nullptr;
  const std::size_t left = sizeof arguments->bytes - arguments->length;
  if (left < kTypeBytes || left - kTypeBytes < length) {
    arguments->code = CH3_OFFLOAD_AM_END;
    return nullptr;
  }
  unsigned char* const value = arguments->bytes + arguments->length;
  *value = static_cast<unsigned char>(type);
  arguments->length += static_cast<std::uint32_t>(kTypeBytes + length);
  return value + kTypeBytes;
}

template <std::unsigned_integral T>
int append_number(ch3_offload_am_arguments_t* arguments, Type type, T number) noexcept {
  if (arguments == nullptr) return CH3_OFFLOAD_AM_INVALID;
  unsigned char* const value = append(arguments, type, sizeof number);
  if (value == nullptr) return arguments->code;
  store_little(value, number);
  return CH3_OFFLOAD_AM_OK;
}

int append_sized(ch3_offload_am_arguments_t* arguments, Type type, const void* bytes,
                 std::size_t length) noexcept {
  if (length > CH3_OFFLOAD_AM_MOST_BYTES) {
    if (arguments->code == CH3_OFFLOAD_AM_OK) arguments->code = CH3_OFFLOAD_AM_END;
    return arguments->code;
  }
  unsigned char* const value = append(arguments, type, kLengthBytes + length);
  if (value == nullptr) return arguments->code;
  store_little(value, static_cast<std::uint32_t>(length));
  if (length > 0) std::memcpy(value + kLengthBytes, bytes, length);
  return CH3_OFFLOAD_AM_OK;
}

/// Finds the next value, of that type and length. `code`: why there is none.
const unsigned char* next(const ch3_offload_am_reader_t* reader, Type type, std::size_t length,
                          int& code) noexcept {
  const std::size_t left = reader->length - reader->at;
  code = left == 0 ? CH3_OFFLOAD_AM_END : CH3_OFFLOAD_AM_DIFFERENT;
  if (left < kTypeBytes || left - kTypeBytes < length) return nullptr;
  const unsigned char* const value = reader->bytes + reader->at;
  if (*value != static_cast<unsigned char>(type)) return nullptr;
  code = CH3_OFFLOAD_AM_OK;
  return value + kTypeBytes;
}

void take(ch3_offload_am_reader_t* reader, std::size_t length) noexcept {
  reader->at += static_cast<std::uint32_t>(kTypeBytes + length);
}

template <std::unsigned_integral T>
int read_number(ch3_offload_am_reader_t* reader, Type type, T* number) noexcept {
  if (reader == nullptr || number == nullptr) return CH3_OFFLOAD_AM_INVALID;
  int code;
  const unsigned char* const value = next(reader, type, sizeof *number, code);
  if (value == nullptr) return code;
  *number = load_little<T>(value);
  take(reader, sizeof *number);
  return CH3_OFFLOAD_AM_OK;
}

/// Finds the next value, whose length comes first. Does not take it.
const unsigned char* next_sized(const ch3_offload_am_reader_t* reader, Type type, std::size_t& length,
                                int& code) noexcept {
  const unsigned char* const value = next(reader, type, kLengthBytes, code);
  if (value == nullptr) return nullptr;
  length = load_little<std::uint32_t>(value);
  if (next(reader, type, kLengthBytes + length, code) == nullptr) return nullptr;
  return value + kLengthBytes;
}

}  // namespace

void ch3_offload_am_begin(ch3_offload_am_arguments_t* arguments) {
  if (arguments == nullptr) return;
  arguments->length = 0;
  arguments->code = CH3_OFFLOAD_AM_OK;
}

int ch3_offload_am_append_u32(ch3_offload_am_arguments_t* arguments, uint32_t value) {
  return append_number(arguments, Type::kU32, value);
}

int ch3_offload_am_append_u64(ch3_offload_am_arguments_t* arguments, uint64_t value) {
  return append_number(arguments, Type::kU64, value);
}

int ch3_offload_am_append_double(ch3_offload_am_arguments_t* arguments, double value) {
  return append_number(arguments, Type::kDouble, std::bit_cast<std::uint64_t>(value));
}

int ch3_offload_am_append_bytes(ch3_offload_am_arguments_t* arguments, const void* bytes, size_t length) {
  if (arguments == nullptr || (bytes == nullptr && length > 0)) return CH3_OFFLOAD_AM_INVALID;
  return append_sized(arguments, Type::kBytes, bytes, length);
}

int ch3_offload_am_append_string(ch3_offload_am_arguments_t* arguments, const char* string) {
  if (arguments == nullptr || string == nullptr) return CH3_OFFLOAD_AM_INVALID;
  return append_sized(arguments, Type::kString, string, std::strlen(string) + 1);
}

int ch3_offload_am_append_name(ch3_offload_am_arguments_t* arguments, const ch3_offload_am_name_t* name) {
  if (arguments == nullptr || name == nullptr) return CH3_OFFLOAD_AM_INVALID;
  unsigned char* const value = append(arguments, Type::kName, sizeof *name);
  if (value == nullptr) return arguments->code;
  std::memcpy(value, name, sizeof *name);
  return CH3_OFFLOAD_AM_OK;
}

int ch3_offload_am_read_u32(ch3_offload_am_reader_t* reader, uint32_t* value) {
  return read_number(reader, Type::kU32, value);
}

int ch3_offload_am_read_u64(ch3_offload_am_reader_t* reader, uint64_t* value) {
  return read_number(reader, Type::kU64, value);
}

int ch3_offload_am_read_double(ch3_offload_am_reader_t* reader, double* value) {
  if (value == nullptr) return CH3_OFFLOAD_AM_INVALID;
  std::uint64_t bits = 0;
  const int code = read_number(reader, Type::kDouble, &bits);
  if (code == CH3_OFFLOAD_AM_OK) *value = std::bit_cast<double>(bits);
  return code;
}

int ch3_offload_am_read_bytes(ch3_offload_am_reader_t* reader, const void** bytes, size_t* length) {
  if (reader == nullptr || bytes == nullptr || length == nullptr) return CH3_OFFLOAD_AM_INVALID;
  int code;
  std::size_t found = 0;
  const unsigned char* const value = next_sized(reader, Type::kBytes, found, code);
  if (value == nullptr) return code;
  *bytes = value;
  *length = found;
  take(reader, kLengthBytes + found);
  return CH3_OFFLOAD_AM_OK;
}

int ch3_offload_am_read_string(ch3_offload_am_reader_t* reader, const char** string) {
  if (reader == nullptr || string == nullptr) return CH3_OFFLOAD_AM_INVALID;
  int code;
  std::size_t length = 0;
  const unsigned char* const value = next_sized(reader, Type::kString, length, code);
  if (value == nullptr) return code;
  // Its only null byte is the last one.
  if (length == 0 || std::memchr(value, 0, length) != value + length - 1) return CH3_OFFLOAD_AM_DIFFERENT;
  *string = reinterpret_cast<const char*>(value);
  take(reader, kLengthBytes + length);
  return CH3_OFFLOAD_AM_OK;
}

int ch3_offload_am_read_name(ch3_offload_am_reader_t* reader, ch3_offload_am_name_t* name) {
  if (reader == nullptr || name == nullptr) return CH3_OFFLOAD_AM_INVALID;
  int code;
  const unsigned char* const value = next(reader, Type::kName, sizeof *name, code);
  if (value == nullptr) return code;
  std::memcpy(name, value, sizeof *name);
  take(reader, sizeof *name);
  return CH3_OFFLOAD_AM_OK;
}

int ch3_offload_am_read_end(const ch3_offload_am_reader_t* reader) {
  if (reader == nullptr) return CH3_OFFLOAD_AM_INVALID;
  return reader->at == reader->length ? CH3_OFFLOAD_AM_OK : CH3_OFFLOAD_AM_DIFFERENT;
}
