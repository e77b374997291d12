// A byte that chooses, then what a trainer finds of the one before it: a session's record, what a kept engine says of itself, a step that
// no checkpoint has. Read and written again it is the same, or it is refused.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "core/error.h"
#include "fuzz_folder.h"
#include "loop/unsaved_steps.h"
#include "roles/session_folder.h"
#include "roles/session_frames.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const FuzzFolder folder;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 3 == 0) {
    folder.write("session.json", text);
    const auto record = slime::roles::read_session(folder.path());
    if (!record) return 0;
    slime::roles::write_session(folder.path(), *record);
    if (slime::roles::read_session(folder.path()) != record) std::abort();
  } else if (data[0] % 3 == 1) {
    try {
      const std::string told = to_text(slime::roles::kept_engine_state_from(text));
      if (to_text(slime::roles::kept_engine_state_from(told)) != told) std::abort();
    } catch (const slime::ConfigError&) {
    }
  } else {
    folder.write("step_0000003.json", text);
    const auto read = slime::loop::UnsavedSteps(folder.path()).read(3);
    // One step, or the reason why there is none.
    if ((read.num_steps == 0) == read.damage.empty()) std::abort();
  }
  return 0;
}
