// Memory that a client shares with its network processor in another process: the processor maps it, and so
// reads and writes messages there without a copy by the kernel.
//
// A block is for a message of the program (MPI_Alloc_mem), or for a payload that is staged. Blocks of one
// size are cut from files (memfd, sealed), because the processor takes only so many. Each file of a size is
// as long as all before it together, within kChunkBytes and kMostFileBytes; a longer block has one of its
// own, and one beyond kMostKeptBytes takes no page more than its length. Files of small blocks are kept. Of
// free blocks beyond kSmallBytes, about kMostKeptBytes are kept for the next ones.
//
// The first kMostOpenFiles stay open, so that other processes of the node can map them, too
// (neighbour_memory.h).
//
// A child of fork does not inherit the memory, unless `processor` sees to that.
//
// Threads: one. Blocking: for the processor's answer when a file is made.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "nic/memory_place.h"
#include "rdma/file_descriptor.h"
#include "rdma/shm/shared_memory.h"

namespace ch3_offload {

/// What the arena asks of the processor.
class SharesMemory {
 public:
  /// Lets the processor map the file, whose bytes are this process's memory from `address` on. False: it
  /// cannot.
  virtual bool share(const std::byte* address, std::size_t length_bytes,
                     const FileDescriptor& file) noexcept = 0;
  /// Ends that. Operations in that memory are over, or have been given before.
  virtual void unshare(const std::byte* address) noexcept = 0;

 protected:
  ~SharesMemory() = default;
};

class SharedArena {
 public:
  static constexpr std::size_t kLeastBytes = 64;
  static constexpr std::size_t kSmallBytes = std::size_t{64} << 10;
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMostFileBytes = std::size_t{16} << 20;
  static constexpr std::size_t kMostKeptBytes = std::size_t{64} << 20;
  static constexpr std::size_t kMostOpenFiles = 64;

  explicit SharedArena(SharesMemory& processor) noexcept : processor_(&processor) {}
  /// Memory of blocks that were not given back stays mapped: a program may read it after MPI_Finalize.
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  /// The processor is told nothing from now on, because its end of the rings has gone.
  void detach() noexcept { processor_ = nullptr; }
  /// Likewise, after the processor was told that nothing is shared any more. It is there.
  void end_sharing() noexcept;

  /// A block of at least that length, aligned to kLeastBytes. Its bytes are not defined. nullptr: there is no
  /// memory, or the processor cannot map it.
  std::byte* allocate(std::size_t length_bytes) noexcept;
  /// Takes a block back. False: it is none of this arena.
  bool give_back(std::byte* block) noexcept;

  /// Shares memory that somebody else has mapped from `file`. False: the processor cannot map it.
  bool adopt(std::byte* address, std::size_t length_bytes, const FileDescriptor& file) noexcept;
  /// Ends that, before the memory is unmapped. No effect on memory that was not adopted.
  void disown(const std::byte* address) noexcept;

  /// Whether the processor has mapped all of that memory.
  bool contains(const std::byte* address, std::size_t length_bytes) noexcept;
  /// Where that memory is, for other processes. Nowhere: it is not all in one open file of this arena.
  MemoryPlace locate(const std::byte* address, std::size_t length_bytes) noexcept;

 private:
  static constexpr unsigned kLeastOrder = 6;  ///< A block of order n has 2^n bytes.
  static constexpr unsigned kOrders = 57;     ///< No address space has more.
  static constexpr unsigned kForeign = 0;
  static constexpr unsigned kAlone = 1;  ///< A file of one block, which goes with it.
  static_assert(std::size_t{1} << kLeastOrder == kLeastBytes);

  struct File {
    std::size_t length_bytes = 0;
    unsigned order = kForeign;  ///< Of its blocks; kForeign: adopted; or kAlone.
    Mapping mapping;            ///< None of an adopted one.
    FileDescriptor open_file;   ///< None of an adopted one, or if there were kMostOpenFiles.
    std::size_t used = 0;       ///< Blocks that were not given back.
  };
  /// Those of an order.
  struct Blocks {
    std::vector<std::byte*> free;  ///< Has room for all of them, so that give_back() needs no memory.
    std::size_t count = 0;
  };
  using Files = std::map<const std::byte*, File>;

  bool make_file(unsigned order);
  bool make_file(unsigned order, std::size_t file_bytes);
  Files::iterator map_file(unsigned order, std::size_t file_bytes);
  std::byte* allocate_alone(std::size_t length_bytes);
  void drop_file(Files::iterator file) noexcept;
  Files::iterator find(const std::byte* address) noexcept;

  SharesMemory* processor_;  ///< Null: it has gone.
  Files files_;              ///< By address.
  std::array<Blocks, kOrders> blocks_;
  std::size_t kept_bytes_ = 0;  ///< Of the free blocks beyond kSmallBytes.
  std::size_t open_files_ = 0;
};

/// Gives a block back to where it is from.
struct ReturnBlock {
  SharedArena* arena = nullptr;  ///< Null: the block is of the heap.
  void operator()(std::byte* block) const noexcept {
    if (arena == nullptr)
      delete[] block;
    else
      static_cast<void>(arena->give_back(block));
  }
};
using SharedBlock = std::unique_ptr<std::byte[], ReturnBlock>;

}  // namespace ch3_offload
