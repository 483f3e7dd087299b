#include "nic/user_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "rdma/file_descriptor.h"
#include "rdma/introduction/keyed_hash.h"
#include "rdma/system_error.h"

namespace ch3_offload {
namespace {

// Each use of the file's bytes has a key of its own.
constexpr std::string_view kProofs = "ch3:offload key of introductions 1";
constexpr std::string_view kProviders = "ch3:offload key of providers 1";

Error refusal(const std::string& path, const std::string& why) {
  return {Status::kDeviceFailed, 0, "the key file " + path + " " + why};
}

}  // namespace

Result<UserKey> UserKey::read(const std::string& path) {
  if (!have_keyed_hash())
    return Error{
        Status::kUnsupported, 0,
        "the key file " + path +
            " cannot be used: this library was built without libsodium, so only processes of one node "
            "can meet"};
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file.valid()) return system_error("opening the key file " + path, errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return system_error("stat of the key file " + path, errno);
  if (!S_ISREG(status.st_mode)) return refusal(path, "is no regular file");
  if (status.st_uid != ::geteuid()) return refusal(path, "belongs to another user: make one of your own");
  if ((status.st_mode & 077) != 0)
    return refusal(path, "can be read or written by others: chmod 600 " + path);
  std::array<std::byte, kMostBytes + 1> bytes;
  const ssize_t got = read_all(file, bytes);
  if (got < 0) return system_error("reading the key file " + path, errno);
  const auto length = static_cast<std::size_t>(got);
  if (length < kLeastBytes || length > kMostBytes)
    return refusal(path, "has " + std::string(length < kLeastBytes ? "less than 16" : "more than 4096") +
                             " bytes: make one with head -c 32 /dev/urandom > " + path);
  UserKey key;
  key.key_ = keyed_hash(std::span(bytes).first(length), {std::as_bytes(std::span(kProofs))});
  key.proves_ = true;
  ::explicit_bzero(bytes.data(), bytes.size());
  return key;
}

Result<UserKey> UserKey::of_environment() {
  if (const char* const named = std::getenv("CH3_OFFLOAD_KEY_FILE"); named != nullptr && *named != '\0')
    return read(named);
  const char* const home = std::getenv("HOME");
  const std::string path = std::string(home == nullptr ? "" : home) + "/.ch3-offload-key";
  struct stat status {};
  if (home != nullptr && ::stat(path.c_str(), &status) == 0) return read(path);
  return of_user(UserId{::geteuid()});
}

UserKey UserKey::of_user(UserId user) noexcept {
  UserKey key;
  std::memcpy(key.key_.data(), &user, sizeof user);
  return key;
}

UserKey UserKey::of_bytes(std::span<const std::byte, kBytes> bytes, bool proves) noexcept {
  UserKey key;
  std::ranges::copy(bytes, key.key_.begin());
  key.proves_ = proves;
  return key;
}

JobSecret UserKey::provider_secret() const noexcept {
  JobSecret secret{};
  const KeyedHash hash =
      have_keyed_hash() ? keyed_hash(key_, {std::as_bytes(std::span(kProviders))}) : KeyedHash(key_);
  std::copy_n(hash.begin(), secret.size(), secret.begin());
  return secret;
}

}  // namespace ch3_offload
