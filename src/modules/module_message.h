// A message to a module: a header of 64 bytes and a payload, in one block of memory.
//
// The block is counted: a module, its sends and its deliveries share it without a copy. From the first send or
// delivery on it is fixed: nobody writes to it any more.
//
// The header goes over the wire (docs/wire-format.md, "Messages to modules"): little-endian, fixed-width, no
// padding. Treat what comes from a peer as hostile: is_sound() first.
//
// Threads: one, the engine's.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string_view>

namespace ch3_offload {

inline constexpr std::uint8_t kModuleVersion = 1;
inline constexpr std::size_t kMostModuleName = 40;
/// The longest payload. Bytes.
inline constexpr std::size_t kMostModulePayload = std::size_t{16} << 20;

enum class ModuleMessageKind : std::uint8_t {
  kData = 1,  ///< For the module `name`.
  kTrouble,   ///< A line of text: the module `name` has stopped somewhere, or is not there.
  // From the process itself alone.
  kOpen,   ///< ModuleOpening, and the members. An answer follows, as to all below.
  kClose,  ///< The group ends, and its modules.
  kLoad,   ///< Source text.
  kRemove,
  kList,
  kEnd
};

struct ModuleHeader {
  std::uint8_t version = kModuleVersion;
  ModuleMessageKind kind = ModuleMessageKind::kData;
  std::uint8_t name_length = 0;
  std::uint8_t reserved = 0;
  std::uint32_t group = 0;   ///< Which one of the receiver.
  std::uint32_t root = 0;    ///< Rank in the group. Of kData: the sender of what is delivered.
  std::uint32_t source = 0;  ///< Rank of the process that has sent it.
  std::uint32_t tag = 0;     ///< Of kData: of what is delivered. Else: of the answer.
  std::uint32_t reserved_too = 0;
  std::array<char, 40> name{};  ///< kMostModuleName.

  std::string_view name_text() const noexcept { return {name.data(), name_length}; }
  void set_name(std::string_view text) noexcept {
    name = {};
    name_length = static_cast<std::uint8_t>(std::min(text.size(), name.size()));
    std::memcpy(name.data(), text.data(), name_length);
  }
  /// Whether the numbers of the header are possible.
  bool is_sound() const noexcept {
    return version == kModuleVersion && kind >= ModuleMessageKind::kData && kind < ModuleMessageKind::kEnd &&
           name_length <= kMostModuleName;
  }
};
static_assert(sizeof(ModuleHeader) == 64 && offsetof(ModuleHeader, group) == 4 &&
              offsetof(ModuleHeader, name) == 24);

/// Payload of kOpen: a group of processes as its member counts them. `peer_count` numbers of processes follow;
/// none: rank and process number are the same.
struct ModuleOpening {
  std::uint64_t data_bits = 0;     ///< Of the keys of messages that modules deliver, below the tag.
  std::uint64_t control_bits = 0;  ///< Likewise, of answers and troubles.
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t peer_count = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(ModuleOpening) == 32);

/// Tag of a line that tells the client of a trouble, in the keys of ModuleOpening::control_bits.
inline constexpr std::uint32_t kModuleTroubleTag = 0;

/// How many bytes of blocks are in use. The blocks share it, and may outlive who made it.
using BlockAccount = std::shared_ptr<std::size_t>;

class ModuleMessage {
 public:
  enum class Contents : std::uint8_t { kAny, kZeros };

  /// Null: no memory.
  static std::shared_ptr<ModuleMessage> make(std::size_t payload_bytes, const BlockAccount& account,
                                             Contents contents = Contents::kAny) noexcept {
    try {
      return std::make_shared<ModuleMessage>(payload_bytes, account, contents);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  /// Throws std::bad_alloc.
  ModuleMessage(std::size_t payload_bytes, BlockAccount account, Contents contents)
      : payload_bytes_(payload_bytes),
        memory_(allocate(sizeof(ModuleHeader) + payload_bytes, contents)),
        account_(std::move(account)) {
    if (memory_ == nullptr) throw std::bad_alloc();
    new (memory_.get()) ModuleHeader();
    *account_ += payload_bytes_;
  }
  ~ModuleMessage() { *account_ -= payload_bytes_; }
  ModuleMessage(const ModuleMessage&) = delete;
  ModuleMessage& operator=(const ModuleMessage&) = delete;

  ModuleHeader& header() noexcept { return *reinterpret_cast<ModuleHeader*>(memory_.get()); }
  const ModuleHeader& header() const noexcept {
    return *reinterpret_cast<const ModuleHeader*>(memory_.get());
  }
  std::span<std::byte> payload() noexcept { return {memory_.get() + sizeof(ModuleHeader), payload_bytes_}; }
  /// Header and payload.
  std::span<std::byte> whole() noexcept { return {memory_.get(), sizeof(ModuleHeader) + payload_bytes_}; }
  std::string_view text() noexcept {
    return {reinterpret_cast<const char*>(payload().data()), payload_bytes_};
  }

  /// From now on its payload counts there.
  void charge_to(const BlockAccount& account) noexcept {
    *account_ -= payload_bytes_;
    account_ = account;
    *account_ += payload_bytes_;
  }

  /// Fills in what a module's sends have in common, once: later a provider may be reading it.
  void address(std::uint32_t group, std::uint32_t source, std::string_view name) noexcept {
    if (is_addressed_) return;
    is_addressed_ = true;
    ModuleHeader& its = header();
    its.kind = ModuleMessageKind::kData;
    its.group = group;
    its.source = source;
    its.set_name(name);
  }

  /// Whether it was sent or delivered.
  bool is_fixed() const noexcept { return is_fixed_; }
  void fix() noexcept { is_fixed_ = true; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }  // NOLINT: as allocate()
  };
  /// Zeros cost nothing where they are pages that nobody has used: new has no such memory.
  static std::byte* allocate(std::size_t bytes, Contents contents) noexcept {
    return static_cast<std::byte*>(contents == Contents::kZeros ? std::calloc(1, bytes)  // NOLINT
                                                                : std::malloc(bytes));   // NOLINT
  }
  const std::size_t payload_bytes_;
  const std::unique_ptr<std::byte[], Free> memory_;
  BlockAccount account_;
  bool is_fixed_ = false;
  bool is_addressed_ = false;
};

}  // namespace ch3_offload
