// Books of processes that run in this program, over loopback.

#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "nic/introductions.h"

namespace ch3_offload {

inline constexpr std::uint32_t kLoopback1 = 0x7F00'0001;
inline constexpr std::uint32_t kLoopback2 = 0x7F00'0002;

/// What a book has told.
struct BookRecord final : ProcessBook::Listener {
  void on_process(PeerId peer, ProcessId process, UserId user) noexcept override {
    EXPECT_TRUE(processes.emplace(index_of(peer), process).second) << "told twice";
    EXPECT_EQ(user, UserId{::geteuid()});
  }
  void on_card(PeerId peer, std::string_view card) noexcept override {
    EXPECT_EQ(processes.count(index_of(peer)), 1u) << "the process comes before its card";
    EXPECT_TRUE(cards.emplace(index_of(peer), card).second) << "told twice";
  }
  void on_replaced(PeerId peer) noexcept override {
    EXPECT_TRUE(replaced.emplace(index_of(peer)).second) << "told twice";
  }
  bool on_unused(PeerId peer) noexcept override {
    unused.push_back(peer);
    return !is_in_use;
  }

  std::map<std::uint32_t, ProcessId> processes;
  std::map<std::uint32_t, std::string> cards;
  std::set<std::uint32_t> replaced;
  std::vector<PeerId> unused;
  bool is_in_use = false;  ///< What on_unused() says.
};

/// One process.
struct BookOwner {
  std::unique_ptr<Introductions> book;
  BookRecord record;
  std::string log;

  ProcessId id() const { return book->self(); }
  /// The peer that a process is.
  PeerId find(ProcessId process) const {
    PeerId peer{};
    EXPECT_EQ(book->find(process, peer), Status::kOk);
    return peer;
  }
  /// Nothing: it was not told.
  std::string card_of(PeerId peer) const {
    const auto found = record.cards.find(index_of(peer));
    return found == record.cards.end() ? "nothing" : found->second;
  }
};

/// A file that only this user can read, unless it is changed.
class KeyFile {
 public:
  explicit KeyFile(const std::string& bytes) {
    static int number = 0;
    path = testing::TempDir() + "/key." + std::to_string(::getpid()) + "." + std::to_string(number++);
    std::ofstream(path) << bytes;
    ::chmod(path.c_str(), 0600);
  }
  ~KeyFile() { ::unlink(path.c_str()); }
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;
  UserKey key() const {
    Result<UserKey> key = UserKey::read(path);
    EXPECT_TRUE(key.ok()) << key.error().message;
    return key.value();
  }
  std::string path;
};

class IntroductionsWorld : public testing::Test {
 protected:
  static constexpr int kWaitMs = 60'000;

  Introductions::Config config_of(std::uint32_t nid = kLoopback1) const {
    Introductions::Config config;
    config.nid = nid;
    config.key = key;
    config.card = "v=6;here:" + std::to_string(owners.size());
    config.own = PeerId{static_cast<std::uint32_t>(owners.size())};
    // Different numbers everywhere.
    config.first_peer = PeerId{100 + 50 * static_cast<std::uint32_t>(owners.size())};
    config.peer_limit = 1u << 20;
    return config;
  }
  BookOwner& make(std::uint32_t nid = kLoopback1) { return make(config_of(nid)); }
  BookOwner& make(Introductions::Config config) {
    owners.push_back(std::make_unique<BookOwner>());
    BookOwner& owner = *owners.back();
    config.log = [](void* log, LogScope, const char* line) { *static_cast<std::string*>(log) += line; };
    config.log_context = &owner.log;
    Result<std::unique_ptr<Introductions>> book = Introductions::create(config);
    EXPECT_TRUE(book.ok()) << book.error().message;
    if (book.ok()) owner.book = std::move(book.value());
    return owner;
  }
  void poll_all() {
    for (const auto& owner : owners)
      if (owner->book != nullptr) owner->book->poll(owner->record);
  }
  template <class Condition>
  bool run_until(Condition done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kWaitMs);
    while (!done() && std::chrono::steady_clock::now() < end) {
      poll_all();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return done();
  }
  void run_for_ms(int time_ms) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(time_ms);
    while (std::chrono::steady_clock::now() < end) {
      poll_all();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  bool run_until_card(const BookOwner& at, PeerId peer) {
    return run_until([&] { return at.record.cards.count(index_of(peer)) == 1; });
  }
  bool all_quiet() const {
    for (const auto& owner : owners)
      if (owner->book != nullptr && owner->book->connections() > 0) return false;
    return true;
  }
  /// Each knows the other, by numbers that both have told.
  void expect_met(const BookOwner& one, PeerId other_at_one, const BookOwner& other, PeerId one_at_other) {
    const std::size_t i = place_of(one), j = place_of(other);
    EXPECT_EQ(one.card_of(other_at_one), "v=6;as=" + std::to_string(index_of(one_at_other)) +
                                             ";to=" + std::to_string(j) + ";here:" + std::to_string(j));
    EXPECT_EQ(other.card_of(one_at_other), "v=6;as=" + std::to_string(index_of(other_at_one)) +
                                               ";to=" + std::to_string(i) + ";here:" + std::to_string(i));
  }
  std::size_t place_of(const BookOwner& owner) const {
    std::size_t i = 0;
    while (owners[i].get() != &owner) ++i;
    return i;
  }

  UserKey key;
  std::vector<std::unique_ptr<BookOwner>> owners;
};

}  // namespace ch3_offload
