// What an endpoint of active messages reads of others: headers of messages, arguments, addresses, and names of regions.
// Input: one byte says which, the rest is it.

#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "active_messages/message.h"
#include "fuzz/target.h"

namespace ch3_offload::fuzz {
namespace messages_target {

using namespace active_messages;

enum class What : std::uint8_t { kHeader, kArguments, kAddress, kName, kCount };

std::span<const unsigned char> as_message(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()};
}

void check_header(std::span<const unsigned char> message) {
  const std::optional<MessageHeader> header = read_header(message);
  if (!header) return;
  require(header->arguments_bytes == message.size() - kHeaderBytes,
          "the arguments are the rest of the message");
  unsigned char again[kHeaderBytes];
  write(*header, std::span<unsigned char, kHeaderBytes>(again, kHeaderBytes));
  require(std::memcmp(again, message.data(), kHeaderBytes) == 0, "a header is spelled in one way only");
}

/// Reads what is there, whatever its type, and writes it again.
void check_arguments(std::span<const unsigned char> bytes) {
  if (bytes.empty() || bytes.size() > CH3_OFFLOAD_AM_MOST_BYTES) return;
  ch3_offload_am_reader_t reader{bytes.data(), static_cast<std::uint32_t>(bytes.size()), 0};
  ch3_offload_am_arguments_t again;
  ch3_offload_am_begin(&again);
  int code;
  do {
    std::uint32_t small;
    std::uint64_t large;
    double real;
    const void* data;
    const char* string;
    std::size_t length;
    ch3_offload_am_name_t name;
    const std::uint32_t before = reader.at;
    if ((code = ch3_offload_am_read_u32(&reader, &small)) == CH3_OFFLOAD_AM_OK) {
      ch3_offload_am_append_u32(&again, small);
    } else if ((code = ch3_offload_am_read_u64(&reader, &large)) == CH3_OFFLOAD_AM_OK) {
      ch3_offload_am_append_u64(&again, large);
    } else if ((code = ch3_offload_am_read_double(&reader, &real)) == CH3_OFFLOAD_AM_OK) {
      ch3_offload_am_append_double(&again, real);
    } else if ((code = ch3_offload_am_read_bytes(&reader, &data, &length)) == CH3_OFFLOAD_AM_OK) {
      touch({static_cast<const std::byte*>(data), length});
      ch3_offload_am_append_bytes(&again, data, length);
    } else if ((code = ch3_offload_am_read_string(&reader, &string)) == CH3_OFFLOAD_AM_OK) {
      ch3_offload_am_append_string(&again, string);
    } else if ((code = ch3_offload_am_read_name(&reader, &name)) == CH3_OFFLOAD_AM_OK) {
      ch3_offload_am_append_name(&again, &name);
    } else {
      require(reader.at == before, "what cannot be read stays the next value");
    }
    require(reader.at <= reader.length, "values end inside the message");
  } while (code == CH3_OFFLOAD_AM_OK);
  require((code == CH3_OFFLOAD_AM_END) == (ch3_offload_am_read_end(&reader) == CH3_OFFLOAD_AM_OK),
          "the end is one for all");
  require(again.code == CH3_OFFLOAD_AM_OK && again.length == reader.at &&
              std::memcmp(again.bytes, bytes.data(), again.length) == 0,
          "values are spelled in one way only");
}

void check_address(std::span<const unsigned char> bytes) {
  ch3_offload_am_address_t address;
  if (bytes.size() < sizeof address) return;
  std::memcpy(&address, bytes.data(), sizeof address);
  const ch3_offload_am_address_t again = write(read(address));
  require(std::memcmp(&again, &address, sizeof again) == 0, "an address is spelled in one way only");
}

void check_name(std::span<const unsigned char> bytes) {
  ch3_offload_am_name_t name;
  if (bytes.size() < sizeof name) return;
  std::memcpy(&name, bytes.data(), sizeof name);
  const std::optional<RegionName> its = read(name);
  if (!its) return;
  require(its->length_bytes > 0, "a region is not empty");
  const ch3_offload_am_name_t again = write(*its);
  require(std::memcmp(&again, &name, sizeof again) == 0, "a name is spelled in one way only");
}

void run(std::span<const std::byte> bytes) {
  Input input(bytes);
  const auto what = What{input.below(static_cast<std::uint8_t>(What::kCount))};
  // A copy, so that AddressSanitizer sees where it ends.
  const std::span<const std::byte> rest = input.rest();
  const std::vector<std::byte> copy(rest.begin(), rest.end());
  switch (what) {
    case What::kHeader: return check_header(as_message(copy));
    case What::kArguments: return check_arguments(as_message(copy));
    case What::kAddress: return check_address(as_message(copy));
    case What::kName: return check_name(as_message(copy));
    case What::kCount: return;
  }
}

Seed seed(What what) { return Seed().u8(static_cast<std::uint8_t>(what)); }

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  unsigned char header[kHeaderBytes];
  write(MessageHeader{}, std::span<unsigned char, kHeaderBytes>(header, kHeaderBytes));
  all.push_back(seed(What::kHeader).bytes(std::as_bytes(std::span(header))).done());
  RegionName region;
  region.length_bytes = 1;
  const ch3_offload_am_name_t name = write(region);
  const ch3_offload_am_address_t address = write(Address{});
  ch3_offload_am_arguments_t arguments;
  ch3_offload_am_begin(&arguments);
  ch3_offload_am_append_u32(&arguments, 1);
  ch3_offload_am_append_u64(&arguments, 2);
  ch3_offload_am_append_double(&arguments, 3);
  ch3_offload_am_append_bytes(&arguments, "bytes", 5);
  ch3_offload_am_append_string(&arguments, "string");
  ch3_offload_am_append_name(&arguments, &name);
  all.push_back(
      seed(What::kArguments).bytes(std::as_bytes(std::span(arguments.bytes, arguments.length))).done());
  all.push_back(seed(What::kAddress).bytes(std::as_bytes(std::span(address.bytes))).done());
  all.push_back(seed(What::kName).bytes(std::as_bytes(std::span(name.bytes))).done());
  return all;
}

const Target kTarget("messages", run, seeds);

}  // namespace messages_target
}  // namespace ch3_offload::fuzz
