#include "text_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace ch3_offload {

TextTable::TextTable(std::vector<std::string> titles) {
  for (std::string& title : titles) {
    is_number_.push_back(title.starts_with('>'));
    if (is_number_.back()) title.erase(0, 1);
  }
  rows_.push_back(std::move(titles));
}

void TextTable::add(std::vector<std::string> cells) {
  assert(cells.size() == is_number_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::render(std::size_t indent) const {
  std::vector<std::size_t> widths(is_number_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line(indent, ' ');
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      if (i > 0) line += "  ";
      line += is_number_[i] ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace ch3_offload
