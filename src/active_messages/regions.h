// Memory that processes put to and get from: own regions, those of others, and transfers between the two.
//
// A region that the library allocates is a sealed file (shared_memory.h): a page that begins with the
// region's key, then the memory. Another process of the user opens it below /proc, by the process and
// descriptor that its name says, and maps it if it is such a file and has that key. So a name that lies makes
// nobody map anything else. Where that does not work (another node, another pid namespace), transfers go by
// PtlPut() and PtlGet().
//
// Threads: one.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>

#include "active_messages/message.h"
#include "portals/portals4.h"
#include "rdma/file_descriptor.h"
#include "rdma/shm/shared_memory.h"

namespace ch3_offload::active_messages {

class Regions;

/// A region of this process.
struct Region {
  Regions* regions = nullptr;
  RegionName name;
  std::byte* start = nullptr;
  ptl_handle_me_t entry = PTL_INVALID_HANDLE;
  FileDescriptor file;  ///< None: the memory is the program's.
  Mapping mapping;
};

/// A region that was attached.
struct Remote {
  Regions* regions = nullptr;
  RegionName name;
  Mapping mapping;  ///< None: put and get.
  std::size_t transfers = 0;

  std::byte* memory() const noexcept;
};

class Regions {
 public:
  static constexpr std::size_t kMostTransfers = 64;

  Regions() = default;
  Regions(const Regions&) = delete;
  Regions& operator=(const Regions&) = delete;

  /// Returns PTL_OK, or what went wrong: then close() must follow.
  int open(ptl_handle_ni_t ni, ptl_process_t self, ptl_uid_t user);
  /// Returns false while operations are under way.
  bool close() noexcept;
  ptl_handle_eq_t queue() const noexcept { return queue_; }
  bool has_transfers() const noexcept { return in_use_ > 0; }

  // The functions of ch3_offload_am.h, with its codes. Those that return a pointer may throw std::bad_alloc.

  int allocate(std::size_t length, Region*& region);
  int expose(void* start, std::size_t length, Region*& region);
  int free(Region& region) noexcept;
  int attach(const RegionName& name, Remote*& remote);
  int detach(Remote& remote) noexcept;
  int put(Remote& remote, std::size_t offset, const void* from, std::size_t length,
          ch3_offload_am_done_t* done, void* context) noexcept;
  int get(Remote& remote, std::size_t offset, void* to, std::size_t length, ch3_offload_am_done_t* done,
          void* context) noexcept;

  /// An event of queue(). May call the program.
  void take(const ptl_event_t& event) noexcept;
  /// Tells the program of transfers that ended when they began. Returns how many.
  std::size_t tell_finished() noexcept;

 private:
  struct Transfer {
    Remote* remote = nullptr;  ///< Null: it is free.
    ch3_offload_am_done_t* done = nullptr;
    void* context = nullptr;
    std::uint64_t length_bytes = 0;
    bool is_finished = false;  ///< It was a copy.
  };

  int add(Region region, Region*& added);
  Transfer* make(Remote& remote, std::size_t length, ch3_offload_am_done_t* done, void* context) noexcept;
  void finish(Transfer& transfer, int code) noexcept;
  int began(Transfer& transfer, int ptl_code) noexcept;

  ptl_handle_ni_t ni_ = PTL_INVALID_HANDLE;
  ptl_process_t self_{};
  ptl_uid_t user_ = 0;
  ptl_handle_eq_t queue_ = PTL_EQ_NONE;
  ptl_handle_md_t memory_ = PTL_INVALID_HANDLE;  ///< All of the address space.
  ptl_pt_index_t table_ = PTL_PT_ANY;
  std::list<Region> regions_;
  std::list<Remote> remotes_;
  std::array<Transfer, kMostTransfers> transfers_;
  std::size_t in_use_ = 0;
  std::size_t finished_ = 0;
};

}  // namespace ch3_offload::active_messages
