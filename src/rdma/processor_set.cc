#include "rdma/processor_set.h"

#include <sched.h>

#include <array>
#include <charconv>

namespace ch3_offload {
namespace {

/// One system call tells all, even where the kernel knows more processors than a cpu_set_t has bits.
constexpr std::uint32_t kMostProcessors = 1 << 16;
using Mask = std::array<cpu_set_t, kMostProcessors / CPU_SETSIZE>;

std::optional<std::uint32_t> take_number(std::string_view& text) noexcept {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number >= kMostProcessors) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

}  // namespace

ProcessorSet affinity_of(pid_t process) {
  ProcessorSet processors;
  Mask mask;
  if (sched_getaffinity(process, sizeof mask, mask.data()) != 0) return processors;
  for (std::uint32_t number = 0; number < kMostProcessors; ++number)
    if (CPU_ISSET_S(number, sizeof mask, mask.data())) processors.insert(processors.end(), number);
  return processors;
}

int bind_thread(pthread_t thread, const ProcessorSet& processors) {
  Mask mask;
  CPU_ZERO_S(sizeof mask, mask.data());
  for (const std::uint32_t number : processors) CPU_SET_S(number, sizeof mask, mask.data());
  return pthread_setaffinity_np(thread, sizeof mask, mask.data());
}

std::optional<std::vector<std::uint32_t>> parse_processors(std::string_view list) {
  std::vector<std::uint32_t> numbers;
  for (;;) {
    const auto first = take_number(list);
    auto last = first;
    if (list.starts_with('-')) {
      list.remove_prefix(1);
      last = take_number(list);
    }
    if (!first || !last || *last < *first) return {};
    if (numbers.size() + (*last - *first) >= kMostProcessors) return {};
    for (std::uint32_t number = *first; number <= *last; ++number) numbers.push_back(number);
    if (list.empty()) return numbers;
    if (!list.starts_with(',')) return {};
    list.remove_prefix(1);
  }
}

std::string to_text(const ProcessorSet& processors) {
  std::string text;
  for (auto next = processors.begin(); next != processors.end();) {
    const std::uint32_t first = *next;
    std::uint32_t last = first;
    while (++next != processors.end() && *next == last + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(first);
    if (last > first) text += '-' + std::to_string(last);
  }
  return text;
}

}  // namespace ch3_offload
