// Memory that a client in another process shares with its processor, mapped here.
//
// The client sends a file over its socket (NicdShare), then says in its ring what the file is (kShare). A
// file is taken only if it can no longer shrink. The memory of an operation stays mapped until the operation
// is over, whatever the client takes back.
//
// Threads: one at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "nic/nicd_protocol.h"
#include "rdma/file_descriptor.h"
#include "rdma/shm/shared_memory.h"
#include "rdma/shm/unix_socket.h"

namespace ch3_offload {

class ClientShares {
 public:
  /// Of one client: a process may have 65,530 mappings (vm.max_map_count). Files beyond stay unmapped.
  static constexpr std::size_t kMostFiles = 1024;

  /// Memory of the client, as this process reaches it.
  struct Found {
    std::byte* address = nullptr;            ///< nullptr: it is not shared.
    std::shared_ptr<const Mapping> mapping;  ///< Keeps it.
  };

  /// Hears of memory just before it is unmapped: nothing may be kept registered there.
  struct Watch {
    void (*is_gone)(void* context, const void* address, std::size_t length_bytes) noexcept = nullptr;
    void* context = nullptr;
  };

  /// `socket`: the client's. Outlives this. Throws std::bad_alloc.
  explicit ClientShares(const FileDescriptor& socket) : socket_(socket), watch_(std::make_shared<Watch>()) {}

  /// Also of memory that is kept (Found) when this object has ended, until watch({}).
  void watch(const Watch& watch) noexcept { *watch_ = watch; }

  /// Keeps the file that the client has sent, if it has. kNothing, kMessage: all is well. kClosed: the client
  /// has ended. kInvalid: it has said something else.
  Receipt listen() noexcept;
  /// Maps what was sent for that memory. False: nothing was, or it cannot be mapped.
  bool share(std::uint64_t address, std::uint64_t length_bytes) noexcept;
  /// False: nothing is shared there.
  bool unshare(std::uint64_t address) noexcept;

  Found find(std::uint64_t address, std::uint64_t length_bytes) const noexcept;

  /// The client has gone. All that is mapped stays so as long as what is returned.
  std::shared_ptr<const void> leave_mapped() noexcept;

 private:
  struct Offer {
    NicdShare share;
    FileDescriptor file;
  };

  struct File {
    std::shared_ptr<const Mapping> mapping;  ///< Null: it is no longer shared.
    std::weak_ptr<const Mapping> in_use;     ///< Then.
  };
  struct Files {
    std::map<std::uint64_t, File> shared;         ///< By the client's address.
    std::multimap<std::uint64_t, File> unshared;  ///< That operations still use.
  };

  const FileDescriptor& socket_;
  const std::shared_ptr<Watch> watch_;
  std::optional<Offer> offer_;
  std::shared_ptr<Files> files_ = std::make_shared<Files>();
};

}  // namespace ch3_offload
