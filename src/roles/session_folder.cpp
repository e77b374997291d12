#include "roles/session_folder.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "cluster/local_socket.h"
#include "core/error.h"
#include "core/field_reader.h"
#include "core/replace_file.h"
#include "core/xxhash64.h"
#include "net/frame_channel.h"
#include "roles/session_frames.h"

namespace slime::roles {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kSendLimit{2'000};
constexpr std::size_t kShownName = 24;

/// What of a name may stand in a file name.
std::string readable_part(const std::string& id) {
  std::string part;
  for (const char c : id.substr(0, kShownName)) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '_' || c == '-';
    part += is_plain ? c : '_';
  }
  return part;
}

/// It may be serving somebody: then it does not answer.
void ask_to_end(const fs::path& socket) {
  const std::optional<int> descriptor = cluster::connect_locally(socket);
  if (!descriptor) return;
  net::FrameChannel channel(*descriptor);
  channel.send(static_cast<uint32_t>(SessionFrame::kEnd), "", kSendLimit);
}

}  // namespace

fs::path sessions_folder() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::error_code ignored;
  const bool has_runtime =
      runtime != nullptr && *runtime != '\0' && fs::is_directory(runtime, ignored);
  const fs::path folder = has_runtime ? fs::path(runtime) / "slime"
                                      : fs::path(fmt::format("/tmp/slime-{}", ::geteuid()));
  cluster::make_private_folder(folder);
  return folder;
}

fs::path session_folder(const std::string& id) {
  return sessions_folder() / fmt::format("{}-{:08x}", readable_part(id), xxhash64(id) & 0xffffffff);
}

fs::path engine_socket(const fs::path& folder, int index) {
  return folder / fmt::format("engine_{}.sock", index);
}

std::optional<SessionRecord> read_session(const fs::path& folder) {
  std::ifstream in(folder / "session.json");
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const auto parsed = try_parse_json(text);
  if (!parsed || !parsed->is_object()) return std::nullopt;
  std::vector<std::string> problems;
  const FieldReader fields =
      FieldReader(parsed->get_object(), (folder / "session.json: ").string(), problems).required();
  const auto id = fields.text("id");
  const auto program = fields.text("program");
  const json::object* settings = fields.object("settings");
  const auto unsaved = fields.text("unsaved");
  const json::array* processes = fields.array("processes");
  if (!problems.empty()) return std::nullopt;
  SessionRecord record{
      .id = *id, .program = *program, .settings = *settings, .unsaved = *unsaved, .processes = {}};
  for (const json::value& process : *processes)
    record.processes.push_back(process.is_int64() ? process.get_int64() : 0);
  return record;
}

void write_session(const fs::path& folder, const SessionRecord& record) {
  json::array processes;
  for (const int64_t process : record.processes) processes.emplace_back(process);
  replace_file(folder / "session.json", json_text(json::object{{"id", record.id},
                                                               {"program", record.program},
                                                               {"settings", record.settings},
                                                               {"unsaved", record.unsaved},
                                                               {"processes", processes}}) +
                                            "\n");
}

bool is_running(int64_t process) {
  if (process <= 0) return false;
  const auto number = static_cast<pid_t>(process);
  ::waitpid(number, nullptr, WNOHANG);  // where this process started it
  if (::kill(number, 0) != 0) return false;
  // Whoever has it to reap may never do it.
  std::ifstream in(fmt::format("/proc/{}/stat", process));
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const std::size_t name_end = text.rfind(") ");
  return name_end == std::string::npos || (text[name_end + 2] != 'Z' && text[name_end + 2] != 'X');
}

bool has_living_engine(const fs::path& folder, const SessionRecord& record) {
  for (std::size_t index = 0; index < record.processes.size(); ++index) {
    if (!is_running(record.processes[index]))
      continue;  // or the number is another program's by now
    const auto descriptor =
        cluster::connect_locally(engine_socket(folder, static_cast<int>(index)));
    if (!descriptor) continue;
    ::close(*descriptor);
    return true;
  }
  return false;
}

int end_session(const fs::path& folder, const SessionRecord& record, double limit) {
  for (std::size_t index = 0; index < record.processes.size(); ++index)
    if (is_running(record.processes[index]))
      ask_to_end(engine_socket(folder, static_cast<int>(index)));
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit);
  const auto any_runs = [&record] {
    for (const int64_t process : record.processes)
      if (is_running(process)) return true;
    return false;
  };
  while (any_runs() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(milliseconds(20));
  int num_killed = 0;
  for (std::size_t index = 0; index < record.processes.size(); ++index) {
    const int64_t process = record.processes[index];
    // A number that another program has by now listens at no socket of the session.
    if (!is_running(process) || !fs::exists(engine_socket(folder, static_cast<int>(index))))
      continue;
    ::kill(static_cast<pid_t>(process), SIGKILL);
    ++num_killed;
  }
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  return num_killed;
}

}  // namespace slime::roles
