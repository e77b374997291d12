#pragma once

/// Folder of a session: how engines that outlive their trainer are found again
/// (docs/decisions/0138-engines-outlive-trainers.md).
///
///   $XDG_RUNTIME_DIR/slime/ID-4f1c/   or /tmp/slime-UID/..., of this user alone
///     lock            held by the trainer that has the engines (report/run_lock.h)
///     session.json    SessionRecord
///     engine_0.sock   where engine 0 listens (roles/kept_engine.h)

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace slime::roles {

struct SessionRecord {
  std::string id;
  std::string program;             // cluster::own_program() of the engines
  json::object settings;           // with which they were started
  std::string unsaved;             // folder of steps that no checkpoint has
  std::vector<int64_t> processes;  // of the engines, by index; 0: none
  bool operator==(const SessionRecord&) const = default;
};

/// Of all sessions of this user; it is there afterwards. Throws ConfigError.
std::filesystem::path sessions_folder();
/// Of the session with this name; it need not be there.
std::filesystem::path session_folder(const std::string& id);
std::filesystem::path engine_socket(const std::filesystem::path& folder, int index);

/// Nothing: there is none, or one that is no record.
std::optional<SessionRecord> read_session(const std::filesystem::path& folder);
void write_session(const std::filesystem::path& folder, const SessionRecord& record);

/// Whether a process of this number lives.
bool is_running(int64_t process);

/// Whether one of the engines lives and listens.
bool has_living_engine(const std::filesystem::path& folder, const SessionRecord& record);

/// Asks the engines of a session to end, and kills those that have not within `limit`; removes the
/// folder. Its lock is the caller's. How many were killed.
int end_session(const std::filesystem::path& folder, const SessionRecord& record, double limit);

}  // namespace slime::roles
