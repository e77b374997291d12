#pragma once

/// Limits of code in a sandbox, and the outcome of a command in it.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace slime::sandbox {

struct Limits {
  std::chrono::milliseconds time{10'000};        // of a command, on the wall's clock
  int64_t memory_bytes = int64_t{1} << 30;       // of all processes together, without files
  int64_t processes = 128;                       // and threads, together
  int64_t output_bytes = int64_t{1} << 20;       // of standard output, and so many of error
  int64_t disk_bytes = int64_t{256} << 20;       // of all files; they are in memory too
  int64_t files = 16'384;                        // and folders, together
  int64_t open_files = 256;                      // of each process
  std::chrono::milliseconds start_time{10'000};  // until the empty sandbox is there
};

/// Nothing above these is asked of the system, whoever asks.
struct LimitCeilings {
  static constexpr std::chrono::milliseconds kTime{24 * 3600 * 1000};
  static constexpr int64_t kBytes = int64_t{1} << 40;
  static constexpr int64_t kOutputBytes = int64_t{256} << 20;
  static constexpr int64_t kProcesses = 4096;
  static constexpr int64_t kFiles = 1'000'000;
  static constexpr int64_t kOpenFiles = 65'536;
};

/// Seen from outside: by the kernel's word on the process, never by what the code says of itself.
enum class Ending {
  kExited,      // code: its exit code
  kSignal,      // code: the signal that ended it
  kTime,        // it was ended because a limit was reached: the time,
  kMemory,      // the memory of all,
  kOutput,      // what it wrote to one of its outputs,
  kFiles,       // the number of files
  kNotStarted,  // code: errno of what did not work, `reason` says what
  kEnded,       // the sandbox is over, by an earlier command or by this one
};

/// "exited", "signal", "time", ...
std::string_view name_of(Ending ending);

struct Outcome {
  Ending ending = Ending::kNotStarted;
  int code = 0;
  std::string output;  // bytes, as they came; at most Limits::output_bytes
  std::string error;
  double seconds = 0;      // from its start to its end
  double cpu_seconds = 0;  // of it and the children that it waited for
  std::string reason;      // for a person: "was ended after 10 s"; "" where it exited with 0

  bool is_success() const { return ending == Ending::kExited && code == 0; }
};

}  // namespace slime::sandbox
