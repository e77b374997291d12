// Bytes as COMMITTED or run.json of a checkpoint, or as a run's own run.json: the checkpoint is
// whole, or the reason why it is not; nothing else.

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/error.h"
#include "fuzz_folder.h"
#include "report/run_history.h"
#include "train/checkpoint.h"
#include "train/checkpoint_directory.h"

using namespace slime;

/// The first byte chooses. A listing that fits the files is given the run it lists.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  static const FuzzFolder folder;
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 2 == 0) {
      folder.write("run.json", "{}");
      folder.write("COMMITTED", input);
      if (!train::checkpoint_damage(folder.path()).empty()) return 0;
    } else {
      folder.write("run.json", input);
    }
    report::run_id_of(train::read_checkpoint(folder.path(), 1).run);
  } catch (const ConfigError&) {  // the expected answer to most inputs
  }
  return 0;
}
