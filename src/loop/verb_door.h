#pragma once

/// HTTP routes by which another program asks a run for its verbs: loopback, a token, this user alone.
///
///   POST /api/run/v1/{generate,train,drop,update_weights,evaluate,save,settle,close}
///                                     -> {"request_id": "7"}, at once
///   POST /api/run/v1/retrieve_future  {"request_id": "7"} -> the result, {"error": ...} or, after a
///                                     while, {"type": "try_again"}
///   GET  /api/run/v1/state, config    how far the run is; its flags
///   GET  /api/run/v1/samples?step=3&offset=0&limit=64&tokens=1
///
/// docs/python.md has the fields. Tinker's routes have the same form and may be added under /api/v1.

#include <filesystem>
#include <functional>
#include <string>

#include "core/json.h"
#include "loop/verb_loop.h"
#include "loop/verb_queue.h"
#include "net/http_server.h"

namespace slime::loop {

/// Read access to the run for the door's HTTP routes, called from its threads.
struct VerbView {
  std::function<json::object()> state;
  std::function<json::object()> config;
  std::function<ShownRollout(int64_t step)> rollout;
  std::string reward_key;  // of records
};

class VerbDoor {
 public:
  /// Listens and writes `folder`/door.json, {"url": ..., "token": ..., "pid": ...}, mode 0600; its owner
  /// alone may enter the folder. Throws ConfigError where that is not so. `queue` outlives the object.
  VerbDoor(const std::filesystem::path& folder, VerbQueue& queue, VerbView view);
  ~VerbDoor();
  VerbDoor(const VerbDoor&) = delete;
  VerbDoor& operator=(const VerbDoor&) = delete;

 private:
  VerbDoor(const std::filesystem::path& folder, VerbQueue& queue, VerbView view,
           const std::string& token);

  const std::filesystem::path file_;
  const VerbView view_;
  net::HttpServer server_;
};

/// Throws ConfigError where others than this user may look into the folder, or it is none.
void require_private_folder(const std::filesystem::path& folder);

/// `folder`/door.json, mode 0600.
void write_door(const std::filesystem::path& folder, const json::object& door);

/// Final error message of the run, for the parent process: writes `folder`/last_words.json.
void write_last_words(const std::filesystem::path& folder, const std::string& message);

}  // namespace slime::loop
