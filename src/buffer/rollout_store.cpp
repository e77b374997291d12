#include "buffer/rollout_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/error.h"

namespace slime::buffer {
namespace {

constexpr std::size_t kMostTogether = 1024;  // requests of one sync
constexpr std::size_t kMostBytesTogether = std::size_t{64} << 20;

std::filesystem::path log_of(const std::filesystem::path& folder) { return folder / "buffer.log"; }

}  // namespace

/// Of the folder, for as long as the process lives.
class RolloutStore::FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    const std::string path = (folder / "lock").string();
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor_ < 0)
      throw ConfigError(fmt::format("--folder {}: cannot be written: {}", folder.string(),
                                    error ? error.message() : std::strerror(errno)));
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
      ::close(descriptor_);
      throw ConfigError(fmt::format("--folder {}: another slime buffer uses it", folder.string()));
    }
  }
  ~FolderLock() { ::close(descriptor_); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

RolloutStore::RolloutStore(RolloutStoreConfig config)
    : config_(std::move(config)),
      lock_(std::make_unique<FolderLock>(config_.folder)),
      requests_(config_.queue_limit),
      groups_(config_.group_size) {
  log_.rewrite_at = config_.rewrite_bytes;
  const std::filesystem::path path = log_of(config_.folder);
  if (std::filesystem::exists(path)) {
    const RolloutReplay replay = replay_rollout_log(path, groups_);
    groups_.forget_written();
    log_.file = open_append_file(path);
    log_.bytes = replay.whole_bytes;
    torn_bytes_ = replay.file_bytes - replay.whole_bytes;
    const auto whole =
        torn_bytes_ == 0 ? Expected<void>() : log_.file->truncate(replay.whole_bytes);
    if (!whole) throw ConfigError(fmt::format("{}: {}", path.string(), whole.error().message));
  } else {
    log_.file = create_append_file(path);
  }
  thread_ = std::jthread([this] { serve(); });
}

RolloutStore::~RolloutStore() { requests_.close(); }

void RolloutStore::submit(Request request) {
  if (requests_.try_push(request)) return;
  const RolloutRefusal refusal = requests_.is_closed()
                                     ? RolloutRefusal{Refusal::kStopping, "the buffer stops"}
                                     : RolloutRefusal{Refusal::kFull, "too many requests at once"};
  std::visit([&](auto& each) { each.done(tl::make_unexpected(refusal)); }, request);
}

void RolloutStore::write(RolloutItem item, Done<WriteReceipt> done) {
  submit(Write{std::move(item), std::move(done)});
}
void RolloutStore::take(std::size_t max_groups, std::string request_id, Done<GivenGroups> done) {
  submit(Take{max_groups, std::move(request_id), std::move(done)});
}
void RolloutStore::begin(std::string task_type, int64_t group_size, Done<RolloutCounts> done) {
  submit(Begin{std::move(task_type), group_size, std::move(done)});
}
void RolloutStore::count(Done<RolloutCounts> done) { submit(Count{std::move(done)}); }

void RolloutStore::serve() {
  while (std::optional<Request> request = requests_.pop()) {
    for (std::size_t together = 0; request; ++together) {
      carry_out(std::move(*request));
      request.reset();
      if (together < kMostTogether && log_.unwritten.size() < kMostBytesTogether)
        request = requests_.try_pop();
    }
    commit();
    rewrite_log_if_worth();
  }
}

void RolloutStore::carry_out(Request request) {
  std::visit([this](auto&& each) { carry_out(std::move(each)); }, std::move(request));
}

template <typename T>
void RolloutStore::answer(const Done<T>& done, RolloutAnswer<T> value) {
  untold_.push_back([done, value = std::move(value)](const std::string& error) mutable {
    if (!error.empty()) value = tl::make_unexpected(RolloutRefusal{Refusal::kDisk, error});
    done(std::move(value));
  });
}

void RolloutStore::append(const RolloutRecord& record) {
  log_.unwritten += to_rollout_line(record);
}

void RolloutStore::carry_out(Write write) {
  if (groups_.knows(write.item)) {
    // Perhaps it is a part of this commit only: it is acknowledged with it.
    answer<WriteReceipt>(write.done, WriteReceipt{.is_new = false});
    return;
  }
  const bool has_room = groups_.num_items() < config_.max_items &&
                        groups_.num_bytes() + write.item.text.size() <= config_.max_bytes;
  if (!has_room && groups_.begins_group(write.item)) {
    answer<WriteReceipt>(
        write.done,
        tl::make_unexpected(RolloutRefusal{
            Refusal::kFull,
            fmt::format("{} items of {} MiB wait, no further group may begin until the trainer "
                        "takes some; --max-items and --max-gib say how many may wait",
                        groups_.num_items(), groups_.num_bytes() >> 20U)}));
    return;
  }
  RolloutWritten record{.group = 0, .item = std::move(write.item)};
  record.group = groups_.write(record.item);
  append(record);
  answer<WriteReceipt>(write.done, WriteReceipt{});
}

void RolloutStore::carry_out(Take take) {
  if (const KeptAnswer* kept = groups_.find_answer(take.request_id)) {
    answer<GivenGroups>(take.done, GivenGroups{.groups = kept->groups, .written = {}});
    return;
  }
  RolloutTaken record{.groups = groups_.next_groups(take.max_groups, config_.answer_limit_bytes),
                      .request_id = std::move(take.request_id)};
  if (record.groups.empty()) {
    answer<GivenGroups>(take.done, GivenGroups{});
    return;
  }
  GivenGroups given{.groups = *groups_.take(record.groups, record.request_id),
                    .written = groups_.written()};
  groups_.forget_written();
  append(record);
  answer<GivenGroups>(take.done, std::move(given));
}

void RolloutStore::carry_out(Begin begin) {
  if (!groups_.may_begin(begin.task_type, begin.group_size)) {
    answer<RolloutCounts>(
        begin.done,
        tl::make_unexpected(RolloutRefusal{
            Refusal::kContradicts,
            fmt::format("{} items of task {} in groups of {} wait; take them first, or start slime "
                        "buffer with another --folder for task {} in groups of {}",
                        groups_.num_items(), groups_.task_type(), groups_.group_size(),
                        begin.task_type, begin.group_size)}));
    return;
  }
  groups_.begin(begin.task_type, begin.group_size);
  append(RolloutBegun{.task_type = std::move(begin.task_type), .group_size = begin.group_size});
  answer<RolloutCounts>(begin.done, counts());
}

void RolloutStore::carry_out(Count count) { answer<RolloutCounts>(count.done, counts()); }

RolloutCounts RolloutStore::counts() const {
  return {.task_type = groups_.task_type(),
          .group_size = groups_.group_size(),
          .num_whole = groups_.num_whole(),
          .num_filling = groups_.num_filling(),
          .num_items = groups_.num_items(),
          .num_given = groups_.num_given(),
          .num_bytes = groups_.num_bytes()};
}

void RolloutStore::commit() {
  if (!log_.unwritten.empty() && log_.error.empty()) {
    auto written = log_.file->append(log_.unwritten);
    if (written) written = log_.file->sync();
    if (!written) {
      log_.error = fmt::format("{}: {}; restart slime buffer when that is mended",
                               log_of(config_.folder).string(), written.error().message);
    }
    log_.bytes += static_cast<int64_t>(log_.unwritten.size());
  }
  log_.unwritten.clear();
  for (auto& tell : untold_) tell(log_.error);
  untold_.clear();
}

void RolloutStore::rewrite_log_if_worth() {
  if (!log_.error.empty() || log_.bytes < log_.rewrite_at) return;
  log_.rewrite_at = 2 * log_.bytes;
  const std::filesystem::path path = log_of(config_.folder);
  const std::filesystem::path fresh = path.string() + ".new";
  std::error_code ignored;
  std::filesystem::remove(fresh, ignored);
  try {
    std::unique_ptr<AppendFile> file = create_append_file(fresh);
    int64_t bytes = 0;
    for (const RolloutRecord& record : records_of(groups_)) {
      const std::string line = to_rollout_line(record);
      bytes += static_cast<int64_t>(line.size());
      if (!file->append(line)) return;  // the old log goes on
    }
    if (!file->sync()) return;
    std::filesystem::rename(fresh, path);
    sync_directory(path);
    log_.file = std::move(file);
    log_.bytes = bytes;
    log_.rewrite_at = std::max(config_.rewrite_bytes, 2 * bytes);
  } catch (const std::exception&) {
    std::filesystem::remove(fresh, ignored);
  }
}

}  // namespace slime::buffer
