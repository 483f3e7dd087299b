// Tables for terminals: columns as wide as their widest cell, text to the left, numbers to the right.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ch3_offload {

class TextTable {
 public:
  /// Titles; one that begins with '>' stands over a column of numbers.
  explicit TextTable(std::vector<std::string> titles);

  /// REQUIRES: as many cells as titles. ASCII.
  void add(std::vector<std::string> cells);

  /// The table, each line indented by `indent` spaces.
  std::string render(std::size_t indent = 0) const;

 private:
  std::vector<bool> is_number_;
  std::vector<std::vector<std::string>> rows_;  ///< The titles first.
};

}  // namespace ch3_offload
