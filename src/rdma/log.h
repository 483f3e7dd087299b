// How a provider logs: one line at a time, seldom, to whoever the configuration names.

#pragma once

#include <cstdarg>
#include <cstdio>

#include "rdma/log_scope.h"

namespace ch3_offload {

class Log {
 public:
  /// Takes one line without a newline.
  using Function = void (*)(void* context, LogScope scope, const char* line);

  /// `function`: nullptr if nobody listens.
  Log(Function function, void* context) noexcept : function_(function), context_(context) {}

  /// Logs a line about this process.
  [[gnu::format(printf, 2, 3)]] void operator()(const char* format, ...) const noexcept {
    va_list arguments;
    va_start(arguments, format);
    write(LogScope::kProcess, format, arguments);
    va_end(arguments);
  }
  [[gnu::format(printf, 3, 4)]] void operator()(LogScope scope, const char* format, ...) const noexcept {
    va_list arguments;
    va_start(arguments, format);
    write(scope, format, arguments);
    va_end(arguments);
  }

 private:
  [[gnu::format(printf, 3, 0)]] void write(LogScope scope, const char* format,
                                           va_list arguments) const noexcept {
    if (function_ == nullptr) return;
    char line[1024];
    static_cast<void>(std::vsnprintf(line, sizeof line, format, arguments));
    function_(context_, scope, line);
  }

  Function function_;
  void* context_;
};

}  // namespace ch3_offload
