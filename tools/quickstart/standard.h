// What most sources include of the standard library. It is compiled once for all test sources
// (test/googletest.h), and for the part dist of the check, which compiles each source of the library for
// itself: reading these headers takes longer than compiling what uses them. `quickstart check --all` builds
// without it (part own-tree), and so shows whether each source of the library includes what it needs.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>
