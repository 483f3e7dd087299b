// The book of a job: processes are named by their ranks, which are the numbers of their peers.
//
// Nobody is introduced by it: the engine asks its first client for the cards of the ranks.

#pragma once

#include <unistd.h>

#include <cstdint>

#include "nic/process_book.h"

namespace ch3_offload {

class RankBook final : public ProcessBook {
 public:
  RankBook(PeerId self, std::uint32_t ranks) noexcept : self_(self), ranks_(ranks) {}

  bool is_of_job() const noexcept override { return true; }
  ProcessId self() const noexcept override { return make_logical_id(index_of(self_)); }
  UserId user() const noexcept override { return UserId{::geteuid()}; }
  Status find(ProcessId process, PeerId& peer) noexcept override {
    const auto rank = static_cast<std::uint64_t>(process);
    if (rank >= ranks_) return Status::kUnsupported;
    peer = PeerId{static_cast<std::uint32_t>(rank)};
    return Status::kOk;
  }
  void forget(PeerId) noexcept override {}
  std::size_t poll(Listener&) noexcept override { return 0; }
  int descriptor() const noexcept override { return -1; }
  std::uint64_t next_due_ns() const noexcept override { return UINT64_MAX; }

 private:
  const PeerId self_;
  const std::uint32_t ranks_;
};

}  // namespace ch3_offload
