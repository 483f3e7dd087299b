// ch3-offload-nicd: the network processor of a node as a process.

#include <getopt.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>

#include "ch3_offload/nicd.h"

namespace {

constexpr const char* kUsage =
    "usage: ch3-offload-nicd [--job NAME]\n"
    "\n"
    "Runs the message engines of all processes of this user on this node, of MPI and of\n"
    "Portals, that have MPIR_CVAR_CH3_OFFLOAD_NIC=process. Stays in the foreground until\n"
    "SIGTERM.\n"
    "\n"
    "  --job NAME   listen as NAME, and end with the last process that is served: the first\n"
    "               process of a job starts it so where the user runs none\n"
    "  --version    say the version\n"
    "  --help       say this\n";

}  // namespace

int main(int argc, char** argv) {
  constexpr option kOptions[] = {{"job", required_argument, nullptr, 'j'},
                                 {"version", no_argument, nullptr, 'v'},
                                 {"help", no_argument, nullptr, 'h'},
                                 {nullptr, 0, nullptr, 0}};
#ifdef M_ARENA_MAX
  // One of its threads runs at a time. With a heap for each, what they free for each other's clients does not
  // come together, and the process grows.
  mallopt(M_ARENA_MAX, 1);
#endif
  ch3_offload::Nicd::Options options;
  for (int chosen; (chosen = getopt_long(argc, argv, "hv", kOptions, nullptr)) != -1;) {
    switch (chosen) {
      case 'j':
        options.name = optarg;
        options.is_of_job = true;
        break;
      case 'v': std::puts("ch3-offload-nicd " PACKAGE_VERSION); return 0;
      case 'h': std::fputs(kUsage, stdout); return 0;
      default: std::fputs(kUsage, stderr); return 2;
    }
  }
  if (optind < argc) {
    std::fprintf(stderr, "ch3-offload-nicd: '%s' is not an option\n%s", argv[optind], kUsage);
    return 2;
  }
  if (options.name.empty()) options.name = ch3_offload::nicd_name(::geteuid());
  try {
    auto nicd = ch3_offload::Nicd::create(options);
    if (!nicd.ok()) {
      std::fprintf(stderr, "ch3-offload-nicd: %s\n", nicd.error().message.c_str());
      return 1;
    }
    return nicd.value()->run();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "ch3-offload-nicd: %s\n", failure.what());
    return 1;
  }
}
