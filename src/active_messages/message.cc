#include "active_messages/message.h"

#include "active_messages/little_endian.h"

namespace ch3_offload::active_messages {
namespace {

constexpr std::uint32_t kMessageVersion = 1;
constexpr std::uint32_t kNameVersion = 1;

/// Numbers one after the other.
class Writer {
 public:
  explicit Writer(unsigned char* to) noexcept : to_(to) {}
  template <std::unsigned_integral T>
  Writer& operator<<(T number) noexcept {
    store_little(to_, number);
    to_ += sizeof number;
    return *this;
  }

 private:
  unsigned char* to_;
};

class Reader {
 public:
  explicit Reader(const unsigned char* from) noexcept : from_(from) {}
  template <std::unsigned_integral T>
  Reader& operator>>(T& number) noexcept {
    number = load_little<T>(from_);
    from_ += sizeof number;
    return *this;
  }

 private:
  const unsigned char* from_;
};

}  // namespace

Address read(const ch3_offload_am_address_t& address) noexcept {
  Address its;
  Reader(address.bytes) >> its.nid >> its.pid >> its.requests_table >> its.replies_table >> its.key;
  return its;
}

ch3_offload_am_address_t write(const Address& address) noexcept {
  ch3_offload_am_address_t written;
  Writer(written.bytes) << address.nid << address.pid << address.requests_table << address.replies_table
                        << address.key;
  return written;
}

std::optional<RegionName> read(const ch3_offload_am_name_t& name) noexcept {
  RegionName its;
  std::uint32_t version = 0;
  Reader(name.bytes) >> version >> its.file >> its.nid >> its.pid >> its.table >> its.os_process >> its.key >>
      its.length_bytes;
  if (version != kNameVersion || its.length_bytes == 0) return {};
  return its;
}

ch3_offload_am_name_t write(const RegionName& name) noexcept {
  ch3_offload_am_name_t written;
  Writer(written.bytes) << kNameVersion << name.file << name.nid << name.pid << name.table << name.os_process
                        << name.key << name.length_bytes;
  return written;
}

void write(const MessageHeader& header, std::span<unsigned char, kHeaderBytes> to) noexcept {
  Writer(to.data()) << kMessageVersion << header.arguments_bytes << header.function << header.sequence
                    << header.sender_key << header.requests_table << header.replies_table;
}

std::optional<MessageHeader> read_header(std::span<const unsigned char> message) noexcept {
  if (message.size() < kHeaderBytes) return {};
  MessageHeader header;
  std::uint32_t version = 0;
  Reader(message.data()) >> version >> header.arguments_bytes >> header.function >> header.sequence >>
      header.sender_key >> header.requests_table >> header.replies_table;
  if (version != kMessageVersion || header.arguments_bytes != message.size() - kHeaderBytes) return {};
  return header;
}

std::uint64_t number_of(std::string_view name) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : name) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace ch3_offload::active_messages
