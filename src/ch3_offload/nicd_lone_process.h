// A lone process (lone_process.h) that a network processor serves, by its second port only: its providers,
// its engine, and its book of processes. It meets others as if it had an engine of its own, so it does not
// matter who serves them.
//
// Threads: one at a time. Blocking: admit(), as far as making providers does. No host name is resolved for
// the book: the hello has the nid.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ch3_offload/ch3_offload.h"
#include "ch3_offload/nicd_group.h"
#include "nic/user_key.h"

namespace ch3_offload {

class NicdLoneProcess final : public NicdGroup {
 public:
  /// For the process that says this hello. The error's message is for the user.
  static Result<std::unique_ptr<NicdLoneProcess>> create(const NicdHello& hello, MemoryCopier& copier);
  ~NicdLoneProcess() override { clients_.clear(); }

  bool is_of(const NicdHello&) const noexcept override { return false; }  // It is alone.
  /// The process of create(). kAgain: another process of this node has the pid.
  std::optional<Error> admit(FileDescriptor socket, pid_t pid, const NicdHello& hello) override;

 private:
  NicdLoneProcess(const UserKey& key, MemoryCopier& copier) noexcept : NicdGroup(copier), key_(key) {}
  static void log_line(void* process, LogScope scope, const char* line);

  const UserKey key_;
  std::shared_ptr<OwnProviders> own_;
};

}  // namespace ch3_offload
