// The memory of a client as a processor in another process sees it: here both are this process.

#include "nic/client_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

#include "engine/payload_layout.h"
#include "nic/exchange.h"
#include "nic/stepped_rings.h"

namespace ch3_offload {
namespace {

using Bytes = std::vector<std::byte>;

class ClientMemoryTest : public testing::Test {
 protected:
  ClientMemoryTest() : exchange_(PeerId{0}, 2, nullptr), port_(exchange_.attach(PeerId{0})) {
    memory_.emplace(::getpid(), socket_.processor, 2, *port_);
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i * 7);
  }
  Payload payload(std::size_t length_bytes, const PayloadLayout* layout = nullptr) {
    return {bytes_.data(), length_bytes, layout};
  }
  /// Whether the processor takes what the client names.
  bool takes(const Payload& named) {
    ClientMemory::Part part;
    return memory_->take(named, part) && !memory_->is_broken();
  }
  Bytes read(const Payload& named, std::size_t offset, std::size_t length) {
    ClientMemory::Part part;
    EXPECT_TRUE(memory_->take(named, part));
    Bytes out(length);
    gather(part.payload(), offset, out);
    return out;
  }

  Exchange exchange_;
  std::unique_ptr<ExchangePort> port_;
  ClientSocket socket_;
  std::optional<ClientMemory> memory_;
  Bytes bytes_ = Bytes(1000);
};

TEST_F(ClientMemoryTest, APartIsReadAndWritten) {
  EXPECT_EQ(read(payload(100), 10, 20), Bytes(bytes_.begin() + 10, bytes_.begin() + 30));
  ClientMemory::Part part;
  ASSERT_TRUE(memory_->take(payload(100), part));
  const Bytes written(5, std::byte{0xEE});
  scatter(part.payload(), 90, written);
  EXPECT_EQ(Bytes(bytes_.begin() + 90, bytes_.begin() + 95), written);
  EXPECT_EQ(bytes_[89], static_cast<std::byte>(static_cast<unsigned char>(89 * 7)));
  EXPECT_FALSE(memory_->is_broken());
}

/// As a client does that calls exec(): its pid is another program's then.
TEST_F(ClientMemoryTest, WhoHasClosedItsSocketIsNeitherReadNorWritten) {
  const Bytes before = bytes_;
  EXPECT_EQ(read(payload(100), 10, 20), Bytes(before.begin() + 10, before.begin() + 30));
  ClientMemory::Part part;
  ASSERT_TRUE(memory_->take(payload(100), part));
  socket_.client.reset();
  ::usleep(1000);
  EXPECT_EQ(read(payload(100), 10, 20), Bytes(20));
  scatter(part.payload(), 0, Bytes(5, std::byte{0xEE}));
  EXPECT_EQ(bytes_, before);
  EXPECT_TRUE(memory_->is_broken());
}

/// Its pid may be another program's since then, whose bytes nobody is to see.
TEST_F(ClientMemoryTest, WhatWasReadWhileTheSocketClosedIsThrownAway) {
  struct ClosingCopier final : MemoryCopier {
    ssize_t copy(pid_t pid, const iovec& here, std::span<const iovec> there,
                 bool is_write) noexcept override {
      const ssize_t moved = MemoryCopier::copy(pid, here, there, is_write);
      if (--left == 0) socket.reset();
      return moved;
    }
    explicit ClosingCopier(FileDescriptor& its_socket) : socket(its_socket) {}
    FileDescriptor& socket;
    int left = 2;
  } copier(socket_.client);
  memory_.emplace(::getpid(), socket_.processor, 2, *port_, KernelCopies::kAllowed, copier);
  EXPECT_EQ(read(payload(100), 10, 20), Bytes(bytes_.begin() + 10, bytes_.begin() + 30));
  EXPECT_EQ(read(payload(100), 10, 20), Bytes(20));
  EXPECT_TRUE(memory_->is_broken());
}

/// However short ago its socket was open.
TEST_F(ClientMemoryTest, NothingIsWrittenOnceTheSocketHasClosed) {
  const Bytes before = bytes_;
  ClientMemory::Part part;
  ASSERT_TRUE(memory_->take(payload(100), part));
  for (int i = 0; i < 10; ++i) scatter(part.payload(), 0, Bytes(before.begin(), before.begin() + 5));
  socket_.client.reset();
  scatter(part.payload(), 0, Bytes(5, std::byte{0xEE}));
  EXPECT_EQ(bytes_, before);
}

TEST_F(ClientMemoryTest, AShortMessageStaysOutOfTheMemoryUntilMoreComes) {
  const Bytes before = bytes_, first(8, std::byte{0xEE}), more(4, std::byte{0xDD});
  ClientMemory::Part part;
  ASSERT_TRUE(memory_->take(payload(100), part));
  part.keep_short(8);
  scatter(part.payload(), 0, first);
  EXPECT_EQ(Bytes(part.kept().begin(), part.kept().end()), first);
  EXPECT_EQ(bytes_, before);

  scatter(part.payload(), 8, more);
  EXPECT_TRUE(part.kept().empty());
  EXPECT_EQ(Bytes(bytes_.begin(), bytes_.begin() + 8), first);
  EXPECT_EQ(Bytes(bytes_.begin() + 8, bytes_.begin() + 12), more);
  scatter(part.payload(), 0, more);
  EXPECT_TRUE(part.kept().empty());
  EXPECT_EQ(Bytes(bytes_.begin(), bytes_.begin() + 4), more);
}
TEST_F(ClientMemoryTest, AMessageThatIsNotShortIsWrittenToTheMemory) {
  const Bytes written(9, std::byte{0xEE});
  ClientMemory::Part part;
  ASSERT_TRUE(memory_->take(payload(100), part));
  part.keep_short(8);
  scatter(part.payload(), 0, written);
  EXPECT_TRUE(part.kept().empty());
  EXPECT_EQ(Bytes(bytes_.begin(), bytes_.begin() + 9), written);
}

/// More runs than one system call moves.
TEST_F(ClientMemoryTest, PiecesAreReadAsTheClientWouldPackThem) {
  const std::array<Piece, 2> pieces{{{1, 2}, {5, 1}}};
  const PayloadLayout layout{.kind = PayloadLayout::Kind::kPieces,
                             .piece_count = 2,
                             .pieces = pieces.data(),
                             .element_bytes = 3,
                             .extent_bytes = 8};
  const Payload named = payload(300, &layout);
  Bytes packed(250);
  gather(named, 4, packed);
  EXPECT_EQ(read(named, 4, 250), packed);
}

/// An entry that an operation uses in runs: one call of the kernel moves many.
TEST_F(ClientMemoryTest, RunsOfAnEntryShareACallOfTheKernel) {
  struct Counted : MemoryCopier {
    ssize_t copy(pid_t thread, const iovec& here, std::span<const iovec> there, bool is_write) noexcept override {
      ++calls;
      return MemoryCopier::copy(thread, here, there, is_write);
    }
    int calls = 0;
  } copier;
  ClientMemory memory(::getpid(), socket_.processor, 2, *port_, KernelCopies::kAllowed, copier);
  ClientMemory::Part part;
  bytes_.resize(64'000);
  for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<std::byte>(i * 7);
  ASSERT_TRUE(memory.take_entry(payload(bytes_.size()), part));
  const Payload reached = part.payload();
  const auto& layout = *static_cast<const FetchedLayout*>(reached.layout);
  constexpr std::size_t kFirst = 5, kData = 3 * 100;

  // Close ones are read with what is between them, and only they are written.
  for (const auto& [stride, reads] : {std::pair{9, 1}, std::pair{500, 4}, std::pair{600, 2}}) {
    const TargetRuns runs{3, static_cast<std::uint64_t>(stride)};
    const auto place = [&](std::size_t i) { return kFirst + i / 3 * runs.stride_bytes + i % 3; };
    Bytes got(kData), before = bytes_;
    copier.calls = 0;
    layout.pack_runs(reached.address, kFirst, runs, 0, got.data(), kData);
    for (std::size_t i = 0; i < kData; ++i) ASSERT_EQ(got[i], before[place(i)]) << i;
    EXPECT_EQ(copier.calls, reads) << stride;
    // A range of the data that begins and ends within a run.
    layout.pack_runs(reached.address, kFirst, runs, 4, got.data(), 10);
    for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(got[i], before[place(4 + i)]) << i;

    const Bytes data(kData, std::byte{0xEE});
    for (std::size_t i = 0; i < kData; ++i) before[place(i)] = data[i];
    copier.calls = 0;
    layout.unpack_runs(reached.address, kFirst, runs, 0, data.data(), kData);
    EXPECT_EQ(copier.calls, 2) << stride;
    EXPECT_EQ(bytes_, before);
  }
  EXPECT_FALSE(memory.is_broken());
}

TEST_F(ClientMemoryTest, NoClientNamesSuchLengthsAndAddresses) {
  constexpr std::uint64_t kLimit = std::uint64_t{1} << 56;
  EXPECT_FALSE(takes({bytes_.data(), kLimit, nullptr}));
  EXPECT_FALSE(takes({reinterpret_cast<std::byte*>(kLimit), 1, nullptr}));
  EXPECT_FALSE(memory_->is_broken());
}

TEST_F(ClientMemoryTest, NoClientNamesSuchLayouts) {
  constexpr std::ptrdiff_t kFar = std::ptrdiff_t{1} << 56;
  const std::array<Piece, 2> pieces{{{0, 4}, {8, 4}}};
  const PayloadLayout good{.kind = PayloadLayout::Kind::kPieces,
                           .piece_count = 2,
                           .pieces = pieces.data(),
                           .element_bytes = 8,
                           .extent_bytes = 16};
  EXPECT_TRUE(takes(payload(64, &good)));
  const auto refuses = [&](auto change) {
    PayloadLayout layout = good;
    std::array<Piece, 2> its = pieces;
    layout.pieces = its.data();
    change(layout, its);
    return !takes(payload(64, &layout));
  };
  EXPECT_TRUE(refuses([](auto& layout, auto&) { layout.kind = PayloadLayout::Kind::kPacked; }));
  EXPECT_TRUE(refuses([](auto& layout, auto&) { layout.piece_count = 0; }));
  EXPECT_TRUE(refuses([](auto& layout, auto&) { layout.piece_count = 5000; }));
  EXPECT_TRUE(refuses([](auto& layout, auto&) { layout.element_bytes = 9; }));
  EXPECT_TRUE(refuses([](auto& layout, auto&) { layout.extent_bytes = kFar; }));
  EXPECT_TRUE(refuses([](auto& layout, auto&) { layout.extent_bytes = -kFar / 4; }));
  EXPECT_TRUE(refuses([](auto&, auto& its) { its[0].length_bytes = 0; }));
  EXPECT_TRUE(refuses([](auto&, auto& its) { its[1].offset_bytes = -kFar; }));
  // Sums that come around.
  EXPECT_TRUE(refuses([](auto&, auto& its) {
    its[0].length_bytes = std::size_t{1} << 63;
    its[1].length_bytes = (std::size_t{1} << 63) + 8;
  }));
  EXPECT_FALSE(memory_->is_broken());
}

/// It is broken, says why, reads as zeros, and nothing of it leaves any more.
TEST_F(ClientMemoryTest, MemoryThatIsNotThereBreaksTheClient) {
  void* const nobodys = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nobodys, MAP_FAILED);
  EXPECT_EQ(read({static_cast<std::byte*>(nobodys), 50, nullptr}, 0, 50), Bytes(50));
  EXPECT_TRUE(memory_->is_broken());
  EXPECT_NE(memory_->reason().find("cannot read 50 bytes"), std::string::npos) << memory_->reason();
  EXPECT_EQ(read(payload(10), 0, 10), Bytes(10));

  const auto other = exchange_.attach(PeerId{1});
  auto endpoint = port_->connect(PeerId{1}, other->local_address());
  ASSERT_TRUE(endpoint.ok());
  std::span<std::byte> slot;
  ASSERT_EQ(port_->reserve(*endpoint.value(), 8, slot), Status::kOk);
  port_->commit(*endpoint.value(), 8);
  EXPECT_FALSE(other->may_have_work());
  ::munmap(nobodys, 4096);
}

TEST_F(ClientMemoryTest, ALayoutThatIsNotThereBreaksTheClient) {
  EXPECT_FALSE(takes(payload(10, reinterpret_cast<const PayloadLayout*>(std::uintptr_t{64}))));
  EXPECT_TRUE(memory_->is_broken());
}

/// With no word of the kernel: what is not shared cannot be named.
/// The file was opened before the kernel began to refuse. It serves entries, too, which cannot wait.
TEST_F(ClientMemoryTest, WhatTheKernelRefusesGoesThroughTheFile) {
  RefusingCopier kernel;
  memory_.emplace(::getpid(), socket_.processor, 2, *port_, KernelCopies::kAllowed, kernel);
  memory_->keep_file(open_memory(::getpid()));
  EXPECT_EQ(read(payload(1000), 1, 999), Bytes(bytes_.begin() + 1, bytes_.end()));
  EXPECT_FALSE(memory_->uses_file());
  kernel.allowed = 0;
  constexpr std::array<Piece, 2> kPieces{{{0, 100}, {300, 200}}};
  const PayloadLayout layout{.kind = PayloadLayout::Kind::kPieces,
                             .piece_count = 2,
                             .pieces = kPieces.data(),
                             .element_bytes = 300,
                             .extent_bytes = 500};
  Bytes expected(600);
  gather(payload(600, &layout), 0, expected);
  EXPECT_EQ(read(payload(600, &layout), 0, 600), expected);
  EXPECT_TRUE(memory_->uses_file());
  ClientMemory::Part entry;
  ASSERT_TRUE(memory_->take_entry(payload(1000), entry));
  const Bytes written(500, std::byte{9});
  scatter(entry.payload(), 250, written);
  EXPECT_TRUE(std::equal(written.begin(), written.end(), bytes_.begin() + 250));
  EXPECT_FALSE(memory_->is_refused());
  EXPECT_FALSE(memory_->is_broken());
}

TEST_F(ClientMemoryTest, WhatIsNotThereIsNotThereForTheFile) {
  RefusingCopier kernel;
  kernel.allowed = 0;
  memory_.emplace(::getpid(), socket_.processor, 2, *port_, KernelCopies::kAllowed, kernel);
  memory_->keep_file(open_memory(::getpid()));
  void* const nobodys = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nobodys, MAP_FAILED);
  ::munmap(nobodys, 4096);
  EXPECT_EQ(read({static_cast<std::byte*>(nobodys), 8, nullptr}, 0, 8), Bytes(8));
  EXPECT_TRUE(memory_->is_broken());
}

TEST_F(ClientMemoryTest, WithoutCopiesByTheKernelOnlySharedMemoryIsTaken) {
  memory_.emplace(::getpid(), socket_.processor, 2, *port_, KernelCopies::kRefused);
  const std::array<Piece, 1> pieces{{{0, 4}}};
  const PayloadLayout layout{.kind = PayloadLayout::Kind::kPieces,
                             .piece_count = 1,
                             .pieces = pieces.data(),
                             .element_bytes = 4,
                             .extent_bytes = 8};
  EXPECT_FALSE(takes(payload(8)));
  EXPECT_FALSE(takes(payload(8, &layout)));
  EXPECT_TRUE(takes(payload(0)));
  EXPECT_FALSE(memory_->is_broken());
}

}  // namespace
}  // namespace ch3_offload
