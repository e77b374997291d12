// Bytes as what goes between a controller and its workers (net/frame_channel.h carries it): a task,
// the start of a rank or an engine, an engine's first answer, a report, log-probs. Either they are
// refused or they mean what their own bytes say.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "roles/rank_tasks.h"
#include "train/rank_report.h"
#include "train/share.h"

using namespace slime;

/// The first byte chooses.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view frame(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 5 == 0) {
      const std::string task = to_frame(roles::trainer_task_from(frame));
      if (to_frame(roles::trainer_task_from(task)) != task) std::abort();
    } else if (data[0] % 5 == 3) {
      const std::string start = to_frame(roles::engine_start_from(frame));
      if (to_frame(roles::engine_start_from(start)) != start) std::abort();
    } else if (data[0] % 5 == 4) {
      const std::string ready = to_text(roles::engine_ready_from(frame));
      if (to_text(roles::engine_ready_from(ready)) != ready) std::abort();
    } else if (data[0] % 5 == 1) {
      const std::string start = to_frame(roles::rank_start_from(frame));
      if (to_frame(roles::rank_start_from(start)) != start) std::abort();
    } else {
      if (train::to_frame(train::report_from_frame(frame)) != frame) std::abort();
    }
  } catch (const BugError&) {  // bytes that are no share or report
  } catch (const ConfigError&) {
  }
  return 0;
}
