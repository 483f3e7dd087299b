// Where the messages of one channel arrive: entries of a portal table of its own, each for one message, and
// one that says that there is none left.
//
// An entry is used once, so nobody writes to its memory when its event has come, and an event queue of that
// many events cannot overflow. A message that finds none meets an entry of one byte: by the acknowledgement's
// length its sender knows that it must come again. One for another endpoint, which had this table before,
// meets an entry of no bytes.
//
// Threads: one. Allocation: open().

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "active_messages/message.h"
#include "portals/portals4.h"

namespace ch3_offload::active_messages {

class Inbox {
 public:
  /// Messages that may wait to be handled.
  static constexpr std::size_t kEntries = 128;
  /// Bytes of an acknowledgement that is none. A message is longer.
  static constexpr ptl_size_t kNotHere = 0;
  static constexpr ptl_size_t kNoRoom = 1;
  static_assert(kHeaderBytes > kNoRoom);

  Inbox() = default;
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  /// Takes messages of `user` that name `key`. Returns PTL_OK, or what went wrong: then close() must follow.
  int open(ptl_handle_ni_t ni, std::uint64_t key, ptl_uid_t user);
  /// Returns false while operations are under way: nothing new arrives, and it must be called again.
  bool close() noexcept;

  ptl_pt_index_t table() const noexcept { return table_; }
  ptl_handle_eq_t queue() const noexcept { return queue_; }

  /// Takes the message of an event of queue(), which is valid until the next take(). Empty: it is none.
  std::span<const unsigned char> take(const ptl_event_t& event) noexcept;
  /// Links entries again for which the interface had no room.
  void link_all() noexcept;

 private:
  struct Entry {
    ptl_handle_me_t handle = PTL_INVALID_HANDLE;  ///< PTL_INVALID_HANDLE: it is not linked.
  };

  int append(void* start, ptl_size_t length, ptl_match_bits_t ignore, unsigned int options, ptl_list_t list,
             void* cookie, ptl_handle_me_t& handle) noexcept;
  int link(Entry& entry) noexcept;
  unsigned char* memory_of(const Entry& entry) const noexcept {
    return memory_.get() + static_cast<std::size_t>(&entry - entries_.data()) * kMostMessageBytes;
  }
  static bool unlink(ptl_handle_me_t& handle) noexcept;

  ptl_handle_ni_t ni_ = PTL_INVALID_HANDLE;
  std::uint64_t key_ = 0;
  ptl_uid_t user_ = 0;
  ptl_handle_eq_t queue_ = PTL_EQ_NONE;
  ptl_pt_index_t table_ = PTL_PT_ANY;  ///< PTL_PT_ANY: none.
  std::unique_ptr<unsigned char[]> memory_;
  std::array<Entry, kEntries> entries_;
  std::size_t unlinked_ = 0;  ///< Entries that link() could not link.
  ptl_handle_me_t no_room_ = PTL_INVALID_HANDLE;
  ptl_handle_me_t not_here_ = PTL_INVALID_HANDLE;
  unsigned char refused_byte_ = 0;                        ///< Where the entry of one byte is.
  std::array<unsigned char, kMostMessageBytes> message_;  ///< Copied there before its entry links again.
};

}  // namespace ch3_offload::active_messages
