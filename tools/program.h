// What main() of a tool is: what standard output has not taken is said, and so is what was thrown.

#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <system_error>

namespace ch3_offload {

/// Returns the status to exit with: that of `run`, or 1. `name`: of the tool.
inline int run_program(const char* name, int (*run)(int, char**), int argc, char** argv) noexcept {
  try {
    const int status = run(argc, argv);
    if (std::fflush(stdout) == 0) return status;
    std::fprintf(stderr, "%s: standard output: %s\n", name, std::strerror(errno));
  } catch (const std::system_error& error) {
    // fmt::print() throws it, and names no file.
    if (std::ferror(stdout) != 0)
      std::fprintf(stderr, "%s: standard output: %s\n", name, error.code().message().c_str());
    else
      std::fprintf(stderr, "%s: %s\n", name, error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
  }
  return 1;
}

}  // namespace ch3_offload
