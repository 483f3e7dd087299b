// A book that knows all processes from the start: the number of each is its place in the list. It introduces
// nobody: cards are known, too.

#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nic/process_book.h"

namespace ch3_offload {

class FakeProcessBook final : public ProcessBook {
 public:
  struct Member {
    ProcessId process{};
    UserId user{};
    std::string card;
  };

  FakeProcessBook(std::uint32_t self, std::vector<Member> members)
      : self_(self), members_(std::move(members)) {}

  ProcessId self() const noexcept override { return members_[self_].process; }
  UserId user() const noexcept override { return members_[self_].user; }

  /// A process that is not in the list gets the next number, and cannot be reached.
  Status find(ProcessId process, PeerId& peer) noexcept override {
    std::uint32_t i = 0;
    while (i < members_.size() && members_[i].process != process) ++i;
    if (i == members_.size()) members_.push_back({process, UserId{}, ""});
    peer = PeerId{i};
    if (i != self_ && !is_found(i)) found_.push_back(i);
    return Status::kOk;
  }
  void forget(PeerId peer) noexcept override { forgotten.push_back(index_of(peer)); }

  std::size_t poll(Listener& listener) noexcept override {
    std::size_t happened = 0;
    for (; introduced_ < members_.size(); ++introduced_) {
      if (introduced_ == self_) continue;
      const Member& member = members_[introduced_];
      listener.on_process(PeerId{introduced_}, member.process, member.user);
      ++happened;
    }
    for (; told_ < found_.size(); ++told_, ++happened)
      listener.on_card(PeerId{found_[told_]}, members_[found_[told_]].card);
    return happened;
  }
  int descriptor() const noexcept override { return -1; }
  std::uint64_t next_due_ns() const noexcept override { return UINT64_MAX; }

  std::vector<std::uint32_t> forgotten;

 private:
  bool is_found(std::uint32_t one) const noexcept {
    for (const std::uint32_t found : found_)
      if (found == one) return true;
    return false;
  }

  const std::uint32_t self_;
  std::vector<Member> members_;
  std::vector<std::uint32_t> found_;
  std::uint32_t introduced_ = 0;  ///< So many members were told of.
  std::size_t told_ = 0;          ///< So many cards.
};

}  // namespace ch3_offload
