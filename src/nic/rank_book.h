// The book of a client whose processes are ranks: the number of each peer is its rank, as in an MPI job. All
// of them are known and of one user. Cards, and news of peers, are the first client's business.
//
// Threads: one, the engine's.

#pragma once

#include <cstddef>
#include <cstdint>

#include "nic/process_book.h"

namespace ch3_offload {

class RankBook final : public ProcessBook {
 public:
  /// Of rank `self` of `size` ranks of that user.
  RankBook(PeerId self, std::uint32_t size, UserId user) noexcept : self_(self), size_(size), user_(user) {}

  ProcessId self() const noexcept override { return make_logical_id(index_of(self_)); }
  UserId user() const noexcept override { return user_; }
  bool knows_all() const noexcept override { return true; }

  /// kUnreachable: it is no rank.
  Status find(ProcessId process, PeerId& peer) noexcept override {
    if (number_of(process) >= size_) return Status::kUnreachable;
    peer = PeerId{static_cast<std::uint32_t>(number_of(process))};
    return Status::kOk;
  }
  void forget(PeerId) noexcept override {}

  std::size_t poll(Listener&) noexcept override { return 0; }
  int descriptor() const noexcept override { return -1; }
  std::uint64_t next_due_ns() const noexcept override { return UINT64_MAX; }

 private:
  const PeerId self_;
  const std::uint32_t size_;
  const UserId user_;
};

}  // namespace ch3_offload
