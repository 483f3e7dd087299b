#include "check/node_process.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace ch3_offload {
namespace {

/// A launcher whose connection has ended gets so long to end by itself.
constexpr int kLastMs = 500;

}  // namespace

int NodeProcess::start(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return errno;
  socket_ = FileDescriptor(ends[0]);
  const FileDescriptor its_end(ends[1]);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  if (const int error = ::posix_spawn_file_actions_init(&actions); error != 0) {
    socket_.reset();
    return error;
  }
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    static_cast<void>(::posix_spawn_file_actions_adddup2(&actions, its_end.get(), standard));
  const int error = ::posix_spawnp(&child_, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    child_ = -1;
    socket_.reset();
  }
  return error;
}

void NodeProcess::send(const std::string& line) noexcept {
  if (!runs()) return;
  std::string_view rest = line;
  const auto put = [&](std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return;  // read() finds the end.
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  };
  put(rest);
  put("\n");
}

void NodeProcess::read() {
  if (!runs()) return;
  std::array<char, 16384> buffer;
  const ssize_t came = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (came > 0) return reader_.add({buffer.data(), static_cast<std::size_t>(came)});
  if (came < 0 && (errno == EAGAIN || errno == EINTR)) return;
  reader_.add("\n");  // What stands before the end is a line, too.
  reap(false);
}

std::optional<std::string> NodeProcess::next_line() {
  while (std::optional<std::string> line = reader_.next()) {
    // A launcher may put the node's name before each line.
    const std::size_t at = line->find(kAgentPrefix);
    if (at != std::string::npos) return line->substr(at + kAgentPrefix.size());
    if (line->find_first_not_of(" \t") == std::string::npos) continue;
    last_words_.push_back(std::move(*line));
    if (last_words_.size() > kMostLastWords) last_words_.pop_front();
  }
  return {};
}

void NodeProcess::reap(bool kills) noexcept {
  socket_.reset();
  if (child_ < 0) return;
  for (int waited_ms = 0; !kills && waited_ms < kLastMs; waited_ms += 10) {
    if (::waitpid(child_, &status_, WNOHANG) != 0) {
      child_ = -1;
      return;
    }
    static_cast<void>(::poll(nullptr, 0, 10));
  }
  static_cast<void>(::kill(child_, SIGKILL));
  while (::waitpid(child_, &status_, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
}

std::string NodeProcess::why_over() const {
  std::string how = reason_;
  if (how.empty())
    how = WIFEXITED(status_) ? fmt::format("ended with status {}", WEXITSTATUS(status_))
                             : fmt::format("ended by signal {}", WTERMSIG(status_));
  return last_words_.empty() ? how : fmt::format("{}: {}", how, fmt::join(last_words_, "; "));
}

void NodeProcess::hang_up() noexcept {
  if (runs()) static_cast<void>(::shutdown(socket_.get(), SHUT_RDWR));
}

void NodeProcess::end(const std::string& reason) {
  if (!runs() && child_ < 0) return;
  reason_ = reason;
  reap(!reason.empty());
}

}  // namespace ch3_offload
