#include "nic/nicd_protocol.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "rdma/shm/unix_socket.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

/// SipHash-2-4 (Aumasson, Bernstein, 2012) of one word: the name tells nothing of the secret, its key.
std::uint64_t siphash(const JobSecret& key, std::uint64_t word) noexcept {
  std::array<std::uint64_t, 2> k;
  std::memcpy(k.data(), key.data(), sizeof k);
  std::uint64_t v0 = 0x736f6d6570736575u ^ k[0], v1 = 0x646f72616e646f6du ^ k[1];
  std::uint64_t v2 = 0x6c7967656e657261u ^ k[0], v3 = 0x7465646279746573u ^ k[1];
  const auto rounds = [&](int count) {
    for (; count > 0; --count) {
      v0 += v1, v2 += v3;
      v1 = std::rotl(v1, 13) ^ v0, v3 = std::rotl(v3, 16) ^ v2;
      v0 = std::rotl(v0, 32);
      v2 += v1, v0 += v3;
      v1 = std::rotl(v1, 17) ^ v2, v3 = std::rotl(v3, 21) ^ v0;
      v2 = std::rotl(v2, 32);
    }
  };
  for (const std::uint64_t block : {word, std::uint64_t{sizeof word} << 56}) {
    v3 ^= block;
    rounds(2);
    v0 ^= block;
  }
  v2 ^= 0xff;
  rounds(4);
  return v0 ^ v1 ^ v2 ^ v3;
}

Result<FileDescriptor> make_packet_socket() {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return system_error("a socket for the network processor", errno);
  return socket;
}

}  // namespace

std::string nicd_name(uid_t uid) { return "ch3-offload-nicd." + std::to_string(uid); }

std::string nicd_name(uid_t uid, const JobSecret& secret) {
  std::array<char, 32> hash;
  std::snprintf(hash.data(), hash.size(), ".%016llx", static_cast<unsigned long long>(siphash(secret, uid)));
  return nicd_name(uid) + hash.data();
}

Result<FileDescriptor> listen_as_nicd(std::string_view name) {
  Result<FileDescriptor> socket = make_packet_socket();
  if (!socket.ok()) return socket;
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  if (::bind(socket.value().get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE)
      return Error{Status::kPeerFailed, errno,
                   "a network processor listens as " + std::string(name) + " already"};
    return system_error("listening as " + std::string(name), errno);
  }
  if (::listen(socket.value().get(), SOMAXCONN) != 0)
    return system_error("listening as " + std::string(name), errno);
  return socket;
}

Result<FileDescriptor> connect_to_nicd(std::string_view name) {
  Result<FileDescriptor> socket = make_packet_socket();
  if (!socket.ok()) return socket;
  sockaddr_un address;
  const socklen_t length = abstract_address(name, address);
  if (::connect(socket.value().get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EAGAIN)
      return Error{Status::kAgain, errno,
                   "whoever listens as " + std::string(name) + " accepts no connections"};
    return Error{Status::kUnreachable, errno, "nobody listens as " + std::string(name)};
  }
  if (const PeerCredentials peer = peer_credentials(socket.value()); peer.uid != ::geteuid())
    return Error{Status::kUnsupported, 0,
                 "user " + std::to_string(peer.uid) + " listens as " + std::string(name) +
                     ", the name of this user's network processor"};
  return socket;
}

void set_text(std::span<char> array, std::string_view text) noexcept {
  const std::size_t length = std::min(text.size(), array.size() - 1);
  std::memcpy(array.data(), text.data(), length);
  std::memset(array.data() + length, 0, array.size() - length);
}

std::string_view text_of(std::span<const char> array) noexcept {
  return {array.data(),
          static_cast<std::size_t>(std::find(array.begin(), array.end(), '\0') - array.begin())};
}

}  // namespace ch3_offload
