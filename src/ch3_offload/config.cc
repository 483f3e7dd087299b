// The settings of the C interface: defaults, texts, and the check that names the control variable at fault.

#include <cstdio>
#include <exception>

#include "ch3_offload/ch3_offload.h"
#include "ch3_offload/environment.h"
#include "ch3_offload/settings.h"

extern "C" {

void ch3_offload_config_default(ch3_offload_config_t* config) {
  *config = {};
  config->size_bytes = sizeof *config;
  config->job_size = 1;
  for (const ch3_offload::Setting& setting : ch3_offload::settings())
    ch3_offload::set_from_text(setting, "", *config);
}

int ch3_offload_config_check(const ch3_offload_config_t* config, char* message, size_t capacity_bytes) {
  if (config->size_bytes != sizeof *config) {
    std::snprintf(message, capacity_bytes,
                  "libch3offload and the MPI library were built from different versions (settings of %zu "
                  "bytes, expected %zu): rebuild MPICH with the installed libch3offload",
                  config->size_bytes, sizeof *config);
    return 1;
  }
  try {
    for (const ch3_offload::Setting& setting : ch3_offload::settings()) {
      if (const auto why = ch3_offload::complaint(setting, *config)) {
        std::snprintf(message, capacity_bytes, "%s", why->c_str());
        return 1;
      }
    }
  } catch (const std::exception& exception) {
    std::snprintf(message, capacity_bytes, "out of memory (%s)", exception.what());
    return 1;
  }
  if (config->job_size == 0 || config->rank >= config->job_size) {
    std::snprintf(message, capacity_bytes, "rank %u is not in a job of %u processes", config->rank,
                  config->job_size);
    return 1;
  }
  return 0;
}

const char* ch3_offload_setting(unsigned number) {
  const auto all = ch3_offload::settings();
  return number < all.size() ? all[number].variable : nullptr;
}

int ch3_offload_config_set(ch3_offload_config_t* config, unsigned number, const char* text, char* message,
                           size_t capacity_bytes) {
  try {
    const ch3_offload::Setting& setting = ch3_offload::settings()[number];
    const auto why =
        text != nullptr
            ? ch3_offload::set_from_text(setting, text, *config)
            : ch3_offload::read_setting(setting, ch3_offload::settings_files(), *config).complaint;
    if (why) std::snprintf(message, capacity_bytes, "%s", why->c_str());
    return why ? 1 : 0;
  } catch (const std::exception& exception) {
    std::snprintf(message, capacity_bytes, "out of memory (%s)", exception.what());
    return 1;
  }
}

void ch3_offload_config_text(const ch3_offload_config_t* config, unsigned number, char* text,
                             size_t capacity_bytes) {
  try {
    const auto value = ch3_offload::to_string(ch3_offload::settings()[number], *config);
    std::snprintf(text, capacity_bytes, "%s", value.c_str());
  } catch (const std::exception&) {
    std::snprintf(text, capacity_bytes, "?");
  }
}

}  // extern "C"
