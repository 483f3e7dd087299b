// Control variables as they stand in the environment. Input: one byte that names the setting, then its text.

#include <algorithm>
#include <cstring>
#include <string>

#include "ch3_offload/settings.h"
#include "fuzz/target.h"
#include "rdma/introduction/host_address.h"

namespace ch3_offload::fuzz {
namespace settings_target {

void run(std::span<const std::byte> bytes) {
  Input input(bytes);
  const std::span<const Setting> all = settings();
  const Setting& setting = all[input.u8() % all.size()];
  const auto rest = input.rest();
  // Not a path of this machine's: what access() says of one may differ from run to run.
  std::string text(setting.kind == SettingKind::kPath ? "/nowhere/" : "");
  text.append(reinterpret_cast<const char*>(rest.data()), rest.size());
  text.resize(std::strlen(text.c_str()));

  ch3_offload_config_t config;
  ch3_offload_config_default(&config);
  const ch3_offload_config_t before = config;
  const auto why = set_from_text(setting, text.c_str(), config);
  if (why) {
    require(why->find(setting.variable) != why->npos && why->find(setting.takes) != why->npos,
            "a refusal names the variable and what it takes");
  } else if (setting.text == nullptr) {
    const ch3_offload_range_t ends =
        setting.range != nullptr ? config.*setting.range
                                 : ch3_offload_range_t{config.*setting.number, config.*setting.number};
    require(setting.least <= ends.low && ends.low <= ends.high && ends.high <= setting.most,
            "what is taken is in range, and the ends of a range are in order");
    ch3_offload_config_t again = before;
    const std::string written = to_string(setting, config);
    require(!set_from_text(setting, written.c_str(), again) && to_string(setting, again) == written,
            "a value that is written out is read back");
  } else {
    require(text.empty() || to_string(setting, config) == text, "a text that is taken is kept");
  }
  require((!why && !text.empty()) || to_string(setting, config) == to_string(setting, before),
          "what is refused is not stored, and what is empty is the default");
  char message[200];
  require(ch3_offload_config_check(&config, message, sizeof message) == 0, "what is taken passes the check");

  HostNetwork node;
  node.interfaces = {{"lo", "127.0.0.1"}, {"eth0", "10.0.0.5"}, {"ib0", "169.254.1.1"}, {"ib0", "fe80::1"}};
  if (Result<std::string> host = choose_host_address(text, node); host.ok())
    require(host.value() == "10.0.0.5" || host.value() == "169.254.1.1",
            "the chosen address is one that others reach");

  const std::optional<std::int64_t> size = parse_size(text);
  require(!size || *size >= 0, "no size is negative");
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (std::size_t i = 0; i < settings().size(); ++i) {
    for (const char* const text :
         {"", "0", "1024", "65536", "64M", "1t", "-1", " +7", "auto", "shm", "stream", "9223372036854775807G",
          "20000:20999", "5:4", "1:65536", "ib*,!eth0", "!10.0.0.5", "mlx5_0:1:3,mlx5_1", "::::"})
      all.push_back(Seed().u8(static_cast<std::uint8_t>(i)).text(text).done());
  }
  return all;
}

const Target kTarget("settings", run, seeds);

}  // namespace settings_target
}  // namespace ch3_offload::fuzz
