#pragma once

/// The report of `slime check`: Markdown to post, a line for each figure. It has no name or path of the machine, no
/// variable of the environment and no address.

#include <string>
#include <vector>

#include "acceptance/figure.h"

namespace slime::acceptance {

struct ReportHead {
  std::string version;  // of slime
  std::string device;   // "hip"
  bool is_quick = false;
  std::string date;  // "2026-11-30"
  double minutes = 0;
};

/// Figures by section, in the order in which sections first come; what differs is repeated at the top.
std::string report_text(const ReportHead& head, const std::vector<Figure>& figures);

/// For a terminal: "412 figures, none differs", "412 figures, 3 differ".
std::string summary_of(const std::vector<Figure>& figures);

/// The text of a table's cell: one line, no bar that would end it, and of paths their last part.
std::string cell(const std::string& text);

}  // namespace slime::acceptance
