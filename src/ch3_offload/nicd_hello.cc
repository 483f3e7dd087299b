#include "ch3_offload/nicd_hello.h"

#include <array>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

#include "ch3_offload/settings.h"

namespace ch3_offload {

NicdHello make_hello(const ch3_offload_config_t& config) {
  NicdHello hello;
  hello.rank = config.rank;
  hello.job_size = config.job_size;
  hello.local_rank = config.local_rank;
  hello.local_size = config.local_size;
  hello.always_ignored_bits = config.always_ignored_bits;
  hello.channel_bits = config.channel_bits;
  static_assert(sizeof hello.secret == sizeof config.secret);
  std::memcpy(hello.secret.data(), config.secret, sizeof config.secret);
  // The processor runs in another directory.
  ch3_offload_config_t there = config;
  std::string trace;
  if (config.trace != nullptr && *config.trace != '\0') {
    trace = std::filesystem::absolute(config.trace).string();
    there.trace = trace.c_str();
  }
  std::string text;
  for (const Setting& setting : settings())
    text += std::string(setting.variable) + "=" + to_string(setting, there) + "\n";
  set_text(hello.settings, text);
  return hello;
}

std::optional<std::string> read_hello(const NicdHello& hello, std::vector<std::string>& values,
                                      ch3_offload_config_t& config) {
  if (hello.job_size > kMostProcesses)
    return "its job has " + std::to_string(hello.job_size) + " processes: at most " +
           std::to_string(kMostProcesses) + " are served";
  ch3_offload_config_default(&config);
  config.rank = hello.rank;
  config.job_size = hello.job_size;
  config.local_rank = hello.local_rank;
  config.local_size = hello.local_size;
  config.always_ignored_bits = hello.always_ignored_bits;
  config.channel_bits = hello.channel_bits;
  std::memcpy(config.secret, hello.secret.data(), sizeof config.secret);
  std::string_view text = text_of(hello.settings);
  values.clear();
  values.reserve(settings().size());  // The pointers into them stay.
  for (const Setting& setting : settings()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::string prefix = std::string(setting.variable) + "=";
    if (!line.starts_with(prefix) || line.size() == text.size())
      return "its settings are cut: it is of another version, or they are too long";
    values.emplace_back(line.substr(prefix.size()));
    text.remove_prefix(line.size() + 1);
    if (auto why = set_from_text(setting, values.back().c_str(), config)) return why;
  }
  std::array<char, 512> message;
  if (ch3_offload_config_check(&config, message.data(), message.size()) != 0) return message.data();
  return {};
}

}  // namespace ch3_offload
