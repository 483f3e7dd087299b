// A fuzz target: one decoder, or all that one peer can do, driven by the bytes of an input.
//
// A file test/fuzz/*_target.cc defines one Target at namespace scope, and nothing else knows of it. libFuzzer
// runs one of them (fuzzer_main.cc, `make fuzz`); test/fuzz/replay runs all of them over the corpus in `make
// check`. README.md says how to add one.
//
// Whatever the input, a target ends by itself, leaves nothing behind, and does the same thing each time: no
// clock, no random numbers, no environment. What must hold is said with require().

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ch3_offload::fuzz {

using Bytes = std::vector<std::byte>;

/// Says what does not hold and aborts: what libFuzzer, the sanitizers and `make check` all notice.
void require(bool holds, const char* what);
/// `flaw`: what is wrong, empty when nothing is.
void require_none(const std::string& flaw);

/// Reads every byte, so that AddressSanitizer looks at each of them.
void touch(std::span<const std::byte> bytes) noexcept;

class Target {
 public:
  using Run = void (*)(std::span<const std::byte> input);
  /// Inputs that reach what random bytes would take long to find: what a valid peer sends.
  using MakeSeeds = std::vector<Bytes> (*)();

  /// `folder`: its name, also below test/fuzz/corpus. The object lives as long as the program.
  Target(const char* folder, Run runner, MakeSeeds make_seeds) noexcept;

  const char* name() const noexcept { return name_; }
  void run(std::span<const std::byte> input) const { run_(input); }
  std::vector<Bytes> seeds() const { return seeds_(); }

  /// The targets that this program was linked with; null: no more.
  static const Target* first() noexcept;
  const Target* next() const noexcept { return next_; }

 private:
  const char* name_;
  Run run_;
  MakeSeeds seeds_;
  const Target* next_;
};

/// Takes an input apart, from its front. Behind its end there are only zeros.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

  bool empty() const noexcept { return rest_.empty(); }
  std::uint8_t u8() noexcept { return static_cast<std::uint8_t>(number(1)); }
  std::uint16_t u16() noexcept { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() noexcept { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() noexcept { return number(8); }
  /// 0 .. bound - 1, from one byte.
  std::uint8_t below(std::uint8_t bound) noexcept { return static_cast<std::uint8_t>(u8() % bound); }
  bool flag() noexcept { return (u8() & 1) != 0; }
  /// At most so many: fewer at the end of the input.
  std::span<const std::byte> bytes(std::size_t length) noexcept;
  std::span<const std::byte> rest() noexcept { return bytes(rest_.size()); }

 private:
  std::uint64_t number(std::size_t length) noexcept;

  std::span<const std::byte> rest_;
};

/// Puts an input together: each call is read by the one of Input with the same name.
class Seed {
 public:
  Seed& u8(std::uint8_t value) { return number(value, 1); }
  Seed& u16(std::uint16_t value) { return number(value, 2); }
  Seed& u32(std::uint32_t value) { return number(value, 4); }
  Seed& u64(std::uint64_t value) { return number(value, 8); }
  Seed& bytes(std::span<const std::byte> bytes);
  Seed& text(const std::string& text) { return bytes(std::as_bytes(std::span(text))); }
  const Bytes& done() const noexcept { return bytes_; }

 private:
  Seed& number(std::uint64_t value, std::size_t length);

  Bytes bytes_;
};

}  // namespace ch3_offload::fuzz
