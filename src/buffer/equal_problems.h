#pragma once

/// Problems of several rows that say the same, as one: a wrong --input-key is wrong in every row.

#include <string>
#include <vector>

namespace slime::buffer {

/// "a.jsonl, line 1: no field" and the same of lines 2 and 3 become "a.jsonl, line 1: no field (and lines 2 to 3)".
/// Others stay what they are, in the order of the first of each.
std::vector<std::string> joined_problems(const std::vector<std::string>& problems);

}  // namespace slime::buffer
