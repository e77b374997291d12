#pragma once

/// The plug-in host beside a trainer's rank: one call at a time, which the trainer waits for, with
/// tensors in memory that both have mapped (docs/plugin_protocol.md, "The trainer's hooks").
///
/// A trainer cannot go on without its loss: whatever keeps a call from being answered is a
/// FunctionError, and nothing is tried again. One thread uses it.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/json.h"
#include "plugin/host.h"
#include "plugin/host_process.h"
#include "plugin/payload.h"
#include "plugin/shared_memory.h"

namespace slime::plugin {

/// A function of the user's failed, or its host did. what(): which, why, the traceback.
class FunctionError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct TrainerHostConfig {
  std::string python = "python3";
  int rank = 0;                // in the name of its log
  std::filesystem::path logs;  // made when it does not exist
  json::object flags;          // `args`
  std::vector<Hook> hooks;
  std::chrono::duration<double> start_timeout{300};  // of an import
  std::chrono::duration<double> timeout{120};        // of a call
};

class TrainerHost final {
 public:
  /// Waits until it is ready. Throws ConfigError with everything that is wrong with any hook.
  explicit TrainerHost(TrainerHostConfig config);
  ~TrainerHost();
  TrainerHost(const TrainerHost&) = delete;
  TrainerHost& operator=(const TrainerHost&) = delete;

  /// The number that words of tensors in `memory` name it by. The host maps it with the next call, or
  /// the next answer to it, until when it has to live.
  int64_t share(const SharedMemory& memory);
  /// The same of memory of a GPU: `device` is its place among those that are visible.
  int64_t share(int64_t bytes, int descriptor, int device);
  /// No later call names it.
  void forget(int64_t number);
  /// The same at once: when it returns the host has given back what no function of the user's holds.
  /// Throws FunctionError.
  void release(int64_t number);

  /// Called before the host is told anything: until it returns what is written to shared memory may
  /// still be under way.
  void settle_by(std::function<void()> settle) { settle_ = std::move(settle); }

  struct Returned {
    int64_t id = 0;  // of the call
    json::object value;
    Columns columns;
  };
  /// Called for what the function asks while it runs ("logits"): what it is told. Throws nothing.
  using AnswerFn = std::function<json::object(const std::string& what)>;

  /// `hook`: its place among the hooks; `subject`: whom a failure is about ("samples 1, 2"). Throws
  /// FunctionError.
  Returned call(int hook, const std::string& subject, json::object arguments,
                const AnswerFn& answer = {});

 private:
  using Steady = std::chrono::steady_clock;
  struct Announced {
    int64_t number = 0;
    int64_t bytes = 0;
    int descriptor = -1;
    std::optional<int> device;  // of a GPU's memory
  };

  int64_t announce(Announced memory);
  /// Into a head: what was announced since the last one. Its descriptors.
  std::vector<int> take_announced(json::object& head);
  Returned exchange(json::object call, const AnswerFn& answer);
  void configure();
  void send(uint32_t type, const Payload& payload, const std::vector<int>& descriptors = {});
  /// The next frame that is no beat. Throws FunctionError at `deadline_`, or when the host is gone.
  net::Frame receive();
  void wait(short events);
  void answer_questions(const json::object& head, const AnswerFn& answer);
  [[noreturn]] void fail(const std::string& why);
  [[noreturn]] void die(const std::string& why);

  const TrainerHostConfig config_;
  HostLog log_;
  std::unique_ptr<HostProcess> process_;  // null: it has failed
  std::function<void()> settle_ = [] {};
  std::vector<Announced> announced_;
  std::vector<int64_t> forgotten_;
  int64_t next_memory_ = 1;
  int64_t next_call_ = 1;
  std::string doing_;  // for messages
  std::chrono::duration<double> limit_{};
  Steady::time_point deadline_;
};

}  // namespace slime::plugin
