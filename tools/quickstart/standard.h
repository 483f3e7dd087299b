// What most sources include of the standard library. Builds of the check that are not installed compile it once
// and include it everywhere (compile_standard_headers in check.bash): reading these headers takes longer than
// compiling what uses them. The build of the library shows whether each source includes what it needs.

#include <algorithm>
#include <array>
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
