#include "loop/dump_source.h"

#include <algorithm>

#include "plugin/rollout_dump.h"
#include "report/rollout_files.h"

namespace slime::loop {

report::Collected DumpSource::take(int64_t step) {
  const auto range = recorder_.phase("read");
  const plugin::ReadableDump dump(report::numbered_path(pattern_, step));
  std::vector<Group> groups = report::read_samples(dump.path());
  const double kept = share_ * static_cast<double>(groups.size());
  groups.resize(std::max<std::size_t>(1, static_cast<std::size_t>(kept)));
  return {.groups = std::move(groups)};
}

}  // namespace slime::loop
