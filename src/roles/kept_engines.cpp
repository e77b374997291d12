#include "roles/kept_engines.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <thread>
#include <utility>

#include "cluster/local_process.h"
#include "cluster/local_socket.h"
#include "cluster/visible_devices.h"
#include "cluster/workers.h"
#include "core/error.h"
#include "core/own_command.h"
#include "net/frame_channel.h"

namespace slime::roles {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kAskLimit{10'000};
constexpr milliseconds kLookForSocket{20};
constexpr milliseconds kStartLimit{60'000};  // until a process listens
constexpr double kUnreadySeconds = 1;        // for engines of a trainer that could not begin

/// Where sessions are; others of this user's may be there.
fs::path made_folder(const std::string& id) {
  const fs::path folder = session_folder(id);
  cluster::make_private_folder(folder);
  return folder;
}

/// Asks by `type`; the connection goes on. Throws WorkerFailure where the process is gone, and
/// ConfigError for what it refuses.
KeptEngineConnection ask(int descriptor, SessionFrame type, std::string_view payload) {
  net::FrameChannel channel(descriptor);
  if (!channel.send(static_cast<uint32_t>(type), payload, kAskLimit))
    throw cluster::WorkerFailure("the engine's process has closed its connection");
  // The engine serves the connection from its answer on.
  const std::optional<net::Frame> answer = channel.receive_alone();
  if (!answer) throw cluster::WorkerFailure("the engine's process has closed its connection");
  if (answer->type == static_cast<uint32_t>(SessionFrame::kRefused))
    throw ConfigError(answer->payload);
  if (answer->type != static_cast<uint32_t>(SessionFrame::kReady))
    throw net::FrameError("the engine of the session answers what it was not asked");
  KeptEngineConnection connection{.state = kept_engine_state_from(answer->payload)};
  connection.descriptor = channel.release();
  return connection;
}

}  // namespace

class KeptEngineProcess final : public EngineProcess {
 public:
  KeptEngineProcess(KeptEngines& session, cluster::WorkerOrder order, int index)
      : session_(session), order_(std::move(order)), index_(index) {}
  ~KeptEngineProcess() override {
    if (connection_.descriptor >= 0) ::close(connection_.descriptor);
  }
  KeptEngineProcess(const KeptEngineProcess&) = delete;
  KeptEngineProcess& operator=(const KeptEngineProcess&) = delete;

  EngineReady begin(const EngineStart& start, milliseconds limit) override {
    has_weights_ = session_.has_attached(index_) && session_.has_weights_;
    connection_ = session_.connect(order_, start, limit);
    return connection_.state.ready;
  }
  int take_data() override { return std::exchange(connection_.descriptor, -1); }
  bool has_weights() const override { return has_weights_; }
  bool has_failed() override { return !is_running(connection_.state.process); }
  void check_alive() override {
    if (!has_failed()) return;
    throw cluster::WorkerFailure(fmt::format("engine {} (process {}) has ended; see {}", index_,
                                             connection_.state.process, order_.log.string()));
  }
  void give_up() override {
    if (connection_.state.process == 0) return;  // it did not begin
    ::kill(static_cast<pid_t>(connection_.state.process), SIGKILL);
    while (is_running(connection_.state.process)) std::this_thread::sleep_for(kLookForSocket);
  }

