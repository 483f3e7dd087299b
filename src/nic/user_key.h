// What the processes of a user know, and others do not: the key file. From it come the proofs of
// introductions (introductions.h) and the secret of the providers.
//
// Without a key file, a user's processes have a key that everybody can compute. It proves nothing: then the
// kernel must say whose process it is (SO_PEERCRED), so only processes of the same node meet.
//
// Threads: any.

#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>

#include "engine/targets/target_entry.h"
#include "rdma/job_secret.h"
#include "rdma/status.h"

namespace ch3_offload {

class UserKey {
 public:
  static constexpr std::size_t kLeastBytes = 16;   ///< Of a key file.
  static constexpr std::size_t kMostBytes = 4096;  ///< Likewise.
  static constexpr std::size_t kBytes = 32;        ///< Of a key.

  /// Reads the user's key file: a regular file that belongs to the user, and that nobody else may read or
  /// write. Errors: kDeviceFailed, kUnsupported (no libsodium); the message says what to do. Blocks as files
  /// do.
  static Result<UserKey> read(const std::string& path);
  /// That of the file which CH3_OFFLOAD_KEY_FILE names. If it names none, that of ~/.ch3-offload-key, or
  /// of_user() without such a file. Errors as read().
  static Result<UserKey> of_environment();
  /// That of a user without a key file.
  static UserKey of_user(UserId user) noexcept;
  /// What bytes() of another UserKey has given, which proves() as said.
  static UserKey of_bytes(std::span<const std::byte, kBytes> bytes, bool proves) noexcept;
  /// For the user's network processor only: who has them can prove to be the user.
  std::span<const std::byte, kBytes> bytes() const noexcept { return key_; }

  /// Whether who knows it has proved to be the user.
  bool proves() const noexcept { return proves_; }
  /// The secret of the providers of all processes of the user.
  JobSecret provider_secret() const noexcept;

 private:
  std::array<std::byte, kBytes> key_{};
  bool proves_ = false;
};

}  // namespace ch3_offload
