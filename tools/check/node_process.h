// An agent of ch3-offload-info --check on a node, as the program sees it that has started it: a process here,
// of the launcher, and lines to and from it.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "check/check_lines.h"
#include "rdma/file_descriptor.h"

namespace ch3_offload {

class NodeProcess {
 public:
  NodeProcess() = default;
  ~NodeProcess() { end(); }
  NodeProcess(const NodeProcess&) = delete;
  NodeProcess& operator=(const NodeProcess&) = delete;

  /// Starts `command`. Returns an errno, or 0.
  int start(const std::vector<std::string>& command);
  bool runs() const noexcept { return socket_.valid(); }
  /// Readable when there is something to read.
  int descriptor() const noexcept { return socket_.get(); }

  /// Without its end. What an agent that has ended does not take is lost.
  void send(const std::string& line) noexcept;
  /// Reads what has come. When the process has ended, runs() is false afterwards.
  void read();
  /// The next line of the agent, without the prefix.
  std::optional<std::string> next_line();

  /// Ends the connection with the agent, which ends then. Does not wait, as end() does.
  void hang_up() noexcept;
  /// Why it is over, in words. REQUIRES: !runs().
  std::string why_over() const;
  /// Ends it, if it runs; then why_over() says `reason`.
  void end(const std::string& reason = {});

 private:
  static constexpr std::size_t kMostLastWords = 3;

  void reap(bool kills) noexcept;

  FileDescriptor socket_;
  pid_t child_ = -1;
  LineReader reader_;
  std::deque<std::string> last_words_;  ///< The last lines that were not the agent's, kMostLastWords at most.
  std::string reason_;
  int status_ = 0;  ///< As waitpid() gives it.
};

}  // namespace ch3_offload