 private:
  KeptEngines& session_;
  const cluster::WorkerOrder order_;
  const int index_;
  KeptEngineConnection connection_;
  bool has_weights_ = false;
};

KeptEngines::KeptEngines(KeptEnginesConfig config)
    : config_(std::move(config)),
      folder_(made_folder(config_.id)),
      lock_(std::make_unique<report::RunLock>(folder_, "--rollout-session-id")) {
  left_ = read_session(folder_);
  if (!left_) return;
  if (left_->id != config_.id) {
    throw ConfigError(
        fmt::format("--rollout-session-id {}: {} is the folder of session {}; give "
                    "another name",
                    config_.id, folder_.string(), left_->id));
  }
  has_engines_ = has_living_engine(folder_, *left_);
  if (has_engines_ || left_->processes.empty()) return;
  forget_left();
}

void KeptEngines::forget_left() {
  std::error_code ignored;
  fs::remove_all(left_->unsaved, ignored);
  left_.reset();
}

KeptEngines::~KeptEngines() {
  const std::lock_guard lock(mutex_);
  for (const auto& connection : attached_)
    if (connection) ::close(connection->descriptor);
  const bool any_lives = std::ranges::any_of(record_.processes, is_running);
  if (any_lives && !is_ready_ && !has_engines_) {
    end_session(folder_, record_, kUnreadySeconds);
    return;
  }
  if (ends_) {
    if (const int killed = end_session(folder_, record_, config_.end_seconds); killed > 0)
      fmt::print(stderr, "session {}: {} engines did not end within {:g} s and were killed\n",
                 config_.id, killed, config_.end_seconds);
    return;
  }
  if (!any_lives) return;
  fmt::print(stderr,
             "session {}: its engines wait {:g} minutes for the same command, also with another "
             "layout (docs/resume.md); {} ends them\n",
             config_.id, config_.patience_minutes, own_command("session end " + config_.id));
}

void KeptEngines::take(const json::object& settings, const fs::path& unsaved) {
  const std::lock_guard lock(mutex_);
  const std::string program = cluster::own_program();
  if (left_ && left_->program != program) {
    throw ConfigError(fmt::format(
        "--rollout-session-id {}: its engines run another build of this program; {} ends them",
        config_.id, own_command("session end " + config_.id)));
  }
  record_ = left_.value_or(SessionRecord{.id = config_.id,
                                         .program = program,
                                         .settings = settings,
                                         .unsaved = fs::absolute(unsaved).string(),
                                         .processes = {}});
  std::error_code ignored;
  if (!left_) fs::remove_all(record_.unsaved, ignored);  // of a session before
  record_.processes.resize(static_cast<std::size_t>(config_.count), 0);
  attached_.resize(static_cast<std::size_t>(config_.count));
  unsaved_ = record_.unsaved;
  write_session(folder_, record_);
}

std::string KeptEngines::attach() {
  const std::lock_guard lock(mutex_);
  std::string names;
  for (int index = 0; index < config_.count; ++index) {
    if (!is_running(record_.processes[static_cast<std::size_t>(index)])) continue;
    const auto descriptor = cluster::connect_locally(engine_socket(folder_, index));
    if (!descriptor) continue;
    try {
      KeptEngineConnection connection = ask(*descriptor, SessionFrame::kAttach, "");
      names += fmt::format("{}engine {} (process {}, version {})", names.empty() ? "" : ", ", index,
                           connection.state.process, connection.state.version);
      attached_[static_cast<std::size_t>(index)] = std::move(connection);
    } catch (const ConfigError&) {  // its first trainer died before it was an engine
    } catch (const cluster::WorkerFailure&) {
    }
  }
  return names;
}

WeightVersion KeptEngines::version_of(WeightVersion wanted,
                                      const std::function<uint64_t()>& checksum) {
  const std::lock_guard lock(mutex_);
  WeightVersion newest = -1;
  bool are_alike = true;
  const KeptEngineConnection* first = nullptr;
  for (const auto& connection : attached_) {
    if (!connection) continue;
    newest = std::max(newest, connection->state.version);
    if (first == nullptr) first = &*connection;
    are_alike &= connection->state.version == first->state.version &&
                 connection->state.checksum == first->state.checksum;
  }
  if (first == nullptr) return wanted;
  has_weights_ = are_alike && newest >= wanted && first->state.checksum == checksum();
  return has_weights_ ? newest : std::max(wanted, newest + 1);
}

bool KeptEngines::has_attached(int index) {
  const std::lock_guard lock(mutex_);
  return attached_.at(static_cast<std::size_t>(index)).has_value();
}

void KeptEngines::note_process(int index, int64_t process) {
  const std::lock_guard lock(mutex_);
  record_.processes.at(static_cast<std::size_t>(index)) = process;
  write_session(folder_, record_);
}

KeptEngineConnection KeptEngines::connect(const cluster::WorkerOrder& order,
                                          const EngineStart& start, milliseconds /*limit*/) {
  {
    const std::lock_guard lock(mutex_);
    auto& attached = attached_.at(static_cast<std::size_t>(start.index));
    if (attached) return *std::exchange(attached, std::nullopt);
  }
  const fs::path socket = engine_socket(folder_, start.index);
  cluster::WorkerOrder own = order;
  own.command = {"",
                 "worker",
                 "--session-socket",
                 socket.string(),
                 "--session-minutes",
                 fmt::format("{}", config_.patience_minutes)};
  own.identity = {.token = cluster::make_run_token()};
  std::error_code ignored;
  fs::remove(socket, ignored);
  std::optional<std::string> device;
  if (order.place.device >= 0)
    device = cluster::visible_devices(order.place.device, order.place.num_devices);
  const pid_t process = cluster::start_detached(own, device);
  note_process(start.index, process);
  const auto end = std::chrono::steady_clock::now() + kStartLimit;
  std::optional<int> descriptor;
  while (!(descriptor = cluster::connect_locally(socket))) {
    if (!is_running(process) || std::chrono::steady_clock::now() > end)
      throw cluster::WorkerFailure(fmt::format("engine {} (process {}) does not begin; see {}",
                                               start.index, process, order.log.string()));
    std::this_thread::sleep_for(kLookForSocket);
  }
  try {
    return ask(*descriptor, SessionFrame::kStart, to_frame(start));
  } catch (...) {
    ::kill(process, SIGKILL);
    throw;
  }
}

std::unique_ptr<EngineProcess> KeptEngines::process(const cluster::WorkerOrder& order, int index) {
  return std::make_unique<KeptEngineProcess>(*this, order, index);
}

}  // namespace slime::roles
