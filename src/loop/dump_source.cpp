#include "loop/dump_source.h"

#include <algorithm>

#include "report/rollout_files.h"

namespace slime::loop {

report::Collected DumpSource::take(int64_t step) {
  const auto range = recorder_.phase("read");
  std::vector<Group> groups = report::read_samples(report::numbered_path(pattern_, step));
  const double kept = share_ * static_cast<double>(groups.size());
  groups.resize(std::max<std::size_t>(1, static_cast<std::size_t>(kept)));
  return {.groups = std::move(groups)};
}

}  // namespace slime::loop
