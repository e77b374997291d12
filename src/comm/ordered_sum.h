#pragma once

/// Sums of a few numbers over a group, added in the order of the ranks: the same bits on each of
/// them, so that all take the same decisions.

#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/rank_group.h"

namespace slime::comm {

double sum(RankGroup& group, double x, const char* what);
std::vector<double> sum(RankGroup& group, std::span<const double> x, const char* what);

/// Sums by name. A rank may lack names: it has nothing to add to them.
std::map<std::string, double> sum(RankGroup& group, const std::map<std::string, double>& x,
                                  const char* what);
/// The same, of the names that every rank has.
std::map<std::string, double> sum_of_common(RankGroup& group,
                                            const std::map<std::string, double>& x,
                                            const char* what);

}  // namespace slime::comm
