#include "active_messages/inbox.h"

#include <cstring>

namespace ch3_offload::active_messages {

int Inbox::open(ptl_handle_ni_t ni, std::uint64_t key, ptl_uid_t user) {
  constexpr unsigned int kSilent = PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_COMM_DISABLE |
                                   PTL_ME_EVENT_FLOWCTRL_DISABLE | PTL_ME_EVENT_OVER_DISABLE |
                                   PTL_ME_EVENT_UNLINK_DISABLE | PTL_ME_UNEXPECTED_HDR_DISABLE;
  ni_ = ni;
  key_ = key;
  user_ = user;
  memory_ = std::make_unique_for_overwrite<unsigned char[]>(kEntries * kMostMessageBytes);
  int code = PtlEQAlloc(ni, kEntries, &queue_);
  if (code == PTL_OK) code = PtlPTAlloc(ni, 0, queue_, PTL_PT_ANY, &table_);
  if (code == PTL_OK)
    code = append(&refused_byte_, kNoRoom, 0, kSilent, PTL_OVERFLOW_LIST, nullptr, no_room_);
  if (code == PTL_OK)
    code = append(&refused_byte_, kNotHere, ~ptl_match_bits_t{0}, kSilent, PTL_OVERFLOW_LIST, nullptr,
                  not_here_);
  for (Entry& entry : entries_) {
    if (code != PTL_OK) break;
    code = link(entry);
  }
  return code;
}

int Inbox::append(void* start, ptl_size_t length, ptl_match_bits_t ignore, unsigned int options,
                  ptl_list_t list, void* cookie, ptl_handle_me_t& handle) noexcept {
  ptl_me_t entry{};
  entry.start = start;
  entry.length = length;
  entry.ct_handle = PTL_CT_NONE;
  entry.uid = user_;
  entry.options = PTL_ME_OP_PUT | options;
  entry.match_id.phys = {PTL_NID_ANY, PTL_PID_ANY};
  entry.match_bits = key_;
  entry.ignore_bits = ignore;
  return PtlMEAppend(ni_, table_, &entry, list, cookie, &handle);
}

int Inbox::link(Entry& entry) noexcept {
  const int code = append(memory_of(entry), kMostMessageBytes, 0,
                          PTL_ME_USE_ONCE | PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_UNLINK_DISABLE,
                          PTL_PRIORITY_LIST, &entry, entry.handle);
  if (code != PTL_OK) entry.handle = PTL_INVALID_HANDLE;
  return code;
}

void Inbox::link_all() noexcept {
  if (unlinked_ == 0) return;
  unlinked_ = 0;
  for (Entry& entry : entries_)
    if (entry.handle == PTL_INVALID_HANDLE && link(entry) != PTL_OK) ++unlinked_;
}

std::span<const unsigned char> Inbox::take(const ptl_event_t& event) noexcept {
  Entry* const entry = static_cast<Entry*>(event.user_ptr);
  if (event.type != PTL_EVENT_PUT || entry == nullptr) return {};
  const bool is_whole =
      event.ni_fail_type == PTL_NI_OK && event.mlength == event.rlength && event.remote_offset == 0;
  const std::size_t length = is_whole ? event.mlength : 0;
  std::memcpy(message_.data(), memory_of(*entry), length);
  if (link(*entry) != PTL_OK) ++unlinked_;
  return {message_.data(), length};
}

bool Inbox::unlink(ptl_handle_me_t& handle) noexcept {
  if (handle == PTL_INVALID_HANDLE) return true;
  if (PtlMEUnlink(handle) == PTL_IN_USE) return false;
  handle = PTL_INVALID_HANDLE;
  return true;
}

bool Inbox::close() noexcept {
  for (Entry& entry : entries_)
    if (!unlink(entry.handle)) return false;
  if (!unlink(no_room_) || !unlink(not_here_)) return false;
  if (table_ != PTL_PT_ANY) {
    if (PtlPTFree(ni_, table_) == PTL_IN_USE) return false;
    table_ = PTL_PT_ANY;
  }
  if (queue_ != PTL_EQ_NONE) PtlEQFree(queue_);
  queue_ = PTL_EQ_NONE;
  return true;
}

}  // namespace ch3_offload::active_messages
