// Bytes as what goes between a controller and its workers (net/frame_channel.h carries it): a task,
// the start of a rank or an engine, a report. Either they are refused or they mean what their own bytes say.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "loop/rank_tasks.h"
#include "train/rank_report.h"

using namespace slime;

/// The first byte chooses.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view frame(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 4 == 0) {
      const std::string task = to_frame(loop::trainer_task_from(frame));
      if (to_frame(loop::trainer_task_from(task)) != task) std::abort();
    } else if (data[0] % 4 == 3) {
      const std::string start = to_frame(loop::engine_start_from(frame));
      if (to_frame(loop::engine_start_from(start)) != start) std::abort();
    } else if (data[0] % 4 == 1) {
      const std::string start = to_frame(loop::rank_start_from(frame));
      if (to_frame(loop::rank_start_from(start)) != start) std::abort();
    } else {
      if (train::to_frame(train::report_from_frame(frame)) != frame) std::abort();
    }
  } catch (const BugError&) {  // bytes that are no share and no report
  } catch (const ConfigError&) {
  }
  return 0;
}
