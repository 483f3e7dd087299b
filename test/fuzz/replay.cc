// Runs the fuzz targets over what is known already: their own seeds and the files of the corpus. Needs no
// libFuzzer, so `make check` does it in every build.
//
//   replay                       every target over its seeds and over all of test/fuzz/corpus/TARGET
//   replay TARGET FILE...        one target over these files
//   replay --seeds FOLDER        writes the seeds to FOLDER/TARGET, for libFuzzer to start from
//
// Each input is named before it is run: the last name in the log is the one that failed.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz/target.h"

namespace {

namespace fs = std::filesystem;
using ch3_offload::fuzz::Bytes;
using ch3_offload::fuzz::Target;

bool run_file(const Target& target, const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) {
    std::fprintf(stderr, "replay: %s cannot be read\n", path.c_str());
    return false;
  }
  std::printf("%s %s\n", target.name(), path.filename().c_str());
  std::fflush(stdout);
  // An exact block of the heap: AddressSanitizer sees a byte too far.
  const Bytes bytes(reinterpret_cast<const std::byte*>(text.data()),
                    reinterpret_cast<const std::byte*>(text.data()) + text.size());
  target.run(bytes);
  return true;
}

bool run_corpus(const Target& target, const fs::path& folder) {
  const std::vector<Bytes> seeds = target.seeds();
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    std::printf("%s seed %zu\n", target.name(), i);
    std::fflush(stdout);
    target.run(seeds[i]);
  }
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    files.push_back(entry->path());
  std::sort(files.begin(), files.end());
  if (error || files.empty()) {
    std::fprintf(stderr, "replay: %s: no corpus\n", folder.c_str());
    return false;
  }
  return std::all_of(files.begin(), files.end(),
                     [&](const fs::path& file) { return run_file(target, file); });
}

bool write_seeds(const Target& target, const fs::path& folder) {
  fs::create_directories(folder);
  const std::vector<Bytes> seeds = target.seeds();
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    std::ofstream file(folder / ("seed-" + std::to_string(i)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seeds[i].data()), static_cast<std::streamsize>(seeds[i].size()));
    if (!file.flush()) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const bool only_seeds = argc == 3 && std::strcmp(argv[1], "--seeds") == 0;
  const char* const top = std::getenv("top_srcdir");
  const fs::path corpus = fs::path(top == nullptr ? "." : top) / "test/fuzz/corpus";
  bool good = true;
  bool found = false;
  for (const Target* target = Target::first(); target != nullptr; target = target->next()) {
    if (only_seeds) {
      found = true;
      good &= write_seeds(*target, fs::path(argv[2]) / target->name());
    } else if (argc == 1) {
      found = true;
      good &= run_corpus(*target, corpus / target->name());
    } else if (std::strcmp(argv[1], target->name()) == 0) {
      found = true;
      for (int i = 2; i < argc; ++i) good &= run_file(*target, argv[i]);
    }
  }
  if (!found) std::fprintf(stderr, "replay: there is no such target\n");
  return good && found ? EXIT_SUCCESS : EXIT_FAILURE;
}
